"""A group of nodes → `Kernel`: what it still computes and what it still moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import interval, largest, lower, smallest, upper
from onnxroof.cost import Status
from onnxroof.fusion.records import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.groups import Group
    from onnxroof.fusion.live import LiveGraph
    from onnxroof.fusion.records import KernelBody
    from onnxroof.graph.types import DType


def lone_kernel(index: int, node: NodeCost) -> Kernel:
    """A node on its own: its costs as they are."""
    onnx_node = node.node
    position = onnx_node.index
    return Kernel(
        index, (position,), position, "none", onnx_node.name or onnx_node.label, onnx_node.op_type,
        node.macs, node.flops, node.transcendentals,
        node.input_bytes, node.weight_read_bytes, node.output_bytes,
        (), node.compute_dtype, (), node.note,
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

    Nodes that folded into weights read and write nothing.
    """

    __slots__ = ("activations", "constants", "elided", "graph", "group", "written")

    def __init__(self, graph: LiveGraph, group: Group) -> None:
        self.graph = graph
        self.group = group
        self.activations: dict[str, dict[str, int | None]] = {}
        self.constants: dict[str, int | None] = {}
        self.written: dict[str, int | None] = {}
        self.elided: list[str] = []
        inside = set(group.nodes)
        made = {name for index in group.nodes for name in graph.nodes[index].node.outputs if name}
        for index in group.nodes:
            self._inputs(graph.nodes[index], made, constants=index not in group.folded)
            self._outputs(graph.nodes[index], inside)

    def _inputs(self, node: NodeCost, made: set[str], *, constants: bool) -> None:
        call = node.call
        reads = (call.cost.reads if call.cost is not None else None) or {}
        control = call.operator.control if call.operator is not None else ()
        source = self.graph.source
        for position, name in enumerate(node.node.inputs):
            info = call.inputs[position]
            if info is None or position in control:
                continue
            nbytes = reads.get(position, info.nbytes)
            if info.constant:
                if constants:
                    self._constant(name, nbytes)
                continue
            tensor = source.get(name, name)
            if tensor not in made:
                seen = self.activations.setdefault(tensor, {})
                seen[name] = _most(seen.get(name, 0), nbytes)

    def _constant(self, name: str, nbytes: int | None) -> None:
        if self.group.integer:
            stored = self.graph.dequantized.get(name)
            if stored is not None:
                for inner, size in stored:
                    self.constants[inner] = size
                return
        self.constants[name] = _most(self.constants.get(name, 0), nbytes)

    def _outputs(self, node: NodeCost, inside: set[int]) -> None:
        call, graph = node.call, self.graph
        writes = (call.cost.writes if call.cost is not None else None) or {}
        for position, name in enumerate(node.node.outputs):
            if not name:
                continue
            if name not in graph.exits:
                readers = graph.readers.get(name)
                if readers is None:
                    continue
                if inside.issuperset(readers):
                    self.elided.append(name)
                    continue
            info = call.outputs[position] if position < len(call.outputs) else None
            self.written[name] = writes.get(position, info.nbytes if info is not None else None)

    def input_bytes(self) -> int | None:
        """Activation bytes read; parts of one tensor never count more than the tensor."""
        sizes: list[int | None] = []
        for tensor, parts in self.activations.items():
            read = total(parts.values())
            info = self.graph.info(tensor)
            whole = info.nbytes if info is not None else None
            sizes.append(read if read is None or whole is None else min(read, whole))
        return total(sizes)


def _most(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def fused_kernel(index: int, graph: LiveGraph, group: Group) -> Kernel:
    """Several nodes in one launch."""
    group.nodes.sort()
    traffic = Traffic(graph, group)
    running = [graph.nodes[member] for member in group.nodes if member not in group.folded]
    head = graph.nodes[group.anchor]
    flops = total([node.flops for node in running])
    weight_bytes = total(traffic.constants.values())
    if group.folded:
        bias_flops, bias_bytes = _folded_bias(graph, group)
        flops = None if flops is None else flops + bias_flops
        weight_bytes = None if weight_bytes is None else weight_bytes + bias_bytes
    onnx_node = head.node
    return Kernel(
        index, tuple(group.nodes), group.anchor, group.rule,
        onnx_node.name or onnx_node.label,
        "+".join([graph.nodes[member].node.op_type for member in group.nodes]),
        total([node.macs for node in running]),
        flops,
        total([node.transcendentals for node in running]),
        traffic.input_bytes(),
        weight_bytes,
        total(traffic.written.values()),
        tuple(traffic.elided), _compute_dtype(graph, group), (), _note(graph, group),
    )  # fmt: skip


def _folded_bias(graph: LiveGraph, group: Group) -> tuple[int, int]:
    """(FLOPs, bytes) of the bias that folding gives an anchor that had none."""
    head = graph.nodes[group.anchor]
    if set(group.folded.values()) == {"scale"} or head.call.has(2):
        return 0, 0
    result = head.call.outputs[0] if head.call.outputs else None
    if result is None or result.shape is None or result.dtype is None:
        return 0, 0
    channels = result.shape[1] if len(result.shape) > 1 else 1
    return result.elements, result.dtype.nbytes(channels) or 0


def _compute_dtype(graph: LiveGraph, group: Group) -> DType | None:
    """The anchor's type; that of the stored integers for an integer kernel."""
    head = graph.nodes[group.anchor]
    if not group.integer:
        return head.compute_dtype
    source = graph.source
    for name in head.node.inputs:
        info = graph.info(source.get(name, name))
        if info is not None and info.dtype is not None and info.dtype.is_integer:
            return info.dtype
    return head.compute_dtype


def _note(graph: LiveGraph, group: Group) -> str:
    folded = [graph.nodes[member].node.op_type for member in sorted(group.folded)]
    said = [f"{', '.join(folded)} folded into the weights"] if folded else []
    said += [group.note] if group.note else []
    said += [
        node.note
        for node in map(graph.nodes.__getitem__, group.nodes)
        if node.note and node.status is not Status.FREE
    ]
    return "; ".join(dict.fromkeys(said))


def total(values: Iterable[int | None]) -> int | None:
    """The sum, or None when a part is unknown."""
    result = 0
    for value in values:
        if value is None:
            return None
        result += value
    return result
