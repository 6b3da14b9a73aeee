"""FUS003."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import device, kernel_by_node
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.plan import FusionMiss, Kernel
    from onnxroof.lint.rule import Finding


class MissedFusion(Rule):
    """Nodes look like a pattern the runtime fuses, but something stands in the way.

    ## Why it costs
    What is not fused writes its result to memory and reads it back, and costs a launch of its own.

    ## Flagged
        # onnxroof lint --runtime tflite
        agraph (float[1,3,8,8] x, float low) => (float[1,4,6,6] y)
        <float[4,3,3,3] w>
        {
          c = Conv (x, w)
          y = Clip (c, low)
        }

    ## Clean
        # onnxroof lint --runtime tflite
        agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] w, float low = {0.0}>
        {
          c = Conv (x, w)
          y = Clip (c, low)
        }

    ## What to do
    Remove what the message names: give bounds as constants, let a tensor have one reader, move a
    Reshape out of the pattern, do not make an intermediate result a graph output.
    """

    code = "FUS003"
    name = "missed-fusion"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        kernels = kernel_by_node(analysis)
        seen: set[tuple[int, ...]] = set()
        for miss in analysis.kernels.misses:
            ends = (miss.nodes[0], miss.nodes[-1])
            if ends in seen or _has_its_own_rule(analysis, miss):
                continue
            seen.add(ends)
            apart = {kernels[i].index: kernels[i] for i in miss.nodes if i in kernels}
            if len(apart) > 1:
                yield self._finding(analysis, miss, len(apart), _between(kernels, miss))

    def _finding(self, analysis: Analysis, miss: FusionMiss, apart: int, nbytes: int) -> Finding:
        chosen = device(analysis)
        seconds = None
        if chosen is not None:
            hardware = chosen.hardware
            bandwidth = hardware.bandwidth_bytes_per_second(chosen.peak_kind)
            seconds = nbytes / bandwidth + hardware.kernel_overhead_seconds * (apart - 1)
        return self.found(
            f"{miss.name} is not fused by rule {miss.rule}: {miss.reason}",
            nodes=[analysis.nodes[index].name for index in miss.nodes],
            seconds=seconds,
            nbytes=nbytes,
            rule=miss.rule,
        )


def _has_its_own_rule(analysis: Analysis, miss: FusionMiss) -> bool:
    """BatchNormalization, and x · sigmoid(x), whose sigmoid shares the tensor by its nature."""
    types = [analysis.nodes[index].kind for index in miss.nodes]
    return "BatchNormalization" in types or types[-1] in ("Sigmoid", "Tanh", "Erf")


def _between(kernels: Mapping[int, Kernel], miss: FusionMiss) -> int:
    """Bytes of what passes between the two, written once and read once."""
    before = [kernels[index] for index in miss.nodes[:-1] if index in kernels]
    return 2 * int(before[-1].output_bytes or 0) if before else 0
