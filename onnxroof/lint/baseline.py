"""Findings that somebody looked at and accepted: a JSON file with a reason per entry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError, quoted
from onnxroof.files import read_small
from onnxroof.lint.registry import all_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.lint.rule import Finding

SCHEMA_VERSION = 1
MOST_BYTES = 64 << 20
_KEYS = frozenset({"code", "nodes", "tensors", "reason"})


@dataclass(frozen=True, slots=True)
class Accepted:
    """One entry: which findings, and why they are accepted."""

    code: str
    nodes: frozenset[str]
    tensors: frozenset[str]
    reason: str

    def matches(self, finding: Finding) -> bool:
        """Whether the entry is about this finding; without nodes and tensors, about its code."""
        if finding.code != self.code:
            return False
        if not self.nodes and not self.tensors:
            return True
        return set(finding.nodes) == self.nodes and set(finding.tensors) == self.tensors


@dataclass(frozen=True, slots=True)
class Split:
    """Findings that remain, those accepted with the reason, and entries that match nothing."""

    remaining: tuple[Finding, ...]
    accepted: tuple[tuple[Finding, str], ...]
    unmatched: tuple[Accepted, ...]


def read_baseline(path: str) -> tuple[Accepted, ...]:
    """The entries of a baseline file.

    Raises:
        UsageError: It cannot be read, is not of the documented form, or an entry has no reason;
            names every entry that is wrong.
    """
    try:
        data = read_small(path, MOST_BYTES)
        if len(data) > MOST_BYTES:
            raise UsageError(f"baseline {path}: larger than {MOST_BYTES >> 20} MiB")
        document = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"baseline {path}: cannot be read: {reason}") from None
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(f"baseline {path}: schema_version {SCHEMA_VERSION} is meant")
    listed = document.get("accepted")
    if not isinstance(listed, list):
        raise UsageError(f"baseline {path}: a list under the key accepted is meant")
    problems = [
        f"entry {place}: {problem}"
        for place, entry in enumerate(listed, 1)
        if (problem := _problem(entry))
    ]
    if problems:
        raise UsageError(f"baseline {path}: " + "; ".join(problems))
    return tuple(
        Accepted(
            entry["code"],
            frozenset(entry.get("nodes", ())),
            frozenset(entry.get("tensors", ())),
            entry["reason"].strip(),
        )
        for entry in listed
    )


def apply_baseline(findings: Sequence[Finding], entries: Sequence[Accepted]) -> Split:
    """Tell what is new from what was accepted."""
    remaining: list[Finding] = []
    accepted: list[tuple[Finding, str]] = []
    used: set[int] = set()
    for finding in findings:
        places = [place for place, entry in enumerate(entries) if entry.matches(finding)]
        if places:
            used.update(places)
            accepted.append((finding, entries[places[0]].reason))
        else:
            remaining.append(finding)
    unmatched = tuple(entry for place, entry in enumerate(entries) if place not in used)
    return Split(tuple(remaining), tuple(accepted), unmatched)


def _problem(entry: object) -> str:
    """What is wrong with an entry; "" when nothing is."""
    if not isinstance(entry, dict):
        return "is not an object"
    unknown = sorted(map(str, set(entry) - _KEYS))
    if unknown:
        return f"unknown key {quoted(unknown[0])}"
    code = str(entry.get("code"))
    if code not in all_rules():
        return f"no lint rule has the code {quoted(code)}"
    reason = entry.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        return "has no reason; say why the finding is accepted"
    for key in ("nodes", "tensors"):
        names = entry.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return f"{key} is not a list of names"
    return ""
