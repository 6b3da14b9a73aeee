"""Which renderer makes which format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof.report.rows import By, Sort

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis
    from onnxroof.lint.result import LintResult
    from onnxroof.memory.order import NodeOrder

DEFAULT_WIDTH = 100
"""Columns of a text report that goes to no terminal."""

DEFAULT_TOP = 15
"""Rows of a table for people."""

CHEAP_NODES = 600
"""Closed forms take some forty analyses: up to so many nodes, well under a second."""


class Format(Enum):
    """What a report is written as."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the table of a report shows.

    Attributes:
        by: What a row stands for.
        sort: What rows are ordered by; None: by time where there is a device, else by FLOPs.
        top: Rows to show, 0 for all; None takes the renderer's default: 15, in CSV all.
        scope_depth: Components of a module path that make a scope.
    """

    by: By = By.KERNEL
    sort: Sort | None = None
    top: int | None = None
    scope_depth: int = 2

    def rows(self, default: int) -> int:
        """Rows to show, 0 for all."""
        return default if self.top is None else self.top


@dataclass(frozen=True, slots=True)
class Extras:
    """Sections a report for people has only where asked for.

    Attributes:
        fusion: Every fusion with its reason, every miss with its cause; JSON has it always.
        timeline: What is alive over time; JSON has it always.
        order: A node order that was searched for; None for none.
    """

    fusion: bool = False
    timeline: bool = False
    order: NodeOrder | None = None


def render(
    analysis: Analysis,
    format_: Format,
    table: TableOptions,
    *,
    width: int = DEFAULT_WIDTH,
    with_tensors: bool = False,
    with_formulas: bool | None = None,
    findings: LintResult | None = None,
    extras: Extras = Extras(),
) -> str:
    """The report in a format.

    Args:
        analysis: The run.
        format_: What to make of it.
        table: What its table shows; JSON has everything, always.
        width: Columns of the terminal, for text.
        with_tensors: List every tensor, in JSON.
        with_formulas: Show the totals as formulas in the free dimensions (not in CSV); None: for a
            model that has some, if it is small enough for that to take no time.
        findings: What lint found, for a section of its own (not in CSV); None for no section.
        extras: Sections that were asked for (not in CSV).

    Raises:
        UsageError: Ordering by time was asked for, but no device was given.
    """
    if with_formulas is None:
        with_formulas = bool(analysis.dims) and len(analysis.nodes) <= CHEAP_NODES
    if format_ is Format.JSON:
        from onnxroof.report.json_report import render_json

        return render_json(
            analysis,
            with_tensors=with_tensors,
            with_formulas=with_formulas,
            findings=findings,
            order=extras.order,
        )
    if format_ is Format.CSV:
        from onnxroof.report.csv_report import render_csv

        return render_csv(analysis, table)
    if format_ is Format.MARKDOWN:
        from onnxroof.report.markdown import render_markdown

        return render_markdown(
            analysis, table, with_formulas=with_formulas, findings=findings, extras=extras
        )
    from onnxroof.report.text import render_text

    return render_text(
        analysis, table, width, with_formulas=with_formulas, findings=findings, extras=extras
    )
