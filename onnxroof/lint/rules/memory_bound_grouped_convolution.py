"""HWD002."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import CONVOLUTIONS, integer, seconds_of, timed
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding
    from onnxroof.roofline import KernelTime

_SHARE = 0.25
"""Time of a kernel's arithmetic over that of its traffic, below which it is reported."""


class MemoryBoundGroupedConvolution(Rule):
    """A depthwise or grouped convolution moves so many bytes that the arithmetic units wait.

    ## Why it costs
    With one input channel per output channel, every element loaded takes part in only k·k
    multiply-accumulates, instead of k·k·C. Its count of FLOPs is tiny, its time is that of reading
    and writing the activations, and often not much less than that of the dense convolution.

    ## Flagged
        # onnxroof lint --hw v100
        agraph (float[8,256,56,56] x) => (float[8,256,56,56] y)
        <float[256,1,3,3] w>
        { y = Conv<group = 256, pads = [1, 1, 1, 1]> (x, w) }

    ## Clean
        # onnxroof lint --hw v100
        agraph (float[8,256,56,56] x) => (float[8,256,56,56] y)
        <float[256,256,3,3] w>
        { y = Conv<pads = [1, 1, 1, 1]> (x, w) }

    ## What to do
    On this device, count bytes rather than FLOPs: fewer, wider layers, dense convolutions in the
    early stages (the fused inverted bottleneck), larger groups, or a runtime that fuses the
    depthwise with the pointwise convolution beside it. The saving is the time beyond its
    arithmetic, which such a fusion would save at most.
    """

    code = "HWD002"
    name = "memory-bound-grouped-convolution"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        for kernel, time in timed(analysis):
            node = analysis.nodes[kernel.anchor]
            group = integer(node, "group", 1)
            compute, memory = time.compute_seconds, time.memory_seconds
            if node.kind not in CONVOLUTIONS or group < 2 or compute is None or memory is None:
                continue
            if compute < _SHARE * memory:
                yield self._finding(analysis, (kernel, time), node, group)

    def _finding(
        self, analysis: Analysis, timing: tuple[Kernel, KernelTime], node: NodeCost, group: int
    ) -> Finding:
        kernel, time = timing
        compute, memory = time.compute_seconds or 0.0, time.memory_seconds or 0.0
        dense = seconds_of(analysis, _dense(kernel, group))
        return self.found(
            f"{node.name} in {group} groups does {units.intensity(time.arithmetic_intensity)}"
            f" FLOP/byte: its arithmetic takes {units.duration(compute)}, its traffic"
            f" {units.duration(memory)}; the dense convolution ({group} × the MACs) would take"
            f" {units.duration(dense)} instead of {units.duration(time.seconds)}",
            nodes=[node.name],
            seconds=memory - compute,
            nbytes=kernel.input_bytes,
            dense_seconds=dense if dense is not None else -1.0,
            kernel_seconds=time.seconds,
        )


def _dense(kernel: Kernel, group: int) -> Kernel:
    """The convolution with one group: so many times the multiply-accumulates and the weights."""
    macs = int(kernel.macs or 0)
    return replace(
        kernel,
        macs=macs * group,
        flops=None if kernel.flops is None else int(kernel.flops) + 2 * macs * (group - 1),
        weight_bytes=None if kernel.weight_bytes is None else kernel.weight_bytes * group,
    )
