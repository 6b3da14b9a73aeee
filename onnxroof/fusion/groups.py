"""The state of one grouping: which nodes stand together so far, and what a rule may still absorb.

A lone node is its own group and has no record. Rules run one after another, each over the groups
the earlier ones left, so a decomposed GELU is one "Gelu" when the rule for matrix products comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.records import FusionMiss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.live import LiveGraph
    from onnxroof.fusion.runtimes import Runtime


class Group:
    """Nodes that run in one kernel.

    Attributes:
        nodes: Their indices, unordered; `last` is the one whose output leaves the group.
        kind: What the group is to later rules: an operator's name ("Gelu", "Softmax").
        rule: The rule that made it.
        anchor: The node it is named after.
        inputs: Its activation inputs in the order of its drawing.
        closed: No later rule may absorb it.
        folded: Nodes that vanish into the anchor's weights.
        integer: Computes on quantized values.
        note: What the reader of a report should know.
    """

    __slots__ = (
        "anchor", "closed", "folded", "inputs", "integer", "kind", "last", "nodes", "note", "rule",
    )  # fmt: skip

    def __init__(self, nodes: list[int], kind: str, rule: str, last: int) -> None:
        self.nodes = nodes
        self.kind = kind
        self.rule = rule
        self.anchor = last
        self.last = last
        self.inputs: tuple[str, ...] = ()
        self.closed = False
        self.folded: set[int] = set()
        self.integer = False
        self.note = ""


class Grouping:
    """Groups over a `LiveGraph`, and, where asked to explain, the candidates that failed."""

    __slots__ = ("_of_kind", "explain", "graph", "groups", "misses", "runtime")

    def __init__(self, graph: LiveGraph, runtime: Runtime, *, explain: bool = False) -> None:
        self.graph = graph
        self.runtime = runtime
        self.explain = explain
        self.groups: dict[int, Group] = {}
        self.misses: list[FusionMiss] = []
        dropped = graph.dropped
        self._of_kind: dict[str, list[int]] = {}
        for kind, indices in graph.of_kind.items():
            left = [i for i in indices if i not in dropped] if dropped else indices.copy()
            if left:
                self._of_kind[kind] = left

    def has_any(self, kinds: frozenset[str]) -> bool:
        """Whether the graph has such an operator or group at all."""
        return not kinds.isdisjoint(self._of_kind)

    def ungrouped(self, kinds: Iterable[str]) -> list[int]:
        """Lone nodes of these operators, in execution order."""
        found: list[int] = []
        groups = self.groups
        for kind in kinds:
            found.extend([i for i in self._of_kind.get(kind, ()) if i not in groups])
        return sorted(found)

    def anchors(self, kinds: Iterable[str]) -> list[int]:
        """Last nodes of the open groups and lone nodes of these kinds, in execution order."""
        found: set[int] = set()
        for kind in kinds:
            for index in self._of_kind.get(kind, ()):
                group = self.groups.get(index)
                if group is None:
                    found.add(index)
                elif not group.closed and group.kind == kind:
                    found.add(group.last)
        return sorted(found)

    def node(self, index: int) -> NodeCost:
        """The counted node."""
        return self.graph.nodes[index]

    def kind(self, index: int) -> str:
        """What the node's group is to a rule: its operator when it is alone."""
        group = self.groups.get(index)
        return self.graph.nodes[index].node.kind if group is None else group.kind

    def members(self, index: int) -> list[int]:
        """The nodes of the group the node is in."""
        group = self.groups.get(index)
        return [index] if group is None else group.nodes

    def last(self, index: int) -> int:
        """The node whose output leaves the group the node is in."""
        group = self.groups.get(index)
        return index if group is None else group.last

    def is_open(self, index: int) -> bool:
        """Whether a rule may absorb the node with its group."""
        group = self.groups.get(index)
        return group is None or not group.closed

    def output(self, index: int) -> str:
        """The tensor that leaves the node's group."""
        return self.graph.nodes[self.last(index)].node.outputs[0]

    def readers(self, tensor: str) -> list[int]:
        """Last nodes of the distinct groups that read the tensor."""
        known = self.graph.readers.get(tensor)
        if known is None:
            return []
        if len(known) == 1:
            return [self.last(known[0])]
        return list(dict.fromkeys([self.last(index) for index in known]))

    def only_reader(self, tensor: str) -> int:
        """The one group that reads the tensor (its last node), or −1."""
        if tensor in self.graph.exits:
            return -1
        known = self.graph.readers.get(tensor)
        if known is None:
            return -1
        first = self.last(known[0])
        for index in known[1:]:
            if self.last(index) != first:
                return -1
        return first

    def add(self, group: Group) -> Group:
        """Put the group's nodes under it, whatever they were in before."""
        for index in group.nodes:
            self.groups[index] = group
        known = self._of_kind.setdefault(group.kind, [])
        known.append(group.last)
        return group

    def miss(self, nodes: Iterable[int], rule: str, reason: str) -> None:
        """Keep why a candidate is not fused, if somebody wants to know."""
        if not self.explain:
            return
        ordered = tuple(sorted(nodes))
        label = self.graph.nodes[ordered[0]].node.label
        self.misses.append(FusionMiss(ordered, label, rule, reason))

    def why_shared(self, tensor: str) -> str:
        """Why a tensor cannot stay inside a kernel."""
        if tensor in self.graph.exits:
            return "its intermediate result is a graph output"
        count = len(self.readers(tensor))
        return f"{_COUNTS.get(count, str(count))} consumers"


_COUNTS = {2: "two", 3: "three"}
