"""Model + budgets → answers: within, exceeds (by how much, and what to look at), cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.api import analyze
from onnxroof.bounded import lower, upper
from onnxroof.budgets.records import Answer, BudgetReport, Check, Culprit
from onnxroof.cost import Role
from onnxroof.metrics import kernel_seconds
from onnxroof.units import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.api import Hardware
    from onnxroof.budgets.records import Budget, Limit
    from onnxroof.builder import GraphBuilder
    from onnxroof.cost import Weight
    from onnxroof.graph.load import ModelSource
    from onnxroof.hardware.profile import PeakKind

    Parts = list[tuple[str, str, float]]

MOST_CULPRITS = 5
"""Kernels, tensors or weights named for a limit that is exceeded."""


def check_budgets(
    model: ModelSource | GraphBuilder, budgets: Sequence[Budget], operators: str | None = None
) -> BudgetReport:
    """Answer every limit of every budget.

    Args:
        model: As for `analyze`.
        budgets: What it may cost, where.
        operators: YAML file of operators, as for `analyze`.

    Raises:
        OnnxroofError: As `analyze`: the model, its dimensions or a profile are at fault.
    """
    checks: list[Check] = []
    assumptions: dict[str, tuple[str, ...]] = {}
    for budget in budgets:
        analysis = _analysis(model, budget, operators)
        assumptions[budget.name] = analysis.assumptions
        checks += [_check(analysis, budget, limit) for limit in budget.limits]
    name = model if isinstance(model, str) else getattr(model, "name", "") or "model in memory"
    return BudgetReport(str(name), tuple(checks), assumptions)


def _analysis(model: ModelSource | GraphBuilder, budget: Budget, operators: str | None) -> Analysis:
    hardware: Sequence[Hardware] = (budget.hardware,) if budget.hardware else ()
    peak: PeakKind = "sustained" if budget.peak == "sustained" else "vendor"
    return analyze(
        model, hardware, dims=budget.dims, input_shapes=budget.input_shapes,
        precision=budget.precision, runtime=budget.runtime, peak=peak, threads=budget.threads,
        operators=operators,
    )  # fmt: skip


def _check(analysis: Analysis, budget: Budget, limit: Limit) -> Check:
    value = limit.metric.of(analysis, 0)
    gaps = _gaps(analysis, limit)
    if value is None:
        unknown = ("the model is in no file, or a size in it is not known",)
        return Check(budget, limit, None, Answer.CANNOT_TELL, unknown=unknown)
    if analysis.totals.per_trip and limit.metric.name not in _OF_ONE_TRIP:
        return Check(
            budget, limit, _upper(value), Answer.CANNOT_TELL,
            unknown=("how often a loop runs, which is computed at run time",),
            exactness="per trip",
        )  # fmt: skip
    low, high = _interval(analysis, limit, value, has_gaps=bool(gaps))
    answer = _answer(low, high, limit)
    shown, exactness = _shown(answer, low, high, limit)
    if answer is Answer.CANNOT_TELL:
        missing = gaps or _bounded(analysis)
        return Check(budget, limit, shown, answer, unknown=missing, exactness=exactness)
    culprits = _culprits(analysis, limit.metric.name) if answer is Answer.EXCEEDS else ()
    return Check(budget, limit, shown, answer, culprits, exactness=exactness)


_OF_ONE_TRIP = frozenset(
    {"parameters", "model_bytes", "kernels", "peak_memory_bytes", "peak_activation_bytes"}
)
"""Metrics that do not grow with the trips of a loop."""


def _shown(answer: Answer, low: float, high: float | None, limit: Limit) -> tuple[float, str]:
    """The end of the interval that gives the answer, or leaves it open, and what it is."""
    if high is not None and low == high:
        return low, "exact"
    is_high = (answer is Answer.EXCEEDS) == limit.at_least
    if answer is Answer.CANNOT_TELL:
        is_high = high is not None
    return (high, "at most") if is_high and high is not None else (low, "at least")


def _interval(
    analysis: Analysis, limit: Limit, value: float, *, has_gaps: bool
) -> tuple[float, float | None]:
    """Where the figure lies: what is not counted adds to it, and takes from throughput.

    Times of sizes that are only bounded are those of the largest.
    """
    at_largest = limit.metric.per_device and analysis.rooflines[0].at_upper_bounds
    if limit.metric.name == "throughput":
        return (0 if has_gaps else value), (None if at_largest else value)
    return (0 if at_largest else _lower(value)), (None if has_gaps else _upper(value))


def _answer(low: float, high: float | None, limit: Limit) -> Answer:
    amount = limit.amount
    if limit.at_least:
        missed = high is not None and high < amount
        kept = low >= amount
    else:
        missed = low > amount
        kept = high is not None and high <= amount
    if missed:
        return Answer.EXCEEDS
    return Answer.WITHIN if kept else Answer.CANNOT_TELL


def _upper(value: float) -> float:
    return upper(value) if isinstance(value, int) else value


def _lower(value: float) -> float:
    return lower(value) if isinstance(value, int) else value


def _gaps(analysis: Analysis, limit: Limit) -> tuple[str, ...]:
    """What is missing from the figure."""
    name = limit.metric.name
    if name in {"parameters", "model_bytes", "kernels"}:
        return ()
    reasons = [f"{operator} ({count}×): {why}" for operator, (count, why) in _unknown(analysis)]
    if name in {"peak_memory_bytes", "peak_activation_bytes"}:
        reasons = []
        if analysis.memory.unknown:
            reasons = [f"size of {tensor}" for tensor in analysis.memory.unknown]
    if limit.metric.per_device:
        result = analysis.rooflines[0]
        missing = [time for time in result.kernels if time.compute_seconds is None]
        if missing and not reasons:
            kernels = analysis.kernels.kernels
            reasons = [f"time of {kernels[time.kernel].name}" for time in missing]
    return tuple(map(printable, reasons))


def _unknown(analysis: Analysis) -> Iterable[tuple[str, tuple[int, str]]]:
    return sorted(analysis.coverage.unknown.items())


def _bounded(analysis: Analysis) -> tuple[str, ...]:
    names = analysis.data_dependent
    return tuple(printable(f"size {name}, which depends on the data (--dim)") for name in names)


def _culprits(analysis: Analysis, metric: str) -> tuple[Culprit, ...]:
    """The largest parts of a figure, largest first."""
    parts = [part for part in _PARTS[metric](analysis) if part[2]]
    whole = sum(part[2] for part in parts)
    largest = sorted(parts, key=lambda part: -part[2])[:MOST_CULPRITS]
    return tuple(
        [Culprit(printable(name), what, amount, amount / whole) for name, what, amount in largest]
    )


def _kernel_seconds(analysis: Analysis) -> Parts:
    times = kernel_seconds(analysis, 0)
    return [
        (kernel.name, kernel.op_type, seconds)
        for kernel, seconds in zip(analysis.kernels.kernels, times, strict=True)
    ]


def _kernel_bytes(analysis: Analysis) -> Parts:
    return [(k.name, k.op_type, upper(k.traffic_bytes or 0)) for k in analysis.kernels.kernels]


def _kernels(analysis: Analysis) -> Parts:
    counts: dict[str, int] = {}
    for kernel in analysis.kernels.kernels:
        counts[kernel.op_type] = counts.get(kernel.op_type, 0) + 1
    return [(op_type, "kernels", count) for op_type, count in counts.items()]


def _activations(analysis: Analysis) -> Parts:
    step = analysis.memory.peak_node
    where = f"alive at {step.label}" if step is not None else "alive"
    return [(item.name, where, item.nbytes) for item in analysis.memory.peak_tensors]


def _weights(analysis: Analysis) -> Parts:
    return [
        (name, what, weight.stored_bytes or 0) for name, what, weight in _read_weights(analysis)
    ]


def _parameters(analysis: Analysis) -> Parts:
    return [(name, what, weight.parameters) for name, what, weight in _read_weights(analysis)]


def _read_weights(analysis: Analysis) -> Iterable[tuple[str, str, Weight]]:
    """Each weight with the layer that reads it first, which people know it by."""
    readers: dict[str, str] = {}
    for node in reversed(analysis.nodes):
        readers.update(dict.fromkeys(node.node.inputs, node.name))
    for weight in analysis.cost.weights:
        if weight.role is Role.WEIGHT:
            name = weight.constant.name
            yield readers.get(name, name), f"weight {name}", weight


def _memory(analysis: Analysis) -> Parts:
    return _activations(analysis) + _weights(analysis)


_PARTS: Mapping[str, Callable[[Analysis], Parts]] = {
    "latency_seconds": _kernel_seconds,
    "throughput": _kernel_seconds,
    "traffic_bytes": _kernel_bytes,
    "kernels": _kernels,
    "peak_memory_bytes": _memory,
    "peak_activation_bytes": _activations,
    "flops": lambda a: [(n.name, n.op_type, upper(n.flops or 0)) for n in a.nodes],
    "macs": lambda a: [(n.name, n.op_type, upper(n.macs or 0)) for n in a.nodes],
    "parameters": _parameters,
    "model_bytes": _weights,
}
"""What makes up each metric: (name, what it is, amount)."""
