"""WGT001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.graph.types import DType
from onnxroof.lint.reading import device, kernel_of, labels, uses
from onnxroof.lint.rule import Severity, WeightRule
from onnxroof.roofline import compute_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import Measured, WeightValues

_TRAPPING = frozenset({DType.FLOAT, DType.DOUBLE, DType.BFLOAT16})
"""Types whose subnormal numbers trap. Those of fp16 begin at 6e-5, are normal in fp32, where CPUs
compute them, and run at full speed where fp16 has units of its own."""
_TINY_SHARE = 0.01
"""Share of tiny normal weights from which their products are worth a word."""


@dataclass(frozen=True, slots=True)
class _Delay:
    """Seconds added by subnormal numbers, at least and at most, and the kernel's own time."""

    least: float
    most: float
    seconds: float

    def text(self) -> str:
        if self.most < 0.05 * self.seconds:
            return "hardly slower"
        least, most = 1 + self.least / self.seconds, 1 + self.most / self.seconds
        if most < 1.1 * least:
            return f"about {units.significant(least, 2)} times slower"
        return f"{units.significant(least, 2)} to {units.significant(most, 2)} times slower"


class DenormalWeights(WeightRule):
    """Weights are subnormal numbers, which some processors compute a hundred times slower.

    ## Why it costs
    A subnormal (denormal) number is nonzero and smaller than the smallest normal one, 1.18e-38 in
    fp32. Training with weight decay drives the weights of unused channels down there. Many
    processors hand every vector instruction that meets one to microcode, which takes about 150
    cycles instead of half a cycle: the same network is 5 to 50 times slower than with random
    weights, and no profiler shows why. Weights below 1e-30 do the same without being subnormal
    themselves, because their products with small activations are.

    The expected slowdown is a range. At least: subnormal weights stand together, so that only
    their own share of the vector instructions is slow. At most: they are scattered, so that an
    instruction with L lanes is slow with probability 1 − (1 − share)^L.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,4] x) => (float[1,4] y)
        <float[4,4] w = {1e-40, 1e-40, 0.3, 0.4, 1e-40, 0.1, 0.7, 0.2,
                         0.5, 1e-41, 0.6, 0.8, 0.9, 0.15, 0.25, 0.35}>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,4] x) => (float[1,4] y)
        <float[4,4] w = {0.0, 0.0, 0.3, 0.4, 0.0, 0.1, 0.7, 0.2,
                         0.5, 0.0, 0.6, 0.8, 0.9, 0.15, 0.25, 0.35}>
        { y = MatMul (x, w) }

    ## What to do
    Set weights below about 1e-30 to zero before export: no output changes. Or let the runtime
    flush subnormal numbers to zero (in ONNX Runtime the session option
    `session.set_denormal_as_zero`). Look at channels that are zero afterwards: they can go.
    """

    code = "WGT001"
    name = "denormal-weights"
    severity = Severity.WARNING
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        for item in values.measured:
            seen = item.statistics
            if item.constant.dtype not in _TRAPPING:
                continue
            if not seen.subnormals and seen.share(seen.tiny) < _TINY_SHARE:
                continue
            read_by = readers.get(item.constant.identity, [])
            within = {
                kernel.index: kernel
                for node, _ in read_by
                if (kernel := kernel_of(analysis, node)) is not None
            }
            yield self._finding(analysis, item, tuple(within.values()), labels(read_by))

    def _finding(
        self,
        analysis: Analysis,
        item: Measured,
        kernels: tuple[Kernel, ...],
        nodes: tuple[str, ...],
    ) -> Finding:
        seen = item.statistics
        share = seen.share(seen.subnormals)
        said = (
            f"{seen.subnormals:,} of {seen.elements:,} values ({units.percent(share)}) are"
            " subnormal"
        )
        if seen.tiny:
            said += f"; another {seen.tiny:,} below 1e-30, so that products may be subnormal"
        delay = _delay(analysis, kernels, share)
        said += _expectation(analysis, delay)
        return self.found(
            said, nodes=nodes, tensors=[item.constant.name],
            seconds=None if delay is None else delay.least,
            tensor=item.constant.name, count=seen.subnormals, fraction=share, tiny_count=seen.tiny,
        )  # fmt: skip


def _expectation(analysis: Analysis, delay: _Delay | None) -> str:
    chosen = device(analysis)
    if chosen is None:
        return ""
    name, penalty = chosen.hardware.name, chosen.hardware.denormal_penalty_seconds
    if penalty is None:
        return f"; whether {name} slows down on them is not known"
    if not penalty:
        return f"; {name} computes or flushes them at full speed"
    if delay is None:
        return f"; {name} traps on them, by how much is not known"
    return f"; {name} traps on them: expect its kernel to be {delay.text()}"


def _delay(analysis: Analysis, kernels: tuple[Kernel, ...], share: float) -> _Delay | None:
    """Time lost to subnormal numbers: slow instructions · penalty ÷ cores."""
    chosen = device(analysis)
    penalty = None if chosen is None else chosen.hardware.denormal_penalty_seconds
    if chosen is None or penalty is None or not kernels:
        return None
    if not penalty:
        return _Delay(0.0, 0.0, 1.0)
    least = most = seconds = 0.0
    for kernel in kernels:
        label = compute_type(kernel.compute_dtype)
        lanes = chosen.hardware.vector_engine.channel_multiple(label)
        if not lanes or not kernel.macs:
            return None
        instructions = kernel.macs / lanes
        unit = penalty / (chosen.hardware.threads or 1)
        least += instructions * share * unit
        most += instructions * (1 - (1 - share) ** lanes) * unit
        seconds += chosen.kernels[kernel.index].seconds
    return _Delay(least, most, seconds) if seconds else None
