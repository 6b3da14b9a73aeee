"""WGT006."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.graph.types import DType
from onnxroof.lint.reading import labels, uses
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import WeightValues

_UNDERFLOW_SHARE = 0.05
"""A few weights that vanish do not matter; one that becomes infinite does."""

_SUBNORMAL_SHARE = 0.1
"""fp16 values with fewer than eleven significant bits that a tensor may hold without a word."""


class Fp16RangeWeights(WeightRule):
    """Weights do not survive a conversion to fp16, or did not survive it well.

    ## Why it costs
    fp16 reaches from 6e-8 to 65504. A weight that rounds beyond 65504 becomes infinite and ruins
    every result; weights that round to zero (2^-25, 3e-8, and less) silently prune the layer. Who
    plans to run in fp16 should know before, not from the accuracy afterwards. In a file that holds
    fp16 already, many values below 6.1e-5 have lost bits: they are subnormal.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,2] x) => (float[1,2] y)
        <float[2,2] w = {0.5, 70000.0, 0.25, 0.3}>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,2] x) => (float[1,2] y)
        <float[2,2] w = {0.5, 65504.0, 0.25, 0.3}>
        { y = MatMul (x, w) }

    ## What to do
    Keep this layer in fp32 or use bf16, whose range is that of fp32. Where the range comes from a
    folded normalization, rescale the layer and its neighbour.
    """

    code = "WGT006"
    name = "fp16-range-weights"
    severity = Severity.INFO
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        for item in values.measured:
            seen = item.statistics
            if item.constant.dtype is DType.FLOAT16:
                if seen.share(seen.subnormals) >= _SUBNORMAL_SHARE:
                    yield self.found(
                        f"{units.percent(seen.share(seen.subnormals))} of {seen.elements:,} fp16"
                        " values are below 6.1e-5, where fp16 loses precision",
                        nodes=labels(readers.get(item.constant.identity, [])),
                        tensors=[item.constant.name],
                        subnormal_count=seen.subnormals,
                    )
                continue
            nonzero = seen.elements - seen.zeros
            lost = seen.fp16_underflows - seen.subnormals
            if not seen.fp16_overflows and lost < _UNDERFLOW_SHARE * max(nonzero, 1):
                continue
            yield self.found(
                f"in fp16 {seen.fp16_overflows:,} of {seen.elements:,} values become infinite,"
                f" {seen.fp16_underflows:,}"
                f" ({units.percent(seen.share(seen.fp16_underflows))}) become zero",
                nodes=labels(readers.get(item.constant.identity, [])),
                tensors=[item.constant.name],
                overflow_count=seen.fp16_overflows,
                underflow_count=seen.fp16_underflows,
            )
