"""The memory sections of a report: figures with their rules, budgets, what is alive over time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.bounded import lower, upper
from onnxroof.memory import check_budgets
from onnxroof.report.section import Section
from onnxroof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.memory import MemoryPlan, MemoryRow
    from onnxroof.memory.order import NodeOrder

_LONGEST_NAME = 32
_TIMELINE_LINES = 40
_BAR = 20


def memory_sections(
    analysis: Analysis, *, timeline: bool = False, order: NodeOrder | None = None
) -> Iterator[Section]:
    """The table always; budgets of the devices; the timeline and a better order where asked for."""
    plan = analysis.memory
    yield Section(
        "memory, every figure with its rule",
        rows=tuple([_figure(plan, row) for row in _rows(analysis)]),
        right=(False, True, True, False),
    )
    if order is not None:
        yield _order(order)
    if timeline:
        yield _timeline(plan)
    if analysis.rooflines:
        yield _budgets(analysis)


def _rows(analysis: Analysis) -> Iterator[MemoryRow]:
    """The table; where the devices' runtimes fuse differently, the peak after fusion of each."""
    several = len(analysis.memories) > 1
    for row in analysis.memory.table():
        if row.key != "fused" or not several:
            yield row
            continue
        for fusion, memory in analysis.memories.items():
            fused = memory.fused_row()
            devices = ", ".join(analysis.devices_of(fusion))
            yield replace(fused, rule=f"{fused.rule}, on {devices}")


def _figure(plan: MemoryPlan, row: MemoryRow) -> tuple[str, str, str, str]:
    """A row; sums over sizes that are not exactly known say which way they err."""
    at_least = plan.is_lower_bound and row.key != "weights"
    at_most = plan.is_upper_bound and row.key not in ("weights", "kv_cache")
    where = f", at {_name(row.where)}" if row.where else ""
    remark = printable(row.rule) + where
    if at_least and at_most:
        remark += "; sizes at their largest, unknown ones left out"
        return row.title, units.UNKNOWN, units.UNKNOWN, remark
    shown = lower(row.nbytes) if at_least else upper(row.nbytes)
    text = units.bounded(units.size(shown), at_least=at_least, at_most=at_most)
    return row.title, text, units.exact(shown), remark


def _name(name: str) -> str:
    return units.shorten(printable(name), _LONGEST_NAME)


_VERDICTS = {True: "fits", None: "cannot tell"}


def _budgets(analysis: Analysis) -> Section:
    """Level by level of each device: what it must hold, whether it does, what to cut."""
    several = len(analysis.rooflines) > 1
    rows: list[tuple[str, ...]] = []
    advice: dict[str, list[str]] = {}
    for place, result in enumerate(analysis.rooflines):
        device = f"{result.hardware.name} " if several else ""
        for budget in check_budgets(analysis.memory_on(place), reversed(result.hardware.memory)):
            level = printable(device + budget.level)
            sign = "at least " if budget.is_lower_bound else ""
            needed = f"{sign}{units.size(budget.needed_bytes)} of {budget.of}"
            verdict = _VERDICTS.get(budget.fits) or f"{units.size(budget.excess_bytes)} too much"
            rows.append((level, units.size(budget.capacity_bytes), verdict, needed))
            if budget.cut:
                advice.setdefault(printable(budget.cut), []).append(level)
    lines = [f"to fit {', '.join(levels)}: {cut}" for cut, levels in advice.items()]
    return Section(
        "memory levels as budgets",
        lines=tuple(lines) if rows else ("no capacity of a memory level is known",),
        headers=("level", "capacity", "verdict", "needed") if rows else (),
        rows=tuple(rows),
        right=(False, True, False, False),
    )


def _timeline(plan: MemoryPlan) -> Section:
    """A bar a step, or a stretch of steps; of a stretch the fullest step."""
    points = plan.timeline(_TIMELINE_LINES)
    most = max((point.live_bytes for point in points), default=0)
    stretched = any(point.last_step > point.first_step for point in points)
    what = "the fullest node of each stretch" if stretched else "node by node"
    return Section(
        f"activations alive over time, in file order, {what}",
        headers=("node", "step", "alive", "") if points else (),
        rows=tuple(
            (
                _name(point.label),
                _steps(point.first_step, point.last_step),
                units.size(point.live_bytes),
                "█" * round(_BAR * point.live_bytes / most) if most else "",
            )
            for point in points
        ),
        right=(False, True, True, False),
    )


def _steps(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def order_text(order: NodeOrder) -> str:
    """What another order of the nodes saves."""
    peak = units.size(order.peak_bytes)
    if not order.saved_bytes:
        reason = "no order has a lower one" if order.is_optimal else "no better order was found"
        return f"liveness peak {peak} in file order: {reason}"
    how = "proved best" if order.is_optimal else f"{order.method}, not proved best"
    return (
        f"liveness peak {peak} instead of {units.size(order.file_peak_bytes)}, saves "
        f"{units.size(order.saved_bytes)} ({how})"
    )


def _order(order: NodeOrder) -> Section:
    """The saving, and the order by positions in the file."""
    runs = ", ".join(_steps(first, last) for first, last in order.runs())
    lines = (order_text(order), f"nodes by index, as they should run: {runs}")
    return Section("better order", lines if order.saved_bytes else lines[:1])
