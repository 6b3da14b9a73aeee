"""`Analysis` → a report in GitHub-flavoured markdown, fit for a pull-request comment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabulate import tabulate

from onnxroof import __version__
from onnxroof.report import facts
from onnxroof.report.memory import memory_sections
from onnxroof.report.render import DEFAULT_TOP, Extras, TableOptions
from onnxroof.report.table import make_table
from onnxroof.units import escaped, shorten_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.lint.result import LintResult
    from onnxroof.report.section import Section

_LONGEST_NAME = 80


def render_markdown(
    analysis: Analysis,
    options: TableOptions | None = None,
    *,
    with_formulas: bool = False,
    findings: LintResult | None = None,
    extras: Extras = Extras(),  # noqa: B008 - frozen
) -> str:
    """The report as markdown; raises as `render_text` does.

    Names from the model are escaped: none can end a cell, start a heading or become a link.
    """
    table = make_table(analysis, options or TableOptions())
    blocks = [f"## {escaped(facts.title(analysis))}", _header(analysis), _totals(analysis)]
    if with_formulas:
        from onnxroof.report.formulas import totals_lines

        lines = totals_lines(analysis.formulas, facts.fusion_to_name(analysis))
        blocks.append("\n".join(f"    {line}" for line in lines))
    if analysis.rooflines:
        headers, figures = facts.verdict(analysis)
        blocks.append(_grid(figures, headers, [False, *(True for _ in headers[1:])]))
        blocks.append("\n".join(f"- {escaped(line)}" for line in facts.device_lines(analysis)))
    blocks += _sections(memory_sections(analysis, timeline=extras.timeline, order=extras.order))
    if extras.fusion:
        from onnxroof.report.fusion import fusion_sections

        top = (options or TableOptions()).rows(DEFAULT_TOP)
        blocks += _sections(fusion_sections(analysis, top))
    names = shorten_all([row[0] for row in table.rows], _LONGEST_NAME)
    cells = [(name, *row[1:]) for name, row in zip(names, table.rows, strict=True)]
    blocks += [f"### {table.title.capitalize()}", _grid(cells, table.headers, table.right)]
    if table.footnote:
        blocks.append(escaped(table.footnote))
    if findings is not None:
        from onnxroof.lint.render import section_lines

        listed = "\n".join(f"- {escaped(line)}" for line in section_lines(findings))
        blocks += ["### Findings", listed]
    blocks.append(f"onnxroof {__version__}")
    return "\n\n".join(blocks) + "\n"


def _header(analysis: Analysis) -> str:
    return "\n".join(
        f"- **{label}**: " + "; ".join(escaped(text) for text in texts)
        for label, texts in facts.header(analysis)
    )


def _sections(sections: Iterable[Section]) -> Iterator[str]:
    for section in sections:
        yield f"### {escaped(section.title.capitalize())}"
        if section.lines:
            yield "\n".join(f"- {escaped(line)}" for line in section.lines)
        if section.rows:
            yield _grid(section.rows, section.headers or [""] * len(section.right), section.right)


def _totals(analysis: Analysis) -> str:
    rows = [(f.label, f.value, f.exact, f.remark) for f in facts.totals(analysis)]
    return _grid(rows, ("total", "", "exact", ""), (False, True, True, False))


def _grid(rows: Sequence[Sequence[str]], headers: Sequence[str], right: Sequence[bool]) -> str:
    return tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        [escaped(header) for header in headers],
        tablefmt="pipe",
        colalign=["right" if is_right else "left" for is_right in right],
        disable_numparse=True,
    )
