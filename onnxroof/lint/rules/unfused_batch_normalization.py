"""FUS001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import ACTIVATIONS, kernel_by_node, producers, runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding

_FOLDING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


class UnfusedBatchNormalization(Rule):
    """A BatchNormalization follows a convolution and is not folded into its weights.

    ## Why it costs
    γ(W·x + b − μ)/σ + β is a convolution with other weights: folded it is free. Kept apart it
    reads and writes the whole activation once more, and the activation behind it cannot join the
    convolution either.

    ## Flagged
        agraph (float[1,3,8,8] x, float[4] scale) => (float[1,4,6,6] y)
        <float[4,3,3,3] w, float[4] shift, float[4] mean, float[4] variance>
        {
          c = Conv (x, w)
          y = BatchNormalization (c, scale, shift, mean, variance)
        }

    ## Clean
        agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float[4,3,3,3] folded_w, float[4] folded_b>
        { y = Conv (x, folded_w, folded_b) }

    ## What to do
    Export in inference mode with constant folding, or run a graph optimizer before deployment. The
    message names what stands in the way: a second reader, statistics that are inputs, a runtime
    without the fold.
    """

    code = "FUS001"
    name = "unfused-batch-normalization"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        makers = producers(analysis.cost)
        kernels = kernel_by_node(analysis)
        reasons = _reasons(analysis)
        for node in analysis.nodes:
            index = node.node.index
            if node.kind != "BatchNormalization" or not runs(node) or index not in kernels:
                continue
            maker = makers.get(node.node.inputs[0])
            reason = reasons.get(index, "")
            if maker is None or maker.kind not in _FOLDING or not runs(maker):
                if not reason or (maker is not None and maker.kind in ACTIVATIONS):
                    continue
            elif maker.node.index in kernels[index].nodes:
                continue
            if "training mode" in reason:
                continue
            yield self._finding(analysis, node, maker, reason)

    def _finding(
        self, analysis: Analysis, node: NodeCost, maker: NodeCost | None, reason: str
    ) -> Finding:
        saving = without(analysis, {node.node.index})
        before = f" after {maker.op_type} {maker.name}" if maker is not None else ""
        why = reason or f"no rule of runtime {analysis.kernels.runtime} folds it"
        return self.found(
            f"{node.name}{before} stays a kernel of its own: {why}",
            nodes=[node.name],
            seconds=saving.seconds,
            nbytes=saving.nbytes,
        )


def _reasons(analysis: Analysis) -> Mapping[int, str]:
    """Node → why the fusion stage did not fold it; the last node of a miss is the candidate."""
    found: dict[int, str] = {}
    for miss in analysis.kernels.misses:
        for index in miss.nodes:
            if analysis.nodes[index].kind == "BatchNormalization":
                found.setdefault(index, miss.reason)
    return found
