"""QNT001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.errors import named
from onnxroof.lint.reading import kernel_by_node, producers, readers, runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding


_CONVERSIONS = frozenset({"DequantizeLinear", "QuantizeLinear"})


class QdqBlocksFusion(Rule):
    """A quantize/dequantize pair runs as kernels of its own instead of inside an integer kernel.

    ## Why it costs
    A runtime computes an operator on integers when all its inputs come from DequantizeLinear and
    its result goes to QuantizeLinear. One missing node of the pattern, and the operator runs in
    floating point with conversions on both sides: slower than the model before quantization.

    ## Flagged
        agraph (uint8[1,64] x) => (uint8[1,64] y)
        <float scale = {0.1}, uint8 zero = {128}>
        {
          f = DequantizeLinear (x, scale, zero)
          e = Exp (f)
          y = QuantizeLinear (e, scale, zero)
        }

    ## Clean
        agraph (uint8[1,64] x) => (uint8[1,64] y)
        <float scale = {0.1}, uint8 zero = {128}>
        {
          f = DequantizeLinear (x, scale, zero)
          e = Sigmoid (f)
          y = QuantizeLinear (e, scale, zero)
        }

    ## What to do
    Quantize the operator's other inputs and its result too, give every reader a pair of its own,
    or leave the operator and its neighbours in floating point, so that no conversions are needed.
    """

    code = "QNT001"
    name = "qdq-blocks-fusion"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        kernels = kernel_by_node(analysis)
        read_by, made_by = readers(analysis.cost), producers(analysis.cost)
        exits = set(analysis.model.graph.outputs)
        for node in analysis.nodes:
            kernel = kernels.get(node.node.index)
            if kernel is None or node.kind not in _CONVERSIONS or not runs(node):
                continue
            lone = all(analysis.nodes[i].kind == node.kind for i in kernel.nodes)
            output = node.node.outputs[0]
            if node.kind == "DequantizeLinear" and lone and output not in exits:
                consumers = read_by.get(output, [])
                why = f"{_described(consumers)} computes in floating point"
            elif node.kind == "QuantizeLinear" and lone and node.node.inputs[0] in made_by:
                maker = made_by[node.node.inputs[0]]
                why = f"{_described([maker])} makes it in floating point"
            else:
                continue
            saving = without(analysis, {node.node.index})
            yield self.found(
                f"{node.op_type} {node.name} is a kernel of its own under"
                f" runtime {analysis.kernels.runtime}: {why}",
                nodes=[node.name],
                seconds=saving.seconds,
                nbytes=saving.nbytes,
            )


def _described(nodes: list[NodeCost]) -> str:
    return named([f"{node.op_type} {node.name}" for node in nodes], 2) or "nothing"
