"""HWD006."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import device, timed
from onnxroof.lint.rule import Rule, Severity
from onnxroof.roofline import Bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding

_SHARE = 0.25
_TINY_SHARE = 0.1
"""Share of the time that launching the overhead-bound kernels takes, to be worth a word."""
_FEWEST_KERNELS = 20


class LaunchBoundModel(Rule):
    """Many tiny kernels: a large part of the time goes into starting them.

    ## Why it costs
    A device needs microseconds between two kernels. Deep and thin networks launch hundreds of
    kernels that compute for less than that; making each of them cheaper changes nothing.

    ## Flagged
        # onnxroof lint --hw v100
        agraph (float[1,256] x) => (float[1,256] y)
        <float[256,256] w>
        {
          a0 = MatMul (x, w)   b0 = Softmax (a0)   a1 = MatMul (b0, w)   b1 = Softmax (a1)
          a2 = MatMul (b1, w)  b2 = Softmax (a2)   a3 = MatMul (b2, w)   b3 = Softmax (a3)
          a4 = MatMul (b3, w)  b4 = Softmax (a4)   a5 = MatMul (b4, w)   b5 = Softmax (a5)
          a6 = MatMul (b5, w)  b6 = Softmax (a6)   a7 = MatMul (b6, w)   b7 = Softmax (a7)
          a8 = MatMul (b7, w)  b8 = Softmax (a8)   a9 = MatMul (b8, w)   y = Softmax (a9)
        }

    ## Clean
        # onnxroof lint --hw v100
        agraph (float[4096,4096] x) => (float[4096,4096] y)
        <float[4096,4096] w>
        {
          a = MatMul (x, w)
          y = Softmax (a)
        }

    ## What to do
    Make the network wider and shallower, raise the batch, fuse (a compiler, a CUDA graph). The
    saving is all launch overhead of the kernels that spend most of their time on it.
    """

    code = "HWD006"
    name = "launch-bound-model"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen = device(analysis)
        kernels = analysis.kernels.kernels
        if chosen is None or len(kernels) < _FEWEST_KERNELS or not chosen.bound_seconds:
            return
        overhead = sum(time.overhead_seconds for _, time in timed(analysis))
        share = overhead / chosen.bound_seconds
        tiny = [kernel for kernel, time in timed(analysis) if time.bound is Bound.OVERHEAD]
        saving = sum(chosen.kernels[kernel.index].overhead_seconds for kernel in tiny)
        if share < _SHARE or saving < _TINY_SHARE * chosen.bound_seconds:
            return
        yield self.found(
            f"starting {units.plural(len(kernels), 'kernel')} takes {units.duration(overhead)},"
            f" {units.percent(share)} of the roofline bound; {len(tiny)} of them work for less than"
            " their launch takes",
            nodes=[kernel.name for kernel in tiny],
            seconds=saving,
            overhead_share=share,
            kernels=len(kernels),
            overhead_bound_kernels=len(tiny),
        )
