"""A group of nodes → `Kernel`: what it still computes and what it still moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import interval, largest, lower, smallest, upper
from onnxroof.cost import Status
from onnxroof.fusion.records import Kernel

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.groups import Group
    from onnxroof.fusion.live import LiveGraph
    from onnxroof.fusion.records import KernelBody
    from onnxroof.graph.types import DType


def lone_kernel(index: int, node: NodeCost) -> Kernel:
    """A node on its own: its costs as they are."""
    onnx_node, cost = node.node, node.cost
    position = onnx_node.index
    return Kernel(
        index, (position,), position, "none", onnx_node.name or onnx_node.label, onnx_node.op_type,
        cost.macs, cost.flops, cost.transcendentals,
        cost.input_bytes, cost.weight_read_bytes, cost.output_bytes,
        (), _computed_dtype(node), (), cost.note,
    )  # fmt: skip


def body_kernel(index: int, node: NodeCost, bodies: tuple[KernelBody, ...]) -> Kernel:
    """A control-flow node: its work as counted, its traffic that of its bodies' kernels."""
    position = node.node.index
    moved = [
        [body.trips * part for part in
         (body.plan.input_bytes, body.plan.weight_bytes, body.plan.output_bytes)]
        for body in bodies
    ]  # fmt: skip
    one_of = any(body.alternative for body in bodies)
    inputs, weights, outputs = (
        _either(column) if one_of else sum(column) for column in zip(*moved, strict=True)
    )
    work = [body.trips * body.plan.flops for body in bodies]
    return Kernel(
        index, (position,), position, "none", node.name, node.op_type,
        node.macs, _either(work) if one_of else sum(work), node.transcendentals,
        inputs, weights, outputs, (), node.compute_dtype, bodies, node.note,
    )  # fmt: skip


def _either(values: Sequence[int]) -> int:
    return interval(lower(smallest(*values)), upper(largest(*values)))


class Traffic:
    """Bytes a group of nodes moves: each outside tensor in once, each visible result out once.

    The parameters of nodes that folded into weights are not read.
    """

    __slots__ = ("constants", "elided", "graph", "parts", "whole", "written")

    def __init__(self, graph: LiveGraph, group: Group, nodes: Sequence[NodeCost]) -> None:
        self.graph = graph
        self.whole: dict[str, int | None] = {}
        self.parts: dict[str, dict[str, int | None]] = {}
        self.constants: dict[str, int | None] = {}
        self.written: list[int | None] = []
        self.elided: list[str] = []
        self._inputs(nodes, group.folded)
        self._outputs(nodes, set(group.nodes))

    def _inputs(self, nodes: Sequence[NodeCost], folded: Container[int]) -> None:
        made = {name for node in nodes for name in node.node.outputs}
        source, whole = self.graph.source, self.whole
        for node in nodes:
            call, names, infos = node.call, node.node.inputs, node.call.inputs
            reads = node.cost.reads or _NOTHING
            control = call.operator.control if call.operator is not None else ()
            if call.constants and node.node.index not in folded:
                for position in call.constants:
                    if position not in control:
                        known = infos[position].nbytes  # type: ignore[union-attr]
                        self._constant(names[position], reads.get(position, known))
            for position in call.activations:
                name = names[position]
                tensor = source.get(name, name)
                if tensor in made or position in control:
                    continue
                known = infos[position].nbytes  # type: ignore[union-attr]
                if tensor == name and position not in reads:
                    whole[name] = known
                    continue
                # a part: other nodes may read other parts
                key = f"{name}\0{node.node.index}" if position in reads else name
                parts = self.parts.setdefault(tensor, {})
                parts[key] = _most(parts.get(key, 0), reads.get(position, known))

    def _constant(self, name: str, nbytes: int | None) -> None:
        stored = self.graph.dequantized.get(name)
        if stored is not None:
            self.constants.update(stored)
        elif name in self.constants:
            self.constants[name] = _most(self.constants[name], nbytes)
        else:
            self.constants[name] = nbytes

    def _outputs(self, nodes: Sequence[NodeCost], inside: set[int]) -> None:
        exits, readers = self.graph.exits, self.graph.readers
        for node in nodes:
            for position, name in enumerate(node.node.outputs):
                if not name:
                    continue
                if name not in exits:
                    read_by = readers.get(name)
                    if read_by is None:
                        continue
                    if inside.issuperset(read_by):
                        self.elided.append(name)
                        continue
                infos, writes = node.call.outputs, node.cost.writes or _NOTHING
                known = infos[position].nbytes if position < len(infos) else None
                self.written.append(writes.get(position, known))

    def input_bytes(self) -> int | None:
        """Activation bytes read; parts of one tensor never count more than the tensor."""
        if not self.parts:
            return total(self.whole.values())
        sizes = [*self.whole.values()]
        tensors = self.graph.tensors
        for tensor, parts in self.parts.items():
            if tensor in self.whole:
                continue
            size = total(parts.values())
            known = tensors.get(tensor)
            whole = known.nbytes if known is not None else None
            sizes.append(size if whole is None or size is None else min(size, whole))
        return total(sizes)


_NOTHING: Mapping[int, int] = {}


def _most(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def fused_kernel(index: int, graph: LiveGraph, group: Group) -> Kernel:
    """Several nodes in one launch."""
    group.nodes.sort()
    nodes = [graph.nodes[member] for member in group.nodes]
    traffic = Traffic(graph, group, nodes)
    running = nodes
    weight_bytes = total(traffic.constants.values())
    bias_flops = 0
    if group.folded:
        running = [node for node in nodes if node.node.index not in group.folded]
        bias_flops, bias_bytes = _folded_bias(graph, group)
        weight_bytes = None if weight_bytes is None else weight_bytes + bias_bytes
    macs, flops, transcendentals = _work(running)
    head = graph.nodes[group.anchor]
    return Kernel(
        index, tuple(group.nodes), group.anchor, group.rule,
        head.node.label,
        "+".join([node.node.op_type for node in nodes]),
        macs,
        None if flops is None else flops + bias_flops,
        transcendentals,
        traffic.input_bytes(),
        weight_bytes,
        total(traffic.written),
        tuple(traffic.elided),
        _integer_dtype(graph, head) if group.integer else _computed_dtype(head),
        (), _note(nodes, group),
    )  # fmt: skip


def _work(nodes: Sequence[NodeCost]) -> tuple[int | None, int | None, int | None]:
    """(MACs, FLOPs, transcendentals) of all; None when one is unknown."""
    macs = flops = transcendentals = 0
    for node in nodes:
        cost = node.cost
        if cost.macs is None or cost.flops is None or cost.transcendentals is None:
            return None, None, None
        macs += cost.macs
        flops += cost.flops
        transcendentals += cost.transcendentals
    return macs, flops, transcendentals


def _folded_bias(graph: LiveGraph, group: Group) -> tuple[int, int]:
    """(FLOPs, bytes) of the bias that folding gives an anchor that had none."""
    head = graph.nodes[group.anchor]
    shifts = any(graph.nodes[index].kind not in ("Mul", "Div") for index in group.folded)
    if not shifts or head.call.has(2):
        return 0, 0
    result = head.call.outputs[0] if head.call.outputs else None
    if result is None or result.shape is None or result.dtype is None:
        return 0, 0
    channels = result.shape[1] if len(result.shape) > 1 else 1
    return result.elements, result.dtype.nbytes(channels) or 0


def _computed_dtype(node: NodeCost) -> DType | None:
    """The type a node computes on outside an integer kernel: that of its own formula.

    A node's cost names the stored type of quantized operands; without an integer kernel they are
    dequantized first.
    """
    cost = node.call.cost
    return node.compute_dtype if cost is None else cost.compute_dtype


def _integer_dtype(graph: LiveGraph, head: NodeCost) -> DType | None:
    """The type of the stored integers an integer kernel computes on."""
    for name in head.node.inputs:
        info = graph.tensors.get(graph.source.get(name, name))
        if info is not None and info.dtype is not None and info.dtype.is_integer:
            return info.dtype
    return head.compute_dtype


def _note(nodes: Sequence[NodeCost], group: Group) -> str:
    said = [group.note] if group.note else []
    if group.folded:
        folded = [node.node.op_type for node in nodes if node.node.index in group.folded]
        said.insert(0, f"{', '.join(folded)} folded into the weights")
    for node in nodes:
        cost = node.cost
        if cost.note and cost.status is not Status.FREE:
            said.append(cost.note)
    return "; ".join(dict.fromkeys(said)) if said else ""


def total(values: Iterable[int | None]) -> int | None:
    """The sum, or None when a part is unknown."""
    result = 0
    for value in values:
        if value is None:
            return None
        result += value
    return result
