"""Chains and trees of elementwise operators, with reductions where a runtime generates loops.

Grown from the last node upward: a producer joins when all its readers are in already, so nothing
but the last result leaves the kernel and no cycle can arise.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from onnxroof.fusion.chain import crosses_view
from onnxroof.fusion.groups import Group

if TYPE_CHECKING:
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.groups import Grouping

COMPOSITE_POINTWISE = frozenset({"Gelu", "Swish", "HardSwish", "Mish", "BiasGelu"})
REDUCTIONS = frozenset(
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1",
     "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd", "Softmax", "LogSoftmax",
     "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
     "GroupNormalization", "InstanceNormalization", "L2Normalization", "LpNormalization")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A rule that merges neighbouring elementwise work.

    Attributes:
        name: The rule's name.
        why: What makes one kernel of it right.
        broadcasts: Whether a smaller tensor may be computed on the fly for a larger one.
        through_views: Whether a change of shape in between does no harm.
        reductions: Whether one reduction domain (a row's mean, a softmax) may be inside.
        stores: Whether an inner result may be stored too, for readers that come later.
    """

    name: str
    why: str
    broadcasts: bool = False
    through_views: bool = False
    reductions: bool = False
    stores: bool = False

    def apply(self, grouping: Grouping) -> None:
        """Grow a group from every node that could end one, last ones first."""
        for index in reversed(grouping.graph.live):
            if self._may_join(grouping, index) and grouping.last(index) == index:
                self._grow(grouping, index)

    def _may_join(self, grouping: Grouping, index: int) -> bool:
        group = grouping.groups.get(index)
        if group is not None:
            return not group.closed and (
                group.kind in COMPOSITE_POINTWISE or (self.reductions and group.kind in REDUCTIONS)
            )
        node = grouping.graph.nodes[index]
        operator = node.call.operator
        if operator is None:
            return False
        return operator.pointwise or (self.reductions and node.node.kind in REDUCTIONS)

    def _grow(self, grouping: Grouping, index: int) -> None:
        graph = grouping.graph
        producer = graph.producer
        nodes = list(grouping.members(index))
        inside = set(nodes)
        pending = _makers(grouping, nodes)
        heapify(pending)
        size = _elements(graph.nodes[index])
        domain = self._domain(grouping, index)
        seen: set[str] = set()
        while pending:
            _, tensor = heappop(pending)
            maker = producer[tensor]
            if tensor in seen or maker in inside:
                continue
            if not self._may_enclose(grouping, tensor, inside, index):
                continue
            seen.add(tensor)
            if not self._joins(grouping, tensor, maker, (size, domain)):
                continue
            domain = domain or self._domain(grouping, maker)
            members = grouping.members(maker)
            nodes.extend(members)
            inside.update(members)
            for made in _makers(grouping, members):
                heappush(pending, made)
        if len(nodes) > len(grouping.members(index)):
            self._close(grouping, nodes, index)

    def _may_enclose(self, grouping: Grouping, tensor: str, inside: set[int], root: int) -> bool:
        """Whether nobody else reads the tensor, or only those that come after the root."""
        graph = grouping.graph
        readers = graph.readers[tensor]
        if tensor not in graph.exits and inside.issuperset(readers):
            return True
        return (
            self.stores
            and tensor not in graph.parts
            and all(reader > root for reader in readers if reader not in inside)
        )

    def _joins(
        self,
        grouping: Grouping,
        tensor: str,
        maker: int,
        sizes: tuple[int | None, int | None],
    ) -> bool:
        if grouping.last(maker) != maker or not self._may_join(grouping, maker):
            return False
        node = grouping.node(maker)
        outputs = node.node.outputs
        if len(outputs) > 1 and sum(map(bool, outputs)) > 1:
            return False
        if not self.through_views and any(
            crosses_view(grouping, tensor, reader) for reader in grouping.graph.readers[tensor]
        ):
            return False
        size, domain = sizes
        made = _elements(node)
        mine = self._domain(grouping, maker)
        if mine is not None:
            return domain in (None, mine) and size in (mine, made)
        if domain is not None and made in (domain, size):
            return True
        return self.broadcasts or made == size

    def _domain(self, grouping: Grouping, index: int) -> int | None:
        """Elements a reduction runs over; None for elementwise work."""
        if not self.reductions or grouping.kind(index) not in REDUCTIONS:
            return None
        group = grouping.groups.get(index)
        if group is not None and group.inputs:
            info = grouping.graph.info(group.inputs[0])
            return None if info is None or info.shape is None else info.elements
        first = grouping.node(index).call.inputs[0]
        return None if first is None or first.shape is None else first.elements

    def _close(self, grouping: Grouping, nodes: list[int], index: int) -> None:
        kinds = [grouping.kind(node) for node in nodes]
        heavy = [n for n, kind in zip(nodes, kinds, strict=True) if kind in REDUCTIONS]
        group = Group(nodes, "elementwise", self.name, index)
        group.anchor = heavy[0] if heavy else index
        group.closed = True
        grouping.add(group)


def _makers(grouping: Grouping, nodes: list[int]) -> list[tuple[int, str]]:
    """(−producer, tensor) of what the nodes read, constants left out: the latest sorts first."""
    graph = grouping.graph
    found: list[tuple[int, str]] = []
    for index in nodes:
        for name in graph.nodes[index].node.inputs:
            tensor = graph.source.get(name, name)
            maker = graph.producer.get(tensor)
            if maker is not None:
                found.append((-maker, tensor))
    return found


def _elements(node: NodeCost) -> int | None:
    outputs = node.call.outputs
    if not outputs or outputs[0].shape is None:
        return None
    return outputs[0].elements
