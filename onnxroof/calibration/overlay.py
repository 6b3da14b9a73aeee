"""`onnxroof overlay`: measured times laid over expected ones, kernel by kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.calibration.match import match
from onnxroof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.calibration.match import Group
    from onnxroof.calibration.traces import Entry, Trace

_MOST_MISMATCHES = 0.5
"""Share of matched entries whose outputs have other sizes than ours before that is said; blocked
layouts pad channels, so some always have."""


class OverlaySort(Enum):
    """What rows are ordered by."""

    LOST = "lost"
    MEASURED = "measured"
    ERROR = "error"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Row:
    """Work that was measured.

    Attributes:
        name: Its heaviest kernel.
        op_type: Operators of its kernels.
        measured_names: What the runtime calls it.
        kernels: How many of our kernels it is.
        by_order: Found by operator and order, not by name.
        measured_seconds: Time in a run.
        expected_seconds: What was predicted.
        bound_seconds: The roofline bound.
        bound: The term that bounds its heaviest kernel.
    """

    name: str
    op_type: str
    measured_names: tuple[str, ...]
    kernels: int
    by_order: bool
    measured_seconds: float
    expected_seconds: float
    bound_seconds: float
    bound: str

    @property
    def share_of_roof(self) -> float | None:
        """Bound over measured time: 1 is the roof, more means that figures are wrong somewhere."""
        return self.bound_seconds / self.measured_seconds if self.measured_seconds else None

    @property
    def lost_seconds(self) -> float:
        """Time beyond the bound."""
        return self.measured_seconds - self.bound_seconds

    @property
    def error(self) -> float | None:
        """Expected over measured time, less one."""
        if not self.measured_seconds:
            return None
        return self.expected_seconds / self.measured_seconds - 1


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A measured entry that is no kernel of the plan."""

    name: str
    op_type: str
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A kernel that the trace does not have."""

    name: str
    op_type: str
    expected_seconds: float


@dataclass(frozen=True, slots=True)
class Overlay:
    """A trace over an analysis.

    Attributes:
        model: The model's file or name.
        hardware: Name of the device's profile.
        trace: What was read.
        rows: What was matched, in the order asked for.
        unmatched: Measured and no kernel of ours, the longest first. Never dropped.
        unmeasured: Kernels without a measurement, the longest first.
        latency_seconds: Expected time of the whole model.
        bound_seconds: Its roofline bound.
        notes: What to mind, in sentences.
    """

    model: str
    hardware: str
    trace: Trace
    rows: tuple[Row, ...]
    unmatched: tuple[Unmatched, ...]
    unmeasured: tuple[Unmeasured, ...]
    latency_seconds: float
    bound_seconds: float
    notes: tuple[str, ...]

    @property
    def measured_seconds(self) -> float:
        """Everything measured."""
        return self.trace.seconds

    @property
    def matched_seconds(self) -> float:
        """What of it was matched."""
        return sum(row.measured_seconds for row in self.rows)

    @property
    def weighted_error(self) -> float | None:
        """Sum of the rows' |expected − measured| over their measured time."""
        if not self.matched_seconds:
            return None
        off = sum(abs(row.expected_seconds - row.measured_seconds) for row in self.rows)
        return off / self.matched_seconds


def overlay(analysis: Analysis, trace: Trace, sort: OverlaySort = OverlaySort.LOST) -> Overlay:
    """Lay a trace over an analysis with one device.

    Raises:
        UsageError: The analysis has no device, or several.
    """
    if len(analysis.rooflines) != 1:
        raise UsageError("a trace was made on one device: give one --hw")
    result = analysis.rooflines[0]
    plan = analysis.kernels
    found = match(trace.entries, plan)
    rows = [_row(analysis, trace.entries, group) for group in found.groups]
    unmatched = [
        Unmatched(entry.name, entry.op_type, entry.seconds, reason)
        for place, reason in found.unmatched
        for entry in (trace.entries[place],)
    ]
    unmeasured = [
        Unmeasured(plan.kernels[k].name, plan.kernels[k].op_type, result.kernel_seconds[k])
        for k in found.unmeasured
    ]
    return Overlay(
        model=analysis.model.path or analysis.model.graph.name or "model in memory",
        hardware=result.hardware.name,
        trace=trace,
        rows=tuple(_sorted(rows, sort)),
        unmatched=tuple(sorted(unmatched, key=lambda item: -item.seconds)),
        unmeasured=tuple(sorted(unmeasured, key=lambda item: -item.expected_seconds)),
        latency_seconds=result.latency_seconds,
        bound_seconds=result.bound_seconds,
        notes=tuple(_notes(analysis, trace.entries, found.groups, rows)),
    )


def _row(analysis: Analysis, entries: Sequence[Entry], group: Group) -> Row:
    result, plan = analysis.rooflines[0], analysis.kernels
    seconds = result.kernel_seconds
    heaviest = max(group.kernels, key=lambda kernel: seconds[kernel])
    kinds = dict.fromkeys(plan.kernels[kernel].op_type for kernel in group.kernels)
    return Row(
        name=plan.kernels[heaviest].name,
        op_type=", ".join(kinds),
        measured_names=tuple(entries[entry].name for entry in group.entries),
        kernels=len(group.kernels),
        by_order=group.by_order,
        measured_seconds=sum(entries[entry].seconds for entry in group.entries),
        expected_seconds=sum(seconds[kernel] for kernel in group.kernels),
        bound_seconds=sum(result.kernels[kernel].seconds for kernel in group.kernels),
        bound=result.kernel_bounds[heaviest].value,
    )


def _sorted(rows: Sequence[Row], sort: OverlaySort) -> list[Row]:
    if sort is OverlaySort.LOST:
        return sorted(rows, key=lambda row: -row.lost_seconds)
    if sort is OverlaySort.MEASURED:
        return sorted(rows, key=lambda row: -row.measured_seconds)
    if sort is OverlaySort.ERROR:
        return sorted(rows, key=lambda row: -abs(row.expected_seconds - row.measured_seconds))
    return list(rows)


def _notes(
    analysis: Analysis, entries: Sequence[Entry], groups: Sequence[Group], rows: Sequence[Row]
) -> list[str]:
    notes = []
    compared, differing = _sizes(analysis, entries, groups)
    if differing > _MOST_MISMATCHES * max(compared, 1):
        notes.append(
            f"{differing} of {compared} measured outputs have other sizes than here: the trace was"
            " made at other dimensions; bind the same with --dim or --input"
        )
    above = sum(1 for row in rows if (row.share_of_roof or 0) > 1)
    if above:
        notes.append(
            f"{above} of {len(rows)} rows are faster than their bound: the trace is of another"
            " device or other sizes, its data stay in a cache, or a faster algorithm was used"
        )
    return notes


def _sizes(
    analysis: Analysis, entries: Sequence[Entry], groups: Sequence[Group]
) -> tuple[int, int]:
    """(entries whose output size is known on both sides, those that differ)."""
    plan = analysis.kernels
    compared = differing = 0
    for group in groups:
        ours = {
            int(upper(math.prod(info.shape)))
            for kernel in group.kernels
            for node in plan.kernels[kernel].nodes
            for info in plan.cost.nodes[node].call.outputs
            if info.shape is not None
        }
        for entry in group.entries:
            elements = entries[entry].elements
            if elements is not None and ours:
                compared += 1
                differing += elements not in ours
    return compared, differing
