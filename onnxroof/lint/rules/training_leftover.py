"""STR009."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import every_node, is_in_main_graph, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding

_LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})
_TRAINING_DOMAINS = frozenset({"ai.onnx.preview.training", "ai.onnx.training"})


class TrainingLeftover(Rule):
    """A node belongs to training: active dropout, a loss, an optimizer, a gradient.

    ## Why it costs
    Dropout in training mode throws results away at random, so the model's answers change from run
    to run. Losses and optimizers compute what no inference needs.

    ## Flagged
        # opset 15
        agraph (float[1,64] x) => (float[1,64] y)
        <float ratio = {0.5}, bool training = {1}>
        { y = Dropout (x, ratio, training) }

    ## Clean
        # opset 15
        agraph (float[1,64] x) => (float[1,64] y)
        <float ratio = {0.5}>
        { y = Dropout (x, ratio) }

    ## What to do
    Export in inference mode (`model.eval()` in PyTorch); cut the graph before the loss.
    """

    code = "STR009"
    name = "training-leftover"
    severity = Severity.ERROR
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        for node in every_node(analysis):
            what = _leftover(node)
            if what:
                is_main = is_in_main_graph(analysis, node)
                saving = without(analysis, {node.node.index} if is_main else set())
                yield self.found(
                    f"{node.name}: {what}",
                    nodes=[node.name],
                    seconds=saving.seconds,
                    nbytes=saving.nbytes,
                )


def _leftover(node: NodeCost) -> str:
    if node.domain in _TRAINING_DOMAINS:
        return f"{node.op_type} of {node.domain}"
    if node.domain:
        return ""
    if node.kind in _LOSSES:
        return f"the loss {node.op_type}"
    if node.kind == "Dropout" and _drops(node):
        return "Dropout in training mode"
    return ""


def _drops(node: NodeCost) -> bool:
    """Whether the third input is the constant True."""
    value = node.call.value(2)
    return value is not None and value.size > 0 and bool(value.ravel()[0])
