"""STR010."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.lint.reading import device, seconds_of
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding


class Float64Compute(Rule):
    """A kernel computes in fp64.

    ## Why it costs
    Twice the bytes of fp32 and half its rate, on consumer GPUs a 32nd or less; many accelerators
    have no fp64 at all. It is rarely meant: a Python float or a NumPy default leaked into the
    model.

    ## Flagged
        agraph (double[1,64] x) => (double[1,64] y)
        { y = Relu (x) }

    ## Clean
        agraph (float[1,64] x) => (float[1,64] y)
        { y = Relu (x) }

    ## What to do
    Convert the model to fp32 before the export (`model.float()` in PyTorch), and write literals
    with the dtype of the tensor they meet.
    """

    code = "STR010"
    name = "float64-compute"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen = device(analysis)
        for kernel in analysis.kernels.kernels:
            if kernel.compute_dtype is not DType.DOUBLE or not kernel.flops:
                continue
            traffic = kernel.traffic_bytes
            narrow = seconds_of(analysis, _in_fp32(kernel))
            seconds = None
            if chosen is not None and narrow is not None:
                seconds = max(chosen.kernels[kernel.index].seconds - narrow, 0.0)
            yield self.found(
                f"{kernel.op_type} {kernel.name} computes in fp64",
                nodes=[analysis.nodes[index].name for index in kernel.nodes],
                seconds=seconds,
                nbytes=None if traffic is None else traffic // 2,
            )


def _in_fp32(kernel: Kernel) -> Kernel:
    """The same kernel on tensors of half the size."""
    return replace(
        kernel,
        compute_dtype=DType.FLOAT,
        input_bytes=None if kernel.input_bytes is None else kernel.input_bytes // 2,
        weight_bytes=None if kernel.weight_bytes is None else kernel.weight_bytes // 2,
        output_bytes=None if kernel.output_bytes is None else kernel.output_bytes // 2,
    )
