"""Two analyses → what changed: figures, and kernels new, gone, slower or faster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof.compare.match import Item, match
from onnxroof.metrics import METRICS, kernel_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.compare.match import Pair
    from onnxroof.fusion.plan import Kernel
    from onnxroof.metrics import Metric

    Times = list[tuple[float, ...]]

COUNTED = (
    "macs", "flops", "parameters", "weight_bytes", "model_bytes", "traffic_bytes", "kernels",
    "peak_activation_bytes", "peak_memory_bytes",
)  # fmt: skip
"""Metrics of the model as such, in the order shown."""


class Change(Enum):
    """What happened to a kernel."""

    APPEARED = "new"
    VANISHED = "gone"
    SLOWER = "slower"
    FASTER = "faster"
    RENAMED = "renamed"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A metric before and after; None where it is not known.

    `devices` are the names of those whose runtime it holds for, none for a figure of the model.
    """

    metric: Metric
    before: float | None
    after: float | None
    devices: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """After over before; None where unknown or nothing was before."""
        if self.before is None or self.after is None or not self.before:
            return None
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel before and after.

    Attributes:
        change: What happened to it, on the first device; without one, by its work.
        name: Its name now, or the last it had.
        old_name: Its name before, "" if it is the same.
        op_type: Its operators, "before → after" where they differ.
        before: Seconds on each device; None where it was not.
        after: Seconds on each device; None where it is no more.
        work: FLOPs before and after.
    """

    change: Change
    name: str
    old_name: str
    op_type: str
    before: tuple[float, ...] | None
    after: tuple[float, ...] | None
    work: tuple[int, int]

    def difference(self, device: int) -> float:
        """Seconds more than before on a device."""
        before = self.before[device] if self.before is not None else 0.0
        after = self.after[device] if self.after is not None else 0.0
        return after - before


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that changed from one analysis to the other.

    Attributes:
        before: The one.
        after: The other, on the same devices.
        figures: Metrics of the model.
        latencies: Latency on each device.
        kernels: Every kernel of either, those with the largest difference first.
    """

    before: Analysis
    after: Analysis
    figures: tuple[FigureChange, ...]
    latencies: tuple[FigureChange, ...]
    kernels: tuple[KernelChange, ...]

    @property
    def changed(self) -> tuple[KernelChange, ...]:
        """The kernels that are not as before; new names alone do not count."""
        unchanged = (Change.SAME, Change.RENAMED)
        return tuple([kernel for kernel in self.kernels if kernel.change not in unchanged])

    def growth(self) -> float | None:
        """Largest growth of latency over the devices: 0.1 for a tenth; None without devices.

        Without devices, growth of the work in FLOPs.
        """
        watched = self.latencies or [f for f in self.figures if f.metric.name == "flops"]
        ratios = [change.ratio for change in watched if change.ratio is not None]
        return max(ratios) - 1 if ratios else None


def compare(before: Analysis, after: Analysis) -> Comparison:
    """Compare two analyses made for the same devices."""
    devices = range(len(after.rooflines))
    counted = [figure for name in COUNTED for figure in _figures(before, after, METRICS[name])]
    figures = tuple([figure for figure in counted if (figure.before, figure.after) != (None, None)])
    latency = METRICS["latency_seconds"]
    latencies = tuple(
        [
            FigureChange(latency, latency.of(before, device), latency.of(after, device))
            for device in devices
        ]
    )
    pairs = match(_items(before), _items(after))
    times = (_times(before), _times(after))
    kernels = [_kernel_change((before, after), times, pair) for pair in pairs]
    kernels.sort(key=_weight, reverse=True)
    return Comparison(before, after, figures, latencies, tuple(kernels))


def _figures(before: Analysis, after: Analysis, metric: Metric) -> list[FigureChange]:
    """The metric of the model, or of the kernels of every runtime that a device has."""
    if not metric.per_runtime or not after.rooflines:
        return [FigureChange(metric, metric.of(before, 0), metric.of(after, 0))]
    fusions = [result.plan.runtime for result in after.rooflines]
    return [
        FigureChange(
            metric, metric.of(before, device), metric.of(after, device),
            tuple(after.devices_of(fusion)),
        )
        for fusion in dict.fromkeys(fusions)
        for device in [fusions.index(fusion)]
    ]  # fmt: skip


def _weight(kernel: KernelChange) -> float:
    """How much a change matters: seconds on the first device, else FLOPs."""
    if kernel.before or kernel.after:
        return abs(kernel.difference(0))
    return float(abs(kernel.work[1] - kernel.work[0]))


def _items(analysis: Analysis) -> list[Item]:
    nodes = analysis.nodes
    return [
        Item(
            kernel.name,
            nodes[kernel.anchor].node.scope,
            nodes[kernel.anchor].op_type,
            (kernel.op_type, kernel.flops, kernel.traffic_bytes, _shape(analysis, kernel)),
        )
        for kernel in analysis.kernels.kernels
    ]


def _shape(analysis: Analysis, kernel: Kernel) -> tuple[int, ...] | None:
    outputs = analysis.nodes[kernel.nodes[-1]].call.outputs
    return outputs[0].shape if outputs else None


def _kernel_change(
    analyses: tuple[Analysis, Analysis], times: tuple[Times, Times], pair: Pair
) -> KernelChange:
    (before, after), (old, new) = analyses, pair
    was = before.kernels.kernels[old] if old is not None else None
    now = after.kernels.kernels[new] if new is not None else None
    seconds_before = times[0][old] if old is not None else None
    seconds_after = times[1][new] if new is not None else None
    work = (int(was.flops or 0) if was else 0, int(now.flops or 0) if now else 0)
    names = [kernel.name for kernel in (was, now) if kernel is not None]
    kinds = dict.fromkeys([kernel.op_type for kernel in (was, now) if kernel is not None])
    return KernelChange(
        _change(was, now, _first(seconds_before, work[0]), _first(seconds_after, work[1])),
        names[-1],
        names[0] if names[0] != names[-1] else "",
        " → ".join(kinds),
        seconds_before,
        seconds_after,
        work,
    )


def _times(analysis: Analysis) -> Times:
    """Seconds of each kernel on each device."""
    devices = [kernel_seconds(analysis, device) for device in range(len(analysis.rooflines))]
    kernels = range(len(analysis.kernels.kernels))
    return [tuple([seconds[at] for seconds in devices]) for at in kernels]


def _first(seconds: Sequence[float] | None, work: int) -> float:
    return seconds[0] if seconds else float(work)


def _change(was: Kernel | None, now: Kernel | None, before: float, after: float) -> Change:
    if was is None:
        return Change.APPEARED
    if now is None:
        return Change.VANISHED
    if not math.isclose(before, after, rel_tol=1e-9):
        return Change.SLOWER if after > before else Change.FASTER
    return Change.SAME if was.name == now.name else Change.RENAMED
