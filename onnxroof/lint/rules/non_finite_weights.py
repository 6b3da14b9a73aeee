"""WGT002."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import labels, uses
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import WeightValues


class NonFiniteWeights(WeightRule):
    """Weights are infinite or not a number.

    ## Why it costs
    One NaN in a convolution makes a whole output channel NaN, and everything behind it. Infinite
    weights turn into NaN as soon as they meet a zero activation, and every ReLU makes zeros.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,2] x) => (float[1,2] y)
        <float[2,2] w = {0.5, nan, 0.25, inf}>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,2] x) => (float[1,2] y)
        <float[2,2] w = {0.5, 0.1, 0.25, 0.3}>
        { y = MatMul (x, w) }

    ## What to do
    Go back to the last checkpoint before the values diverged. After a conversion to fp16, look at
    the fp32 weights: values above 65504 became infinite (`fp16-range-weights` finds them).
    """

    code = "WGT002"
    name = "non-finite-weights"
    severity = Severity.ERROR
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        for item in values.measured:
            seen = item.statistics
            if not seen.nans and not seen.infinities:
                continue
            yield self.found(
                f"{seen.nans:,} of {seen.elements:,} values are NaN, {seen.infinities:,} infinite",
                nodes=labels(readers.get(item.constant.identity, [])),
                tensors=[item.constant.name],
                nan_count=seen.nans,
                infinite_count=seen.infinities,
            )
