"""A budget report as text, markdown, JSON or JUnit XML."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from onnxroof import __version__, units
from onnxroof.budgets.records import Answer
from onnxroof.report.grid import markdown_grid, text_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxroof.budgets.records import BudgetReport, Check


class CheckFormat(Enum):
    """What a budget report is written as."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"


HEADERS = ("budget", "limit", "allowed", "model has", "answer")


def render(reports: Sequence[BudgetReport], format_: CheckFormat) -> str:
    """The reports of some models in a format."""
    return _RENDERERS[format_](reports)


def _text(reports: Sequence[BudgetReport]) -> str:
    return "\n".join(map(_one_text, reports))


def _markdown(reports: Sequence[BudgetReport]) -> str:
    blocks = [*map(_one_markdown, reports), f"onnxroof {__version__}"]
    return "\n\n".join(blocks) + "\n"


def _one_text(report: BudgetReport) -> str:
    rows = [_row(check) for check in report.checks]
    lines = [f"{units.printable(report.model)} · onnxroof {__version__}", ""]
    lines += text_grid(HEADERS, rows, right=(2, 3))
    for check in report.checks:
        for line in _details(check):
            lines += ["", line] if line.endswith(":") else [f"  {line}"]
    lines += _assumed(report)
    return "\n".join(lines) + "\n"


def _one_markdown(report: BudgetReport) -> str:
    from onnxroof.units import escaped

    answers = {check.answer for check in report.checks}
    blocks = [f"## {_MARKS[_worst(answers)]} Budgets of {escaped(report.model)}"]
    rows = [_row(check, marked=True) for check in report.checks]
    blocks.append(markdown_grid(HEADERS, rows, right=(2, 3)))
    for check in report.checks:
        details = _details(check)
        if details:
            listed = "\n".join(f"- {escaped(line)}" for line in details[1:])
            blocks.append(f"**{escaped(details[0])}**\n\n{listed}")
    blocks += [escaped(line) for line in _assumed(report) if line]
    return "\n\n".join(blocks)


_MARKS = {Answer.WITHIN: "✅", Answer.EXCEEDS: "❌", Answer.CANNOT_TELL: "❔"}


def _worst(answers: set[Answer]) -> Answer:
    ranked = (Answer.EXCEEDS, Answer.CANNOT_TELL)
    return next((answer for answer in ranked if answer in answers), Answer.WITHIN)


def _row(check: Check, *, marked: bool = False) -> tuple[str, ...]:
    mark = f"{_MARKS[check.answer]} " if marked else ""
    return (
        units.printable(check.budget.name),
        check.limit.metric.title,
        check.limit.metric.shown(check.limit.amount),
        _value(check),
        mark + answer_text(check),
    )


def _value(check: Check) -> str:
    if check.value is None:
        return units.UNKNOWN
    text = check.limit.metric.shown(check.value)
    if check.exactness == "per trip":
        return f"{text} per trip"
    is_low, is_high = check.exactness == "at least", check.exactness == "at most"
    return units.bounded(text, at_least=is_low, at_most=is_high)


def answer_text(check: Check) -> str:
    """The answer in words: "exceeds by 1.25 ms (1.25 ×)"."""
    if check.answer is not Answer.EXCEEDS or check.excess is None:
        return check.answer.value
    limit = check.limit
    by = limit.metric.shown(abs((check.value or 0) - limit.amount))
    times = (
        f"{units.significant((check.value or 0) / limit.amount)} ×" if limit.amount else "from 0"
    )
    return f"{'misses' if limit.at_least else 'exceeds'} by {by} ({times})"


def _details(check: Check) -> list[str]:
    """What to look at, or what is unknown; a heading first."""
    where = f"{units.printable(check.budget.name)}, {check.limit.metric.title}"
    if check.culprits:
        shown = _part_shown(check)
        return [
            f"{where}: largest parts:",
            *[
                f"{part.name} ({part.what}): {shown(part.amount)}, {units.percent(part.share)}"
                for part in check.culprits
            ],
        ]
    if check.unknown:
        return [f"{where}: not known:", *check.unknown]
    return []


def _part_shown(check: Check) -> Callable[[float | None], str]:
    """How a part is written: what makes throughput low is time."""
    return units.duration if check.limit.at_least else check.limit.metric.shown


def _assumed(report: BudgetReport) -> list[str]:
    said = dict.fromkeys(text for texts in report.assumptions.values() for text in texts)
    return ["", *[f"assumed: {units.printable(text)}" for text in said]] if said else []


def _json(reports: Sequence[BudgetReport]) -> str:
    document = {
        "schema_version": 1,
        "tool": {"name": "onnxroof", "version": __version__},
        "models": [
            {
                "model": report.model,
                "checks": [_record(check) for check in report.checks],
                "assumptions": {name: list(said) for name, said in report.assumptions.items()},
            }
            for report in reports
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _record(check: Check) -> dict[str, object]:
    return {
        "budget": check.budget.name,
        "hardware": check.budget.hardware or None,
        "metric": check.limit.metric.name,
        "at_least": check.limit.at_least,
        "limit": check.limit.amount,
        "value": check.value,
        "exactness": check.exactness,
        "answer": check.answer.value,
        "excess": check.excess,
        "culprits": [
            {"name": c.name, "what": c.what, "amount": c.amount, "share": c.share}
            for c in check.culprits
        ],
        "unknown": list(check.unknown),
    }


def _junit(reports: Sequence[BudgetReport]) -> str:
    """One test suite a budget, one test case a limit; what cannot be told is skipped."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="onnxroof">']
    for report in reports:
        suites: dict[str, list[Check]] = {}
        for check in report.checks:
            suites.setdefault(check.budget.name, []).append(check)
        for name, checks in suites.items():
            lines += _suite(report, name, checks)
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _suite(report: BudgetReport, name: str, checks: Sequence[Check]) -> list[str]:
    failed = sum(check.answer is Answer.EXCEEDS for check in checks)
    skipped = sum(check.answer is Answer.CANNOT_TELL for check in checks)
    head = (
        f'  <testsuite name={_attribute(name)} tests="{len(checks)}" '
        f'failures="{failed}" skipped="{skipped}" errors="0">'
    )
    cases = [line for check in checks for line in _case(report, check)]
    return [head, *cases, "  </testsuite>"]


def _case(report: BudgetReport, check: Check) -> list[str]:
    head = (
        f"    <testcase classname={_attribute(report.model)}"
        f" name={_attribute(check.limit.metric.title)}"
    )
    if check.answer is Answer.WITHIN:
        return [f"{head}/>"]
    tag = "failure" if check.answer is Answer.EXCEEDS else "skipped"
    allowed = check.limit.metric.shown(check.limit.amount)
    message = f"{_value(check)} of {allowed}: {answer_text(check)}"
    details = _attribute("\n".join(_details(check)))[1:-1]
    return [
        f"{head}>",
        f"      <{tag} message={_attribute(message)}>{details}</{tag}>",
        "    </testcase>",
    ]


def _attribute(text: str) -> str:
    """Text as a quoted XML attribute: no character that XML forbids is left."""
    visible = "\n".join(map(units.printable, text.split("\n")))
    return quoteattr(visible, {"\n": "&#10;", '"': "&quot;"})


_RENDERERS: Mapping[CheckFormat, Callable[[Sequence[BudgetReport]], str]] = {
    CheckFormat.TEXT: _text,
    CheckFormat.MARKDOWN: _markdown,
    CheckFormat.JSON: _json,
    CheckFormat.JUNIT: _junit,
}
