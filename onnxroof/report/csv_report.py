"""`Analysis` → comma-separated values in base units, one line a row of the table."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from onnxroof.bounded import is_exact
from onnxroof.report.render import TableOptions
from onnxroof.report.rows import default_sort, table_rows
from onnxroof.units import distinct, printable

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis
    from onnxroof.report.rows import Row

_COUNTS = (
    "macs", "flops", "transcendentals", "parameters", "weight_bytes", "read_bytes",
    "written_bytes", "traffic_bytes",
)  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@")


def render_csv(analysis: Analysis, options: TableOptions | None = None) -> str:
    """The table as CSV by RFC 4180, with lines that end in a line feed alone.

    Units stand in the column names; an empty cell is unknown. `exactness` says "exact",
    "at least" where a part of a group is unknown, "at most" where only bounds of a size are known,
    "per trip" where loops run nobody knows how often.

    Raises:
        UsageError: Ordering by time was asked for, but no device was given.
    """
    options = options or TableOptions()
    by, top = options.by, options.rows(0)
    rows = table_rows(analysis, by, options.sort or default_sort(analysis), options.scope_depth)
    names = [result.hardware.name for result in analysis.rooflines]
    labels = distinct(names)
    times = [f"{label}_{field}" for label in labels for field in ("seconds", "bound", "share")]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        [
            "name", "op_type", "nodes", "scope", "rule", "compute_dtype",
            *_COUNTS, "arithmetic_intensity_flop_per_byte", "exactness", *map(safe_cell, times),
        ]
    )  # fmt: skip
    writer.writerows(_cells(row) for row in (rows[:top] if top else rows))
    return file.getvalue()


def _cells(row: Row) -> list[object]:
    text = [row.name, row.op_type, row.nodes, row.scope, row.rule, row.compute_dtype]
    cells: list[object] = [safe_cell(cell) if isinstance(cell, str) else cell for cell in text]
    cells += [_number(getattr(row, field)) for field in _COUNTS]
    cells += [_number(row.arithmetic_intensity), _exactness(row)]
    for time in row.times:
        cells += [_number(time.seconds), time.bound, _number(time.share)]
    return cells


def _number(value: float | None) -> object:
    if value is None:
        return ""
    return int(value) if isinstance(value, int) else repr(value)


def _exactness(row: Row) -> str:
    if row.is_per_trip:
        return "per trip"
    if row.is_lower_bound:
        return "at least"
    counts = [getattr(row, field) for field in _COUNTS]
    return "exact" if all(is_exact(value) for value in counts if value is not None) else "at most"


def safe_cell(text: str) -> str:
    """A cell no spreadsheet takes for a formula, on one line."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA_STARTS) else shown
