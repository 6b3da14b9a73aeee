"""FUS004."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import named
from onnxroof.lint.reading import CONVOLUTIONS, PRODUCTS, kernel_by_node
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding


class FoldableBatchNormalization(Rule):
    """The file still holds BatchNormalization nodes that fold into the weights before them.

    ## Why it costs
    The runtime chosen here folds them when it loads the model, so inference pays nothing. Loading
    does, every time; so does every runtime without that fold, every tool that reads the file, and
    a quantizer that sees the unfolded weights.

    ## Flagged
        agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] w, float[4] scale, float[4] shift, float[4] mean, float[4] variance>
        {
          c = Conv (x, w)
          y = BatchNormalization (c, scale, shift, mean, variance)
        }

    ## Clean
        agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] folded_w, float[4] folded_b>
        { y = Conv (x, folded_w, folded_b) }

    ## What to do
    Export in inference mode with constant folding, or run a graph optimizer once, before
    deployment. The bytes are those of the normalizations' parameters.
    """

    code = "FUS004"
    name = "foldable-batch-normalization"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        kernels = kernel_by_node(analysis)
        folded = [
            node
            for node in analysis.nodes
            if node.kind == "BatchNormalization"
            and (kernel := kernels.get(node.node.index)) is not None
            and analysis.nodes[kernel.anchor].kind in CONVOLUTIONS | PRODUCTS
        ]
        if folded:
            names = [node.name for node in folded]
            yield self.found(
                f"{analysis.kernels.runtime} folds"
                f" {units.plural(len(folded), 'BatchNormalization')} when it loads the model:"
                f" {named(names)}",
                nodes=names,
                seconds=0.0 if analysis.rooflines else None,
                nbytes=sum(node.weight_bytes for node in folded),
                count=len(folded),
            )
