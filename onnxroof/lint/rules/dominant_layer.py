"""MEM002."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.cost import Role
from onnxroof.lint.reading import labels, uses
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding

_SHARE = 0.5
_FEWEST_PARAMETERS = 1_000_000


class DominantLayer(Rule):
    """One layer holds most of the parameters.

    ## Why it costs
    Download, flash and start-up pay for parameters. Where one layer holds most of them, everything
    done to the others is in vain: the classifier of VGG, the embedding of a small language model.

    ## Flagged
        agraph (float[1,1024] x) => (float[1,16] y)
        <float[1024,1024] large, float[1024,16] small>
        {
          h = MatMul (x, large)
          y = MatMul (h, small)
        }

    ## Clean
        agraph (float[1,1024] x) => (float[1,1024] y)
        <float[1024,1024] a, float[1024,1024] b>
        {
          h = MatMul (x, a)
          y = MatMul (h, b)
        }

    ## What to do
    Pool before the classifier, factorize the matrix, shrink the vocabulary, or store this one
    tensor in int8: the saving is that of a quarter of its fp32 size.
    """

    code = "MEM002"
    name = "dominant-layer"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        weights = [weight for weight in analysis.cost.weights if weight.role is Role.WEIGHT]
        total = sum(weight.parameters for weight in weights)
        if total < _FEWEST_PARAMETERS or len(weights) < 2:
            return
        largest = max(weights, key=lambda weight: weight.parameters)
        share = largest.parameters / total
        if share <= _SHARE:
            return
        constant = largest.constant
        stored = largest.stored_bytes or 0
        yield self.found(
            f"{constant.name} ({units.shape(constant.shape)}) holds"
            f" {units.count(largest.parameters)} of {units.count(total)} parameters"
            f" ({units.percent(share)}), {units.size(stored)}",
            nodes=labels(uses(analysis).get(constant.identity, ())),
            tensors=[constant.name],
            nbytes=max(stored - largest.parameters, 0),
            share=share,
        )
