"""QDQ graphs: integer kernels between DequantizeLinear and QuantizeLinear, quantized weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.fusion.chain import Chain
from onnxroof.fusion.groups import Group
from onnxroof.fusion.rules.matmul import BIAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.groups import Grouping
    from onnxroof.fusion.live import LiveGraph
    from onnxroof.ops.call import Shape


@dataclass(frozen=True, slots=True)
class IntegerKernels:
    """Groups each integer node with its activation and the requantization of its result.

    Attributes:
        name: The rule's name.
        why: What makes one kernel of it right.
    """

    name: str
    why: str

    def apply(self, grouping: Grouping) -> None:
        """Group every node that the clean-up found to compute on integers."""
        graph = grouping.graph
        for index in sorted(graph.integer):
            node = graph.nodes[index]
            members = [index]
            for name in node.node.outputs:
                reader = graph.only_reader(name) if name else -1
                while reader >= 0:
                    members.append(reader)
                    done = graph.nodes[reader].kind == "QuantizeLinear"
                    tensor = graph.nodes[reader].node.outputs[0]
                    reader = -1 if done else graph.only_reader(tensor)
            group = Group(members, "integer", self.name, max(members))
            group.anchor, group.closed, group.integer = index, True, True
            grouping.add(group)


@dataclass(frozen=True, slots=True)
class WeightOnly:
    """Products with weights that a DequantizeLinear makes floating-point.

    Attributes:
        name: The rule's name.
        why: What makes one kernel of it right.
        types: Labels of the stored types it has kernels for.
        kind: What the kernel is to later rules.
    """

    name: str
    why: str
    types: frozenset[str]
    kind: str

    def apply(self, grouping: Grouping) -> None:
        """Make a kernel of its own of every product whose weights it can read as stored."""
        graph = grouping.graph
        if not graph.dequantizers:
            return
        read = _reads_of(graph)
        for index in grouping.ungrouped(("MatMul", "Gemm")):
            node = graph.nodes[index]
            name = node.node.inputs[1] if len(node.node.inputs) > 1 else ""
            if name not in graph.dequantizers:
                continue
            reason = self._why_not(graph, node, read[name])
            if reason:
                grouping.miss((index,), self.name, reason)
                continue
            group = Group([index], self.kind, self.name, index)
            group.note = "weights are read as stored and dequantized inside"
            grouping.add(group)

    def _why_not(self, graph: LiveGraph, node: NodeCost, readers: int) -> str:
        """Why the kernel cannot take the weights, or ""."""
        dequantizer = graph.nodes[graph.dequantizers[node.node.inputs[1]]].call
        stored, scales = dequantizer.inputs[0], dequantizer.inputs[1]
        if readers > 1 or node.node.inputs[1] in graph.exits:
            return "the dequantized weights are needed elsewhere too"
        if stored is None or stored.dtype is None or stored.dtype.label not in self.types:
            return "no kernel for weights of this type"
        if stored.shape is None or len(stored.shape) != 2 or scales is None:
            return "the weights are no matrix"
        if not _by_columns(dequantizer.attributes, scales.shape):
            return "scales are neither one, nor one a column or a block of 16 or more rows"
        return "" if _is_plain(node) else "a transposed or scaled Gemm"


def _reads_of(graph: LiveGraph) -> dict[str, int]:
    """How often live nodes read each dequantized constant."""
    found = dict.fromkeys(graph.dequantizers, 0)
    for index in graph.live:
        for name in graph.nodes[index].node.inputs:
            if name in found:
                found[name] += 1
    return found


def _by_columns(attributes: Mapping[str, object], scales: Shape | None) -> bool:
    """Whether scales go with a matrix as MatMulNBits has them: blocks along the rows."""
    block, axis = attributes.get("block_size", 0), attributes.get("axis", 1)
    if not isinstance(block, int) or not isinstance(axis, int):
        return False
    if block:
        return axis in (0, -2) and block >= 16 and not block & (block - 1)
    return not scales or axis in (1, -1)


def _is_plain(node: NodeCost) -> bool:
    """A MatMul, or a Gemm that only multiplies and adds."""
    given = node.call.attributes
    defaults = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    return all(given.get(name, default) == default for name, default in defaults.items())


RULES = (
    IntegerKernels(
        name="integer-kernel",
        why="Q(op(DQ(a), DQ(b))) computed on the integers, accumulated in 32 bits and "
        "requantized before it is stored.",
    ),
    WeightOnly(
        name="weight-only-matmul",
        why="x·DQ(w) reads the weights as stored and dequantizes each block in registers: the "
        "floating-point weights never exist in memory.",
        types=frozenset({"int2", "uint2", "int4", "uint4", "int8", "uint8"}),
        kind="MatMulNBits",
    ),
    WeightOnly(
        name="weight-only-matmul-4-bit",
        why="x·DQ(w) reads 4-bit weights as stored and dequantizes each block in registers: the "
        "floating-point weights never exist in memory.",
        types=frozenset({"int4", "uint4", "fp4e2m1"}),
        kind="MatMul",
    ),
    Chain(
        name="weight-only-bias",
        anchors=frozenset({"MatMulNBits"}),
        then=(BIAS,),
        why="The bias is added to the accumulators before they are stored.",
    ),
)
