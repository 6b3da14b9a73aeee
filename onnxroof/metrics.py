"""The figures of a model that searches minimize, budgets limit and comparisons show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import UsageError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxroof.analysis import Analysis

    Number = float | int


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure.

    Attributes:
        name: With its unit: "latency_seconds".
        title: In words.
        of: Takes an analysis and the number of the device; None where it is not known.
        shown: How people read it.
        per_device: Whether it is a figure of a device.
        per_runtime: Whether it is one of a runtime's kernels: of the device's runtime, where there
            is a device.
    """

    name: str
    title: str
    of: Callable[[Analysis, int], Number | None]
    shown: Callable[[float | None], str]
    per_device: bool = False
    per_runtime: bool = False


def exactness(analysis: Analysis) -> str:
    """What the totals are: "exact", "at least", "at most", or "per trip".

    Of loops whose number of trips only a run tells one trip is counted; where something is unknown
    totals are lower bounds, where only bounds of a size are known upper ones.
    """
    sums = analysis.totals
    if sums.per_trip:
        return "per trip"
    return "at least" if sums.is_lower_bound else "at most" if sums.is_upper_bound else "exact"


def kernel_seconds(analysis: Analysis, device: int) -> tuple[float, ...]:
    """Time of each kernel on a device, which together are its latency."""
    placed = analysis.rooflines[device].at_kernels_of(analysis.kernels)
    return tuple([0.0 if entry is None else entry[0] for entry in placed])


def _latency(analysis: Analysis, device: int) -> float:
    return analysis.rooflines[device].latency_seconds


def _throughput(analysis: Analysis, device: int) -> float:
    seconds = _latency(analysis, device)
    return batch_size(analysis) / seconds if seconds else 0.0


def batch_size(analysis: Analysis) -> int:
    """Samples of one run: the leading dimension of the first input, 1 for a model without."""
    first = next(iter(analysis.inputs.values()), None)
    return int(first.shape[0]) if first is not None and first.shape else 1


def _model_bytes(analysis: Analysis) -> int | None:
    """Bytes to ship: the file and the external data it refers to.

    External data are counted by what the graph stores in them, since the files need not be there.
    """
    model = analysis.model
    if not model.external_files:
        return model.file_bytes or None
    outside = 0
    for weight in analysis.cost.weights:
        payload = weight.constant.payload
        if payload is None or payload.file is None:
            continue
        if weight.stored_bytes is None:
            return None
        outside += weight.stored_bytes
    return model.file_bytes + outside


_ALL = (
    Metric("latency_seconds", "latency", _latency, units.duration, per_device=True),
    Metric(
        "bound_seconds", "roofline bound",
        lambda a, device: a.rooflines[device].bound_seconds, units.duration, per_device=True,
    ),
    Metric(
        "throughput", "throughput", _throughput, lambda n: units.rate(n, "samples/s"),
        per_device=True,
    ),
    Metric(
        "peak_memory_bytes", "peak memory (weights and activations)",
        lambda a, _: a.memory.peak_activation_bytes + a.memory.weight_bytes, units.size,
    ),
    Metric(
        "peak_activation_bytes", "peak memory (activations)",
        lambda a, _: a.memory.peak_activation_bytes, units.size,
    ),
    Metric(
        "traffic_bytes", "memory traffic",
        lambda a, device: a.kernels_on(device).traffic_bytes, units.size, per_runtime=True,
    ),
    Metric("flops", "FLOPs", lambda a, _: a.totals.flops, lambda n: units.count(n, "FLOP")),
    Metric("macs", "MACs", lambda a, _: a.totals.macs, lambda n: units.count(n, "MAC")),
    Metric("parameters", "parameters", lambda a, _: a.totals.parameters, units.count),
    Metric("weight_bytes", "weights", lambda a, _: a.totals.weight_bytes, units.size),
    Metric("model_bytes", "model size", lambda a, _: _model_bytes(a), units.size),
    Metric(
        "kernels", "kernels", lambda a, device: len(a.kernels_on(device).kernels),
        lambda n: f"{n or 0:,.0f}", per_runtime=True,
    ),
)  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""Every metric by name. All but `throughput` are better when smaller."""


def find_metric(name: str) -> Metric:
    """The metric of this name. Raises UsageError, listing the names, for an unknown one."""
    metric = METRICS.get(name)
    if metric is None:
        raise UsageError(f"metric {quoted(name)} is not one of {', '.join(METRICS)}")
    return metric
