"""HWD007."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.bounded import is_exact
from onnxroof.fusion.plan import KernelPlan
from onnxroof.lint.reading import device
from onnxroof.lint.rule import Rule, Severity
from onnxroof.roofline import Device, apply_roofline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding

_GAIN = 2.0
"""Throughput to be won, as a factor, from which it is worth a word."""
_NEAR = 0.9
"""The knee: the smallest batch that reaches this share of the best throughput."""
_LARGEST_FACTOR = 256
_FEWEST_MACS = 10**6


class BatchBelowKnee(Rule):
    """The batch is so small that reading the weights and starting kernels dominates.

    ## Why it costs
    Weights are read and kernels started once a batch, however large it is. Below the knee twice
    the batch takes hardly longer; beyond it throughput no longer grows. The rule speaks only where
    throughput could double, by the roofline bounds: a model may be below the knee of
    `onnxroof sweep`, which goes by expected times, and have less than that to win.

    ## Flagged
        # onnxroof lint --hw v100
        agraph (float[1,4096] x) => (float[1,4096] y)
        <float[4096,4096] w>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --hw v100
        agraph (float[512,4096] x) => (float[512,4096] y)
        <float[4096,4096] w>
        { y = MatMul (x, w) }

    ## What to do
    Collect requests into batches of the size named, if the application can wait that long. Where
    it cannot, weights in a narrower type help as much. The saving is per item: time of one run at
    this batch against its share of a run at the knee. Assumed: the first axis of every input is
    the batch, so that arithmetic and activations grow with it and weights do not.
    """

    code = "HWD007"
    name = "batch-below-knee"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        batch = _batch(analysis)
        chosen = device(analysis)
        if batch is None or chosen is None or chosen.is_lower_bound_of_plan:
            return
        if analysis.kernels.macs < _FEWEST_MACS * batch:
            return
        now, best = _per_item(analysis, 1), _per_item(analysis, _LARGEST_FACTOR)
        if now < _GAIN * best:
            return
        knee, at_knee = 1, now
        while best < _NEAR * at_knee:
            knee *= 2
            at_knee = _per_item(analysis, knee)
        yield self.found(
            f"at batch {batch} an item takes {units.duration(now / batch)}, at batch"
            f" {batch * knee} it would take {units.duration(at_knee / batch)}"
            f" ({now / at_knee:.1f} × the throughput)",
            seconds=(now - at_knee) / batch,
            batch=batch,
            knee_batch=batch * knee,
        )


def _batch(analysis: Analysis) -> int | None:
    """The first size all inputs share; None when they do not or control flow hides the rest."""
    sizes = {info.shape[0] if info.shape else 0 for info in analysis.inputs.values()}
    if len(sizes) != 1 or any(kernel.bodies for kernel in analysis.kernels.kernels):
        return None
    batch = sizes.pop()
    return batch if batch and is_exact(batch) else None


def _per_item(analysis: Analysis, factor: int) -> float:
    """Seconds of a run with so many times the batch, divided by that."""
    chosen = analysis.rooflines[0]
    larger = tuple(_larger(kernel, factor) for kernel in analysis.kernels.kernels)
    plan = KernelPlan(analysis.cost, analysis.kernels.runtime, larger, {})
    return apply_roofline(plan, Device(chosen.hardware, chosen.peak_kind)).latency_seconds / factor


def _larger(kernel: Kernel, factor: int) -> Kernel:
    return replace(
        kernel,
        macs=int(kernel.macs or 0) * factor,
        flops=int(kernel.flops or 0) * factor,
        transcendentals=int(kernel.transcendentals or 0) * factor,
        input_bytes=int(kernel.input_bytes or 0) * factor,
        output_bytes=int(kernel.output_bytes or 0) * factor,
    )
