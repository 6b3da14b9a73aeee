"""HWD008."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import named
from onnxroof.lint.reading import device, timed
from onnxroof.lint.rule import Rule, Severity
from onnxroof.roofline import Bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding

_SHARE = 0.7
_FEWEST_KERNELS = 5


class ArithmeticWaitsForMemory(Rule):
    """Most of the time goes into traffic and launches: fewer FLOPs will not make it faster.

    ## Why it costs
    A network designed for few FLOPs has few FLOPs per byte. On a device with much arithmetic for
    its bandwidth its time is that of moving activations and weights, and a variant with half the
    FLOPs takes as long. FLOPs are the wrong thing to optimize here.

    ## Flagged
        # onnxroof lint --hw v100
        agraph (float[4096,4096] x) => (float[4096,4096] y)
        {
          a = Softmax (x)   b = Softmax<axis = 0> (a)   c = Softmax (b)
          d = Softmax<axis = 0> (c)   y = Softmax (d)
        }

    ## Clean
        # onnxroof lint --hw v100
        agraph (float[4096,4096] x) => (float[4096,4096] y)
        <float[4096,4096] w>
        {
          a = MatMul (x, w)   b = MatMul (a, w)   c = MatMul (b, w)
          d = MatMul (c, w)   y = MatMul (d, w)
        }

    ## What to do
    Reduce bytes: fewer and wider layers, narrower types, more fusion, a larger batch so that
    weights are read less often. Or take a device with less arithmetic for the money. The saving
    is the time beyond arithmetic: what remains if every byte were free.
    """

    code = "HWD008"
    name = "arithmetic-waits-for-memory"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen = device(analysis)
        kernels = list(timed(analysis))
        if chosen is None or chosen.is_lower_bound_of_plan or len(kernels) < _FEWEST_KERNELS:
            return
        shares = chosen.bound_shares
        waiting = shares[Bound.MEMORY] + shares[Bound.OVERHEAD]
        if waiting < _SHARE or shares[Bound.OVERHEAD] > shares[Bound.MEMORY]:
            return
        arithmetic = sum(time.compute_seconds or 0.0 for _, time in kernels)
        slowest = sorted(
            (pair for pair in kernels if pair[1].bound is not Bound.COMPUTE),
            key=lambda pair: -pair[1].seconds,
        )
        names = [kernel.name for kernel, _ in slowest]
        yield self.found(
            f"{units.percent(shares[Bound.MEMORY])} of the roofline bound is memory-bound,"
            f" {units.percent(shares[Bound.OVERHEAD])} overhead-bound; the arithmetic alone would"
            f" take {units.duration(arithmetic)} of its {units.duration(chosen.bound_seconds)}."
            f" Largest: {named(names)}",
            nodes=names[:10],
            seconds=chosen.bound_seconds - arithmetic,
            memory_bound_share=shares[Bound.MEMORY],
            overhead_bound_share=shares[Bound.OVERHEAD],
        )
