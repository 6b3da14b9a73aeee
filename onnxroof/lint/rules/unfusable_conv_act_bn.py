"""FUS002."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import ACTIVATIONS, kernel_by_node, producers, runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding


class UnfusableConvActBn(Rule):
    """Convolution, activation, BatchNormalization, in this order: nothing can fold.

    ## Why it costs
    Normalization folds into the weights of a convolution only as long as everything between them
    is affine. An activation in between is not, so the normalization reads and writes the whole
    activation by itself in every inference.

    ## Flagged
        agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] w, float[4] scale, float[4] shift, float[4] mean, float[4] variance>
        {
          c = Conv (x, w)
          r = Relu (c)
          y = BatchNormalization (r, scale, shift, mean, variance)
        }

    ## Clean
        agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] folded_w, float[4] folded_b>
        {
          n = Conv (x, folded_w, folded_b)
          y = Relu (n)
        }

    ## What to do
    Train with the order convolution, normalization, activation. For a trained network: fold the
    normalization forward into the next convolution, which is exact where that one does not pad.
    """

    code = "FUS002"
    name = "unfusable-conv-act-bn"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        makers = producers(analysis.cost)
        kernels = kernel_by_node(analysis)
        for node in analysis.nodes:
            if node.kind != "BatchNormalization" or not runs(node):
                continue
            activation = makers.get(node.node.inputs[0])
            if activation is None or activation.kind not in ACTIVATIONS:
                continue
            convolution = makers.get(activation.node.inputs[0])
            if convolution is None or convolution.kind not in ("Conv", "ConvTranspose"):
                continue
            kernel = kernels.get(node.node.index)
            if kernel is None or kernel.macs:
                continue  # folded forward, into the convolution behind it
            saving = without(analysis, {node.node.index})
            yield self.found(
                f"{activation.op_type} {activation.name} stands between {convolution.op_type}"
                f" {convolution.name} and {node.name}, which therefore cannot fold",
                nodes=[node.name, activation.name, convolution.name],
                seconds=saving.seconds,
                nbytes=saving.nbytes,
                node_output=node.node.outputs[0],
            )
