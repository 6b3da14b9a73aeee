"""The graph a runtime starts from: dead, folded and metadata-only nodes taken out, views resolved.

Nothing is rewritten: a `LiveGraph` is an index over the counted nodes. It says which nodes launch
work, which tensor each name really is (a view is its source's bytes), who makes a tensor, who reads
it, and which tensors must exist in memory at the end. Linear in nodes and edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.cost import Status
from onnxroof.fusion.layout import is_part, may_be_view, view_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.cost import GraphCost, NodeCost
    from onnxroof.fusion.runtimes import Runtime
    from onnxroof.ops.call import TensorInfo, Value

METADATA = frozenset({"Shape", "Size", "SequenceLength"})
"""Answered from a tensor's description; the tensor itself is never touched."""


class LiveGraph:
    """Which nodes launch work, and how tensors connect them.

    Attributes:
        runtime: Whose views it follows.
        nodes: Every node of the graph with its cost, by index.
        live: Indices of the nodes that launch work, in execution order.
        of_kind: The same by operator; nodes dropped later stay listed.
        removed: Why each of the other nodes launches nothing, by index.
        source: Name of a view → name of the tensor whose bytes it shows.
        partial: Views that show a part of those: two of one tensor are not the same.
        producer: Tensor → index of the live node that makes it.
        readers: Tensor → indices of the live nodes that read it, directly or through views.
        exits: Tensors that must be in memory when the graph ends, or as part of a Concat.
        parts: Tensor → the Concat's result in whose buffer it is written.
        integer: Nodes that compute on quantized values.
        dequantized: Result of a folded DequantizeLinear → (name, bytes) of what is stored, which
            is what a kernel reads.
        dequantizers: The same results of nodes themselves → index of the DequantizeLinear.
        dropped: Nodes taken out after indexing.
        permuted: Tensors that lie in memory in another order of axes than the graph says, after
            transposes cancelled; channels are their last axis then.
        tensors: Everything known of each tensor by name.
    """

    __slots__ = (
        "_views", "dequantized", "dequantizers", "dropped", "exits", "inputs", "integer", "live",
        "nodes", "of_kind", "partial", "parts", "permuted", "producer", "readers", "removed",
        "runtime", "source", "tensors",
    )  # fmt: skip

    def __init__(self, cost: GraphCost, runtime: Runtime) -> None:
        graph = cost.shaped.graph
        self.runtime = runtime
        self.nodes = cost.nodes
        self.tensors = cost.shaped.tensors
        self.source: dict[str, str] = {}
        self.partial: set[str] = set()
        self.producer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.removed: dict[int, str] = {}
        self.live: list[int] = []
        self.of_kind: dict[str, list[int]] = {}
        self.inputs = graph.inputs
        self.parts: dict[str, str] = {}
        self.integer: set[int] = set()
        self.dequantized: dict[str, tuple[tuple[str, int | None], ...]] = {}
        self.dequantizers: dict[str, int] = {}
        self.dropped: set[int] = set()
        self.permuted: set[str] = set()
        self._views: dict[str, list[str]] = {}
        needed = _needed(cost)
        folded = Status.FOLDED
        for index, node in enumerate(cost.nodes):
            if node.status is folded:
                if self.dequantized or node.node.kind == "DequantizeLinear":
                    self._note_dequantized(node)
                self.removed[index] = _reason(node, needed=needed[index])
            elif not needed[index]:
                self.removed[index] = _reason(node, needed=needed[index])
            elif node.node.kind in METADATA:
                self.removed[index] = "answered from metadata"
            else:
                self._place(index, node)
        self.exits = {self.source.get(name, name) for name in graph.outputs}

    def _place(self, index: int, node: NodeCost) -> None:
        """Make the node a view of its input's bytes, or live with its edges noted."""
        reason = view_reason(node, self.tensors, self.runtime) if may_be_view(node) else ""
        if reason:
            self.removed[index] = reason
            self._view(node)
            return
        source, onnx_node, readers = self.source, node.node, self.readers
        self.live.append(index)
        alike = self.of_kind.get(onnx_node.kind)
        if alike is None:
            self.of_kind[onnx_node.kind] = [index]
        else:
            alike.append(index)
        read = [*map(onnx_node.inputs.__getitem__, node.call.activations)]
        for _, body in onnx_node.subgraphs:
            read.extend(body.captures)
        for name in read:
            tensor = source.get(name, name)
            known = readers.get(tensor)
            if known is None:
                readers[tensor] = [index]
            elif known[-1] != index:
                known.append(index)
        producer = self.producer
        for name in onnx_node.outputs:
            if name:
                producer[name] = index

    def _view(self, node: NodeCost) -> None:
        """The node's outputs are its input's bytes."""
        viewed = node.node.inputs[0]
        origin = self.source.get(viewed, viewed)
        views = self._views.setdefault(origin, [])
        is_partial = viewed in self.partial or is_part(node.call)
        for name in node.node.outputs:
            if name:
                self.source[name] = origin
                views.append(name)
                if is_partial:
                    self.partial.add(name)

    def shown_by(self, name: str) -> str:
        """The tensor that has the elements a name stands for: itself where a part is shown."""
        return name if name in self.partial else self.source.get(name, name)

    def info(self, tensor: str) -> TensorInfo | None:
        """What is known of a tensor; None for one that a body captures from outside."""
        return self.tensors.get(tensor)

    def value(self, tensor: str) -> Value | None:
        """The value of a constant by its name: a call's own inputs may be an equal call's."""
        info = self.tensors.get(tensor)
        return None if info is None else info.value

    def only_reader(self, tensor: str) -> int:
        """The one live node that reads the tensor, or −1: none, several, or it must be kept."""
        readers = self.readers.get(tensor)
        if readers is None or len(readers) != 1 or tensor in self.exits:
            return -1
        return readers[0]

    def is_viewed(self, tensor: str) -> bool:
        """Whether some node sees the tensor under another name."""
        return tensor in self._views

    def drop(
        self, index: int, reason: str, stand_ins: Sequence[str], *, are_parts: bool = False
    ) -> None:
        """Take a live node out; each output becomes a view of its stand-in, or of a part of it."""
        node = self.nodes[index]
        self.dropped.add(index)
        self.removed[index] = reason
        for name in node.node.inputs:
            tensor = self.source.get(name, name)
            readers = self.readers.get(tensor)
            if readers is not None and index in readers:
                readers.remove(index)
                if not readers:
                    del self.readers[tensor]
        for name, stand_in in zip(node.node.outputs, stand_ins, strict=False):
            if name:
                is_partial = are_parts or stand_in in self.partial
                self._redirect(name, self.source.get(stand_in, stand_in), is_partial=is_partial)

    def _redirect(self, name: str, origin: str, *, is_partial: bool) -> None:
        """The tensor and all its views become views of another, or of a part of it."""
        self.producer.pop(name, None)
        names = [name, *self._views.pop(name, ())]
        if is_partial:
            self.partial.update(names)
        for view in names:
            self.source[view] = origin
        self._views.setdefault(origin, []).extend(names)
        readers = self.readers.pop(name, [])
        known = self.readers.get(origin)
        if not known:
            if readers:
                self.readers[origin] = readers
        elif readers and readers[0] > known[-1]:
            known.extend(readers)
        elif readers:
            self.readers[origin] = sorted({*known, *readers})
        if name in self.exits:
            self.exits.add(origin)

    def drop_concat(self, index: int, parts: Sequence[str]) -> None:
        """Take a Concat out whose parts are written in place by their producers."""
        node = self.nodes[index]
        result = node.node.outputs[0]
        self.dropped.add(index)
        self.removed[index] = "written in place by the producers of its parts"
        self.producer.pop(result, None)
        for part in parts:
            self.parts[part] = result
            self.exits.add(part)
            self.readers[part].remove(index)

    def forget_dropped(self) -> None:
        """Bring `live` up to date after nodes were dropped."""
        if self.dropped:
            self.live = [index for index in self.live if index not in self.dropped]

    def _note_dequantized(self, cost_node: NodeCost) -> None:
        """What a kernel reads in place of a folded DequantizeLinear's result: what is stored."""
        node = cost_node.node
        if node.kind == "DequantizeLinear":
            self.dequantizers[node.outputs[0]] = node.index
            self.dequantized[node.outputs[0]] = tuple(
                (name, info.nbytes)
                for name, info in zip(node.inputs, cost_node.call.inputs, strict=True)
                if info is not None
            )
        elif cost_node.call.only_moves and node.inputs and node.inputs[0] in self.dequantized:
            self.dequantized[node.outputs[0]] = self.dequantized[node.inputs[0]]


def _needed(cost: GraphCost) -> list[bool]:
    """Per node whether an output of the graph depends on it.

    What only a folded node reads is needed for folding, not for the run: a node that runs is not
    needed for it.
    """
    wanted = set(cost.shaped.graph.outputs)
    folding: set[str] = set()
    needed: list[bool] = []
    folded = Status.FOLDED
    for cost_node in reversed(cost.nodes):
        node = cost_node.node
        used = not wanted.isdisjoint(node.outputs)
        if cost_node.status is folded:
            used = used or not folding.isdisjoint(node.outputs)
            if used:
                folding.update(node.inputs)
        elif used:
            wanted.update(node.inputs)
            for _, body in node.subgraphs:
                wanted.update(body.captures)
        needed.append(used)
    needed.reverse()
    return needed


def _reason(node: NodeCost, *, needed: bool) -> str:
    if not needed:
        return "dead: no output of the graph depends on it"
    if node.call.folded:
        return "folded: its inputs are constants"
    return "shape arithmetic: its result is known before the run"
