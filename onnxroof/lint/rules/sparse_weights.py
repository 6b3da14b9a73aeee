"""WGT007."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import LINEAR, labels, uses
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import WeightValues

_SHARE = 0.5
_SMALLEST_ELEMENTS = 64


class SparseWeights(WeightRule):
    """Most values of a weight are zero, and it is stored and computed densely.

    ## Why it costs
    Dense kernels multiply by zero at full price, and the file stores every zero. A pruned model
    that is deployed densely has paid the accuracy and gets nothing for it.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,8] x) => (float[1,8] y)
        <float[8,8] w = {1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2,
                         0.0, 1.1, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0,
                         0.0, 0.0, 1.2, 0.0, 0.0, 0.4, 0.0, 0.0,
                         0.0, 0.0, 0.0, 1.3, 0.5, 0.0, 0.0, 0.0,
                         0.0, 0.0, 0.0, 0.6, 1.4, 0.0, 0.0, 0.0,
                         0.0, 0.0, 0.7, 0.0, 0.0, 1.5, 0.0, 0.0,
                         0.0, 0.8, 0.0, 0.0, 0.0, 0.0, 1.6, 0.0,
                         0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.7}>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,2] x) => (float[1,2] y)
        <float[2,2] w = {0.5, 0.1, 0.25, 0.3}>
        { y = MatMul (x, w) }

    ## What to do
    Use a runtime with sparse kernels, prune whole channels or blocks (2:4 where the device has
    sparse tensor cores), or store the tensor sparsely or compressed.
    """

    code = "WGT007"
    name = "sparse-weights"
    severity = Severity.INFO
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        for item in values.measured:
            seen, constant = item.statistics, item.constant
            share = seen.share(seen.zeros)
            read_by = readers.get(constant.identity, [])
            is_dense = constant.nonzeros is None and constant.dtype.is_float
            if not is_dense or share < _SHARE or seen.elements < _SMALLEST_ELEMENTS:
                continue
            if not any(node.kind in LINEAR and position == 1 for node, position in read_by):
                continue
            yield self.found(
                f"{units.percent(share)} of {seen.elements:,} values are zero",
                nodes=labels(read_by),
                tensors=[constant.name],
                nbytes=constant.dtype.nbytes(seen.zeros),
                zero_count=seen.zeros,
                fraction=share,
            )
