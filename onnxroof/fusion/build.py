"""A group of nodes → `Kernel`: what it still computes and what it still moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.records import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.live import LiveGraph
    from onnxroof.fusion.records import KernelBody


def lone_kernel(index: int, node: NodeCost, bodies: tuple[KernelBody, ...] = ()) -> Kernel:
    """A node on its own: its costs as they are."""
    position = node.node.index
    return Kernel(
        index, (position,), position, "none", node.name, node.op_type,
        node.macs, node.flops, node.transcendentals,
        node.input_bytes, node.weight_read_bytes, node.output_bytes,
        (), node.compute_dtype, bodies, node.note,
    )  # fmt: skip


class Traffic:
    """Bytes a group of nodes moves: each outside tensor in once, each visible result out once."""

    __slots__ = ("activations", "constants", "elided", "written")

    def __init__(self, graph: LiveGraph, members: Sequence[int]) -> None:
        inside = set(members)
        made = {name for index in members for name in graph.nodes[index].node.outputs if name}
        self.activations: dict[str, int | None] = {}
        self.constants: dict[str, int | None] = {}
        self.written: dict[str, int | None] = {}
        self.elided: list[str] = []
        for index in members:
            self._inputs(graph, graph.nodes[index], made)
        for index in members:
            self._outputs(graph, graph.nodes[index], inside)

    def _inputs(self, graph: LiveGraph, node: NodeCost, made: set[str]) -> None:
        call = node.call
        reads = (call.cost.reads if call.cost is not None else None) or {}
        control = call.operator.control if call.operator is not None else ()
        for position, name in enumerate(node.node.inputs):
            info = call.inputs[position]
            if info is None or position in control:
                continue
            tensor = graph.source.get(name, name)
            if tensor in made:
                continue
            nbytes = reads.get(position, info.nbytes)
            table = self.constants if info.constant else self.activations
            known = table.get(tensor, 0)
            table[tensor] = None if nbytes is None or known is None else max(nbytes, known)

    def _outputs(self, graph: LiveGraph, node: NodeCost, inside: set[int]) -> None:
        call = node.call
        writes = (call.cost.writes if call.cost is not None else None) or {}
        for position, name in enumerate(node.node.outputs):
            if not name:
                continue
            readers = graph.readers.get(name)
            if name not in graph.exits:
                if readers is None:
                    continue
                if inside.issuperset(readers):
                    self.elided.append(name)
                    continue
            info = call.outputs[position] if position < len(call.outputs) else None
            self.written[name] = writes.get(position, info.nbytes if info is not None else None)


def fused_kernel(
    index: int, graph: LiveGraph, members: Sequence[int], anchor: int, rule: str, note: str = ""
) -> Kernel:
    """Several nodes in one launch."""
    traffic = Traffic(graph, members)
    nodes = [graph.nodes[member] for member in members]
    head = graph.nodes[anchor]
    return Kernel(
        index, tuple(members), anchor, rule, head.name,
        "+".join([node.op_type for node in nodes]),
        total([node.macs for node in nodes]),
        total([node.flops for node in nodes]),
        total([node.transcendentals for node in nodes]),
        total(traffic.activations.values()),
        total(traffic.constants.values()),
        total(traffic.written.values()),
        tuple(traffic.elided), head.compute_dtype, (), note,
    )  # fmt: skip


def total(values: Iterable[int | None]) -> int | None:
    """The sum, or None when a part is unknown."""
    result = 0
    for value in values:
        if value is None:
            return None
        result += value
    return result
