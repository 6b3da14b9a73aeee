"""`LintResult` → text for the terminal, markdown, JSON."""

from __future__ import annotations

import json
import textwrap
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.lint.result import groups, notes, saving_text
from onnxroof.units import escaped, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.lint.result import LintResult, RuleGroup
    from onnxroof.lint.rule import Finding

SCHEMA_VERSION = 1
_LONGEST_LINE = 150
_MOST_FINDINGS = 5
"""Findings of one rule a report for people shows."""


class LintFormat(Enum):
    """What findings are written as."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"


def render(result: LintResult, format_: LintFormat, width: int = 100) -> str:
    """The findings in a format."""
    if format_ is LintFormat.JSON:
        return render_json(result)
    if format_ is LintFormat.MARKDOWN:
        return render_markdown(result)
    if format_ is LintFormat.SARIF:
        from onnxroof.lint.sarif import render_sarif

        return render_sarif(result)
    return render_text(result, width)


def render_text(result: LintResult, width: int = 100) -> str:
    """Findings by rule, for a terminal so many columns wide."""
    width = min(max(width, 60), 160)
    device = f" on {printable(result.hardware)}" if result.hardware else ""
    blocks = [
        f"{printable(result.model)}{device} ({printable(result.runtime)}) · lint · onnxroof"
        f" {__version__}",
        summary(result),
        *("\n".join(_group_lines(group, width)) for group in groups(result.findings)),
    ]
    said = [printable(note) for note in notes(result)]
    if said:
        blocks.append("\n".join(line for note in said for line in _wrapped(note, "", width)))
    if result.findings:
        blocks.append(f"why, and what to do: onnxroof explain {result.findings[0].code}")
    return "\n\n".join(blocks) + "\n"


def summary(result: LintResult) -> str:
    """One line: how many findings of each severity."""
    counts = {name: count for name, count in result.counts().items() if count}
    if not counts:
        return "no findings"
    return ", ".join(units.plural(count, _NOUN[name]) for name, count in counts.items())


_NOUN = {"error": "error", "warning": "warning", "info": "remark"}


def section_lines(result: LintResult, most: int = 8) -> list[str]:
    """One line a rule, for the findings section of another report."""
    listed = groups(result.findings)
    lines = [_headline(group) + ": " + _first(group) for group in listed[:most]]
    if len(listed) > most:
        lines.append(f"… and {units.plural(len(listed) - most, 'rule')} more (onnxroof lint)")
    return [printable(line) for line in lines] or ["none"]


def _first(group: RuleGroup) -> str:
    finding = group.findings[0]
    message = _located(finding)
    more = len(group.findings) - 1
    return units.truncate(message, _LONGEST_LINE) + (f" (and {more} more)" if more else "")


def _headline(group: RuleGroup) -> str:
    count = f" × {len(group.findings)}" if len(group.findings) > 1 else ""
    saving = f", saves up to {group.saving}" if group.saving else ""
    preview = " (preview)" if group.findings[0].preview else ""
    return f"{group.severity.value} {group.code} {group.name}{preview}{count}{saving}"


def _group_lines(group: RuleGroup, width: int) -> Iterator[str]:
    yield printable(_headline(group))
    for finding in group.findings[:_MOST_FINDINGS]:
        saving = saving_text(finding.saving_seconds, finding.saving_bytes)
        tail = f" [{saving}]" if saving and len(group.findings) > 1 else ""
        yield from _wrapped(printable(_located(finding)) + tail, "  ", width)
    more = len(group.findings) - _MOST_FINDINGS
    if more > 0:
        yield f"  … and {more} more (--format json has them all)"


def _located(finding: Finding) -> str:
    """The message, with the tensors or the one node in front where it does not name them."""
    names = finding.tensors[:2] or finding.nodes
    if len(names) > 2 or not names or any(name in finding.message for name in names):
        return finding.message
    return f"{' and '.join(names)}: {finding.message}"


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def render_markdown(result: LintResult) -> str:
    """Findings as a table a rule, fit for a pull-request comment."""
    device = f" on {result.hardware}" if result.hardware else ""
    blocks = [f"## {escaped(result.model)}{escaped(device)}: lint", f"**{summary(result)}**"]
    for group in groups(result.findings):
        rows = [
            f"| {escaped(_located(finding))} |"
            f" {escaped(saving_text(finding.saving_seconds, finding.saving_bytes)) or '–'} |"
            for finding in group.findings[:_MOST_FINDINGS]
        ]
        more = len(group.findings) - _MOST_FINDINGS
        if more > 0:
            rows.append(f"| … and {more} more | |")
        head = f"### {escaped(_headline(group))}\n\n| finding | saves |\n|---|---|"
        blocks.append("\n".join([head, *rows]))
    if notes(result):
        blocks.append("\n".join(f"- {escaped(note)}" for note in notes(result)))
    blocks.append(f"onnxroof {__version__}")
    return "\n\n".join(blocks) + "\n"


def render_json(result: LintResult) -> str:
    """Every finding; base units, the unit in every key."""
    return json.dumps(as_dict(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_dict(result: LintResult) -> dict[str, object]:
    """The findings as plain dictionaries and lists."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "onnxroof", "version": __version__},
        "model": result.model,
        "hardware": result.hardware or None,
        "runtime": result.runtime,
        "counts": dict(result.counts()),
        "nodes": result.nodes,
        "unknown_nodes": result.unknown_nodes,
        "findings": [finding_dict(finding) for finding in result.findings],
        "accepted": [
            {**finding_dict(finding), "reason": reason} for finding, reason in result.accepted
        ],
        "unmatched_baseline_codes": list(result.unmatched),
        "weights_read_bytes": result.read_bytes,
        "weights_skipped": [
            {"reason": reason, "count": count} for reason, count in (result.skipped or {}).items()
        ],
    }


def finding_dict(finding: Finding) -> dict[str, object]:
    """One finding as a dictionary."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "preview": finding.preview,
        "message": finding.message,
        "nodes": list(finding.nodes),
        "tensors": list(finding.tensors),
        "saving_seconds": finding.saving_seconds,
        "saving_bytes": finding.saving_bytes,
        "facts": dict(finding.facts),
    }
