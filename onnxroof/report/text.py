"""`Analysis` → a report for the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.report import facts
from onnxroof.report.grid import aligned
from onnxroof.report.memory import memory_sections
from onnxroof.report.render import DEFAULT_TOP, DEFAULT_WIDTH, Extras, TableOptions
from onnxroof.report.table import make_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.lint.result import LintResult
    from onnxroof.report.section import Section
    from onnxroof.report.table import Table

_NARROWEST, _WIDEST = 60, 160
_SHORTEST_NAME = 30
_SHORTEST_LABEL, _NARROWEST_TEXT, _COMFORTABLE_TEXT = 24, 16, 34
_GAP = 2


def render_text(
    analysis: Analysis,
    options: TableOptions | None = None,
    width: int = DEFAULT_WIDTH,
    *,
    with_formulas: bool = False,
    findings: LintResult | None = None,
    extras: Extras = Extras(),  # noqa: B008 - frozen
) -> str:
    """The report as text.

    Args:
        analysis: The run.
        options: What the table shows.
        width: Columns of the terminal.
        with_formulas: Show the totals as formulas in the free dimensions, too.
        findings: What lint found, for a section of its own.
        extras: Sections that were asked for.

    Raises:
        UsageError: Ordering by time was asked for, but no device was given.
    """
    width = min(max(width, _NARROWEST), _WIDEST)
    blocks = [
        f"{facts.title(analysis)} · onnxroof {__version__}",
        _header(analysis, width),
        _totals(analysis, width),
        *_formulas(analysis, shown=with_formulas),
        *_verdict(analysis, width),
        *_sections(memory_sections(analysis, timeline=extras.timeline, order=extras.order), width),
        *_fusion(analysis, options, width, shown=extras.fusion),
        _table(make_table(analysis, options or TableOptions()), width),
        *_findings(findings, width),
    ]
    return "\n\n".join(blocks) + "\n"


def _findings(findings: LintResult | None, width: int) -> Iterator[str]:
    """One line a rule that found something."""
    if findings is None:
        return
    from onnxroof.lint.render import section_lines

    lines = [piece for line in section_lines(findings) for piece in _wrapped(line, "", 0, width)]
    device = f" on {units.printable(findings.hardware)}" if findings.hardware else ""
    yield "\n".join([f"findings{device} (onnxroof lint has all of them)", *lines])


def _header(analysis: Analysis, width: int) -> str:
    labelled = facts.header(analysis)
    margin = max(len(label) for label, _ in labelled) + _GAP
    lines: list[str] = []
    for label, texts in labelled:
        for place, text in enumerate(texts):
            lines += _wrapped(text, label if place == 0 else "", margin, width)
    return "\n".join(lines)


def _wrapped(text: str, label: str, margin: int, width: int) -> list[str]:
    """The text with a label in its margin; long lines continue, indented, in the same column."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=label.ljust(margin),
        subsequent_indent=" " * (margin + 2),
        break_on_hyphens=False,
    )


def _totals(analysis: Analysis, width: int) -> str:
    rows = [(f.label, f.value, f.exact, f.remark) for f in facts.totals(analysis)]
    return _last_wrapped(rows, (), (False, True, True, False), width)


def _fusion(
    analysis: Analysis, options: TableOptions | None, width: int, *, shown: bool
) -> Iterator[str]:
    """What is fused and what is not, where asked for."""
    if shown:
        from onnxroof.report.fusion import fusion_sections

        top = (options or TableOptions()).rows(DEFAULT_TOP)
        yield from _sections(fusion_sections(analysis, top), width)


def _sections(sections: Iterable[Section], width: int) -> Iterator[str]:
    for section in sections:
        lines = [piece for line in section.lines for piece in _wrapped(line, "", 0, width)]
        if section.rows:
            lines.append(_last_wrapped(section.rows, section.headers, section.right, width))
        yield "\n".join([*_wrapped(section.title, "", 0, width), *lines])


def _last_wrapped(
    rows: Sequence[Sequence[str]], headers: Sequence[str], right: Sequence[bool], width: int
) -> str:
    """A table whose names are shortened and whose last column is wrapped where it must be.

    In a terminal too narrow for that, columns go from the last but one on.
    """
    columns = [*zip(*([headers] if headers else []), *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    kept = list(range(len(widths)))
    while True:
        beside = sum(widths[place] + _GAP for place in kept[1:-1]) + _GAP
        wanted = min(widths[-1], _NARROWEST_TEXT)
        comfortable = min(widths[-1], _COMFORTABLE_TEXT)
        names = min(widths[0], max(width - beside - comfortable, _SHORTEST_LABEL))
        if width - beside - names >= wanted or len(kept) == 2:
            break
        del kept[-2]
    room = max(width - beside - names, 1)
    lines: list[Sequence[str]] = []
    for row, name in zip(rows, units.shorten_all([row[0] for row in rows], names), strict=True):
        words = " ".join(units.shorten(word, room) for word in row[-1].split(" "))
        first, *more = textwrap.wrap(words, room, break_on_hyphens=False) or [""]
        lines.append((name, *(row[place] for place in kept[1:-1]), first))
        lines += [(*("" for _ in kept[:-1]), line) for line in more]
    shown = [headers[place] for place in kept] if headers else ()
    return aligned(lines, shown, right=[right[place] for place in kept])


def _formulas(analysis: Analysis, *, shown: bool) -> Iterator[str]:
    """The totals as polynomials in the free dimensions."""
    if shown:
        from onnxroof.report.formulas import totals_lines

        yield "\n".join(totals_lines(analysis.formulas, facts.fusion_to_name(analysis)))


def _verdict(analysis: Analysis, width: int) -> Iterator[str]:
    """One block a few devices wide, and what the devices are."""
    if not analysis.rooflines:
        return
    headers, rows = facts.verdict(analysis)
    labels = max(len(row[0]) for row in rows) + _GAP
    for columns in _that_fit(headers, rows, width - labels):
        chosen = [0, *columns]
        yield aligned(
            [[row[place] for place in chosen] for row in rows],
            [headers[place] for place in chosen],
            right=(False, *(True for _ in columns)),
        )
    lines = facts.device_lines(analysis)
    yield "\n".join(piece for line in lines for piece in _wrapped(line, "", 0, width))


def _that_fit(
    headers: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> Iterator[list[int]]:
    """Columns 1… in groups no wider than the room."""
    group: list[int] = []
    used = 0
    for place in range(1, len(headers)):
        needed = max(len(row[place]) for row in (headers, *rows)) + _GAP
        if group and used + needed > room:
            yield group
            group, used = [], 0
        group.append(place)
        used += needed
    yield group


def _table(table: Table, width: int) -> str:
    kept, room = _columns_that_fit(table, width)
    names = units.shorten_all([row[0] for row in table.rows], room)
    rows = [
        [name, *(row[place] for place in kept[1:])]
        for name, row in zip(names, table.rows, strict=True)
    ]
    text = aligned(
        rows,
        [table.headers[place] for place in kept],
        right=[table.right[place] for place in kept],
    )
    note = "\n".join(textwrap.wrap(table.footnote, width))
    return "\n".join(part for part in (table.title, text, note) if part)


def _columns_that_fit(table: Table, width: int) -> tuple[list[int], int]:
    """The columns to show, and the characters left for the first one, the name.

    Spare columns go, one by one, until names are cut no shorter than `_SHORTEST_NAME`.
    """
    widths = [
        max(len(part) for cell in column for part in cell.split("\n"))
        for column in zip(table.headers, *table.rows, strict=True)
    ]
    kept = list(range(len(widths)))
    spare = list(table.spare)
    while True:
        room = width - sum(widths[place] + _GAP for place in kept[1:])
        if room >= min(widths[0], _SHORTEST_NAME) or not spare:
            return kept, max(room, _SHORTEST_NAME)
        kept.remove(spare.pop(0))
