"""STR008."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import every_node, integer
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding


class BatchnormTrainingMode(Rule):
    """A BatchNormalization computes statistics of its own input instead of the trained ones.

    ## Why it costs
    In training mode the result depends on what else is in the batch, so the same image gets
    different answers; nothing can fold, and mean and variance take two more passes over the data.

    ## Flagged
        # opset 15
        agraph (float[2,3,4,4] x) => (float[2,3,4,4] y, float[3] m, float[3] v)
        <float[3] scale, float[3] shift, float[3] mean, float[3] variance>
        {
          y, m, v = BatchNormalization<training_mode = 1> (x, scale, shift, mean, variance)
        }

    ## Clean
        # opset 15
        agraph (float[2,3,4,4] x) => (float[2,3,4,4] y)
        <float[3] scale, float[3] shift, float[3] mean, float[3] variance>
        {
          y = BatchNormalization (x, scale, shift, mean, variance)
        }

    ## What to do
    Call `model.eval()` before the export (PyTorch), or export with training = False.
    """

    code = "STR008"
    name = "batchnorm-training-mode"
    severity = Severity.ERROR
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        for node in every_node(analysis):
            if node.kind == "BatchNormalization" and not node.domain and _is_training(node):
                yield self.found(
                    f"{node.name} computes its own statistics: exported in training mode",
                    nodes=[node.name],
                    node_output=node.node.outputs[0],
                )


def _is_training(node: NodeCost) -> bool:
    """By the attribute from opset 14 on, by the outputs from 7 on, by is_test before."""
    if node.node.opset >= 14:
        return bool(integer(node, "training_mode", 0))
    if node.node.opset >= 7:
        return sum(map(bool, node.node.outputs)) > 1
    return not integer(node, "is_test", 0)
