"""A model's cost as a number, for search loops: `cost = CostFunction(...); cost(model)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.api import analyze, memo_for
from onnxroof.errors import UnsupportedOperatorError, UsageError
from onnxroof.hardware.profile import HardwareProfile
from onnxroof.hardware.read import load_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.graph.load import ModelSource
    from onnxroof.hardware.profile import PeakKind

    Number = float | int

METRICS: Mapping[str, Callable[[Analysis], Number]] = {
    "latency_seconds": lambda analysis: analysis.rooflines[0].latency_seconds,
    "traffic_bytes": lambda analysis: analysis.kernels.traffic_bytes,
    "peak_memory_bytes": lambda analysis: (
        analysis.memory.peak_activation_bytes + analysis.totals.weight_bytes
    ),
    "peak_activation_bytes": lambda analysis: analysis.memory.peak_activation_bytes,
    "flops": lambda analysis: analysis.totals.flops,
    "macs": lambda analysis: analysis.totals.macs,
    "parameters": lambda analysis: analysis.totals.parameters,
    "weight_bytes": lambda analysis: analysis.totals.weight_bytes,
}
"""What a cost function can return; all but latency_seconds are independent of the device."""


class CostFunction:
    """Prices candidates on one device: small is good.

    Deterministic, free of global state, picklable (without its memo) and safe to share between
    threads. Operators seen once, in any candidate, are not computed again.

    Args:
        hardware: Name of a shipped profile, path of a YAML file, or a `HardwareProfile`.
        metric: A key of `METRICS`, or several; with several a call returns a tuple.
        dims: Sizes of free dimensions, as for `analyze`.
        input_shapes: Whole input shapes, as for `analyze`.
        precision: As for `analyze`.
        runtime: Whose fusion rules to apply; None takes the profile's default.
        peak: "vendor" or "sustained" figures of the profile.
        strict: Raise where a cost would be a lower bound only, since a candidate with an
            uncounted operator would look cheap; False returns the lower bound.

    Raises:
        UsageError: A metric that does not exist.
        ProfileError: The profile is unknown or invalid.
    """

    def __init__(
        self,
        hardware: str | HardwareProfile,
        metric: str | Sequence[str] = "latency_seconds",
        *,
        dims: Mapping[str, int] | None = None,
        input_shapes: Mapping[str, Sequence[int]] | None = None,
        precision: str = "",
        runtime: str | None = None,
        peak: PeakKind = "vendor",
        strict: bool = True,
    ) -> None:
        self.hardware = (
            hardware if isinstance(hardware, HardwareProfile) else load_profile(hardware)
        )
        self.metrics = (metric,) if isinstance(metric, str) else tuple(metric)
        self._single = isinstance(metric, str)
        for name in self.metrics:
            if name not in METRICS:
                raise UsageError(f"metric {name!r} is not one of {', '.join(METRICS)}")
        self.dims = dict(dims or {})
        self.input_shapes = dict(input_shapes or {})
        self.precision = precision
        self.runtime = runtime
        self.peak = peak
        self.strict = strict
        self._memo = memo_for(precision)

    def __call__(self, model: ModelSource) -> Number | tuple[Number, ...]:
        """The metric of one candidate: a path, bytes or ModelProto.

        Raises:
            UnsupportedOperatorError: Under `strict`, when something could not be counted.
            ModelError, ShapeError: As `analyze`.
        """
        analysis = self.analyze(model)
        if self.strict:
            _refuse_gaps(analysis)
        values = tuple(METRICS[name](analysis) for name in self.metrics)
        return values[0] if self._single else values

    def analyze(self, model: ModelSource) -> Analysis:
        """The whole analysis of one candidate."""
        return analyze(
            model,
            self.hardware,
            dims=self.dims,
            input_shapes=self.input_shapes,
            precision=self.precision,
            runtime=self.runtime,
            peak=self.peak,
            memo=self._memo,
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_memo"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._memo = memo_for(self.precision)


def _refuse_gaps(analysis: Analysis) -> None:
    """Raise where totals are lower bounds."""
    unknown = analysis.coverage.unknown
    reasons = [f"{name} ({count}×): {reason}" for name, (count, reason) in unknown.items()]
    reasons += [f"{item.tensor}: {item.reason}" for item in analysis.unresolved[:5]]
    if reasons:
        raise UnsupportedOperatorError(tuple(unknown), reasons)
