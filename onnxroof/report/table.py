"""The table of a report for people: which columns, and their cells as text.

Shared by the text and markdown renderers, which align and escape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.bounded import is_exact, lower, upper
from onnxroof.report.render import DEFAULT_TOP
from onnxroof.report.rows import By, Sort, default_sort, table_rows
from onnxroof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.report.render import TableOptions
    from onnxroof.report.rows import Row

_WIDEST_OPERATOR = 28


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first column is the name, which may be shortened to fit.

    Attributes:
        title: What the rows are and how they are ordered.
        headers: Two lines each, the device's name above where there are several.
        right: Whether each column is aligned to the right.
        spare: Columns a narrow terminal can do without, the first to go first.
        rows: Cells.
        footnote: What the reader must know to read the numbers; "" for nothing.
    """

    title: str
    headers: tuple[str, ...]
    right: tuple[bool, ...]
    spare: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]
    footnote: str


@dataclass(frozen=True, slots=True)
class _Column:
    header: str
    cell: Callable[[Row], str]
    right: bool = True


_SPARE = ("params", "MACs", "share", "FLOP/B", "traffic", "operator", "FLOPs", "bound")

_ORDERED_BY = {
    Sort.FLOPS: "FLOPs",
    Sort.MACS: "MACs",
    Sort.BYTES: "traffic",
    Sort.INTENSITY: "FLOP/B",
    Sort.PARAMS: "params",
}
"""The column in which the reader sees the order."""


def make_table(analysis: Analysis, options: TableOptions) -> Table:
    """The first rows as text.

    Raises:
        UsageError: Ordering by time was asked for, but no device was given.
    """
    by = options.by
    order = options.sort or default_sort(analysis)
    rows = table_rows(analysis, by, order, options.scope_depth)
    top = options.rows(DEFAULT_TOP)
    shown = rows[:top] if top else rows
    columns = _columns(analysis, by)
    return Table(
        title=_title(analysis, len(shown), len(rows), by, order),
        headers=tuple(column.header for column in columns),
        right=tuple(column.right for column in columns),
        spare=_spare(columns, order),
        rows=tuple(tuple(column.cell(row) for column in columns) for row in shown),
        footnote=_footnote(analysis, by),
    )


def _columns(analysis: Analysis, by: By) -> list[_Column]:
    columns = [_Column(by.value, lambda row: printable(row.name), right=False)]
    if by in {By.KERNEL, By.NODE}:
        columns.append(_Column("operator", _operator, right=False))
    else:
        columns.append(_Column("nodes", lambda row: str(row.nodes)))
    columns += [
        _Column("MACs", lambda row: _amount(row, row.macs, units.count)),
        _Column("FLOPs", lambda row: _amount(row, row.flops, units.count)),
        _Column("params", lambda row: _amount(row, row.parameters, units.count)),
        _Column("traffic", lambda row: _amount(row, row.traffic_bytes, units.size)),
        _Column("FLOP/B", _intensity),
    ]
    for place, result in enumerate(analysis.rooflines):
        columns += _device_columns(place, result.hardware.name, len(analysis.rooflines))
    return columns


def _spare(columns: Sequence[_Column], order: Sort) -> tuple[int, ...]:
    """Places of the columns that can be left out, the least needed first; never the order's.

    Of equal columns the last device's goes first, since rows are by the first one's time.
    """
    names = [column.header.rpartition("\n")[2] for column in columns]
    kept = _ORDERED_BY.get(order)
    return tuple(
        place
        for spare in _SPARE
        for place, name in reversed(list(enumerate(names)))
        if name == spare and name != kept
    )


def _device_columns(place: int, device: str, devices: int) -> list[_Column]:
    def bound(row: Row) -> str:
        return row.times[place].bound

    def seconds(row: Row) -> str:
        value = row.times[place].seconds
        return "–" if value is None else units.duration(value)

    def share(row: Row) -> str:
        value = row.times[place].share
        return "–" if value is None else units.percent(value)

    above = f"{printable(device)}\n" if devices > 1 else ""
    columns = [
        _Column(f"{above}bound", bound, right=False),
        _Column(f"{above}time", seconds),
        _Column(f"{above}share", share),
    ]
    return columns if devices < 3 else columns[:2]


def _operator(row: Row) -> str:
    return units.truncate(printable(row.op_type), _WIDEST_OPERATOR)


def _amount(row: Row, value: int | None, written: Callable[[float | None], str]) -> str:
    """A count or size; "≥" when a part of a group is unknown, "≤" when only bounds are known."""
    if value is None:
        return units.UNKNOWN
    if row.is_lower_bound:
        return f"≥ {written(lower(value))}"
    return written(value) if is_exact(value) else f"≤ {written(upper(value))}"


def _intensity(row: Row) -> str:
    if row.flops is None or row.traffic_bytes is None:
        return units.UNKNOWN
    return units.intensity(row.arithmetic_intensity)


def _title(analysis: Analysis, shown: int, total: int, by: By, order: Sort) -> str:
    nouns = {By.KERNEL: "kernel", By.NODE: "node", By.OP_TYPE: "operator", By.SCOPE: "scope"}
    what = units.plural(total, nouns[by])
    what = what if shown == total else f"top {shown} of {what}"
    ordered = order.value
    if order is Sort.TIME and len(analysis.rooflines) > 1:
        ordered = f"time on {printable(analysis.rooflines[0].hardware.name)}"
    return f"{what}, by {ordered}"


def _footnote(analysis: Analysis, by: By) -> str:
    if by is By.KERNEL and len(analysis.plans) > 1:
        runtime = printable(analysis.kernels.runtime)
        devices = printable(", ".join(analysis.devices_of(analysis.kernels.runtime)))
        return f"Kernels, their counts and traffic are those of {runtime}, on {devices}."
    if by is By.KERNEL:
        return ""
    if not analysis.rooflines:
        return "Traffic is before fusion."
    return (
        "Traffic is before fusion. A fused kernel's time stands at its heaviest node: the other"
        " nodes of the kernel are marked fused."
    )
