"""Parts taken from one tensor by several nodes, which together are a Split."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.fusion.groups import Group

if TYPE_CHECKING:
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.groups import Grouping
    from onnxroof.fusion.live import LiveGraph

PARTS = ("Slice", "Gather")


@dataclass(frozen=True, slots=True)
class Siblings:
    """Slices, or Gathers of one constant index, that together cover an axis of their input.

    Attributes:
        name: The rule's name.
        why: What makes one kernel of it right.
    """

    name: str
    why: str

    def apply(self, grouping: Grouping) -> None:
        """Group the parts of every tensor that are complete."""
        graph = grouping.graph
        families: dict[tuple[str, str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for index in grouping.ungrouped(PARTS):
            node = graph.nodes[index]
            part = _part(graph, node)
            if part is not None:
                axis, start, size = part
                name = node.node.inputs[0]
                tensor = graph.source.get(name, name)
                families[tensor, node.kind, axis].append((start, size, index))
        for (_, _, axis), parts in families.items():
            if len(parts) > 1 and _covers(graph, axis, sorted(parts)):
                nodes = sorted(index for _, _, index in parts)
                group = Group(nodes, "Split", self.name, nodes[0])
                group.closed = True
                grouping.add(group)


def _part(graph: LiveGraph, node: NodeCost) -> tuple[int, int, int] | None:
    """(axis, start, size) of the part a node takes; None when it is not one run along one axis."""
    source = node.call.inputs[0] if node.call.inputs else None
    result = node.call.outputs[0] if node.call.outputs else None
    if source is None or result is None or source.constant or not source.exact:
        return None
    if source.shape is None or result.shape is None or not result.exact:
        return None
    if node.kind == "Gather" and len(node.node.inputs) > 1:
        axis, index = node.call.attributes.get("axis", 0), graph.value(node.node.inputs[1])
        if index is None or index.ndim or not isinstance(axis, int):
            return None
        axis %= len(source.shape)
        return axis, int(index) % source.shape[axis], 1
    cut = [i for i, (a, b) in enumerate(zip(source.shape, result.shape, strict=True)) if a != b]
    if len(cut) != 1:
        return None
    start = _slice_start(graph, node, cut[0], source.shape)
    return None if start is None else (cut[0], start, result.shape[cut[0]])


def _slice_start(graph: LiveGraph, node: NodeCost, axis: int, shape: tuple[int, ...]) -> int | None:
    """Where a Slice of step 1 along one axis begins."""
    inputs = node.node.inputs
    if len(inputs) < 3:
        starts = node.call.attributes.get("starts")
        axes = node.call.attributes.get("axes")
    else:
        starts = _ints(graph, inputs, 1)
        axes = _ints(graph, inputs, 3)
        if any(step != 1 for step in _ints(graph, inputs, 4) or ()):
            return None
    if not isinstance(starts, tuple):
        return None
    named = axes if isinstance(axes, tuple) else tuple(range(len(starts)))
    rank = len(shape)
    begins = {
        a % rank: s
        for a, s in zip(named, starts, strict=False)
        if isinstance(a, int) and isinstance(s, int)
    }
    begin = begins.get(axis)
    if begin is None:
        return None
    return min(max(begin + shape[axis] if begin < 0 else begin, 0), shape[axis])


def _ints(graph: LiveGraph, inputs: tuple[str, ...], position: int) -> tuple[int, ...] | None:
    value = graph.value(inputs[position]) if position < len(inputs) else None
    return None if value is None else tuple(value.ravel().tolist())


def _covers(graph: LiveGraph, axis: int, parts: list[tuple[int, int, int]]) -> bool:
    """Whether the parts follow each other without gap or overlap to the end of the axis."""
    source = graph.nodes[parts[0][2]].call.inputs[0]
    reached = 0
    for start, size, _ in parts:
        if start != reached:
            return False
        reached += size
    return source is not None and source.shape is not None and reached == source.shape[axis]


RULES = (
    Siblings(
        name="parts-to-split",
        why="Slices or single-index Gathers that cover an axis are one Split: the tensor is "
        "read once.",
    ),
)
