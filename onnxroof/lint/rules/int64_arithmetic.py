"""STR011."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.lint.reading import device, output_shape
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding

_SMALLEST_ELEMENTS = 1024
"""Index arithmetic on a handful of numbers costs nothing."""


class Int64Arithmetic(Rule):
    """A kernel does arithmetic on large int64 tensors.

    ## Why it costs
    GPUs and vector units have no 64-bit integer lanes worth the name: each operation becomes
    several, on twice the bytes; some runtimes cast to int32 and back, others refuse.

    ## Flagged
        agraph (int64[64,64] x) => (int64[64,64] y)
        { y = Mul (x, x) }

    ## Clean
        agraph (int32[64,64] x) => (int32[64,64] y)
        { y = Mul (x, x) }

    ## What to do
    Keep ids and masks in int32, or compute masks in the floating-point type they end up in.
    """

    code = "STR011"
    name = "int64-arithmetic"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen = device(analysis)
        for kernel in analysis.kernels.kernels:
            nodes = [analysis.nodes[index] for index in kernel.nodes]
            wide = [node for node in nodes if _is_wide(node)]
            if not wide or not kernel.flops:
                continue
            nbytes = sum(int(node.traffic_bytes or 0) for node in wide) // 2
            nbytes = min(nbytes, int(kernel.traffic_bytes or 0) // 2)
            seconds = None
            if chosen is not None:
                seconds = nbytes / chosen.hardware.bandwidth_bytes_per_second(chosen.peak_kind)
            yield self.found(
                f"{kernel.op_type} {kernel.name} computes on int64",
                nodes=[node.name for node in wide],
                seconds=seconds,
                nbytes=nbytes,
            )


def _is_wide(node: NodeCost) -> bool:
    info = node.call.inputs[0] if node.call.inputs else None
    if info is None or info.dtype not in (DType.INT64, DType.UINT64) or not node.flops:
        return False
    shape = output_shape(node)
    return shape is not None and math.prod(shape) >= _SMALLEST_ELEMENTS
