"""Decomposed operators seen whole: a drawn pattern becomes one group of a known kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.fusion.drawing import Match, parse, possible_ends
from onnxroof.fusion.groups import Group

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxroof.fusion.drawing import Drawing
    from onnxroof.fusion.groups import Grouping


@dataclass(frozen=True, slots=True)
class Composite:
    """A rule that finds drawn patterns.

    Attributes:
        name: The rule's name.
        kind: What the group is to later rules.
        drawings: The forms exporters write, the most specific first.
        why: What makes one kernel of it right.
        anchor: Name in the drawing whose node the kernel is named after; "" for the last.
        check: An extra condition; returns why the match must not be fused, or "".
        closed: Whether later rules may no longer absorb it.
    """

    name: str
    kind: str
    drawings: tuple[str, ...]
    why: str
    anchor: str = ""
    check: Callable[[Grouping, Match], str] | None = None
    closed: bool = False

    def apply(self, grouping: Grouping) -> None:
        """Group every match, last ones first so that the longest form wins."""
        for text in self.drawings:
            drawing = parse(text)
            if all(map(grouping.has_any, drawing.needed)):
                for entry in drawing.entries:
                    self._find(grouping, drawing, entry)

    def _find(self, grouping: Grouping, drawing: Drawing, entry: str) -> None:
        for index in reversed(possible_ends(grouping, drawing.lines[entry])):
            self._try(grouping, drawing, entry, index)

    def _try(self, grouping: Grouping, drawing: Drawing, entry: str, index: int) -> None:
        forbidden: frozenset[int] = frozenset()
        while True:
            match = Match(grouping, drawing, forbidden)
            if not match.ends_at(entry, index):
                return
            nodes = list(dict.fromkeys(match.nodes))  # one node may be two lines: Q and K scaled
            given = tuple(match.bound[name] for name in drawing.inputs if name in match.bound)
            shared = _shared(grouping, nodes, index, given)
            optional = forbidden.union(shared).intersection(match.optional)
            if not shared or not set(shared) <= match.optional or optional <= forbidden:
                break
            forbidden |= optional
        if shared:
            tensor = grouping.node(shared[0]).node.outputs[0]
            grouping.miss(nodes, self.name, grouping.why_shared(tensor))
            return
        reason = self.check(grouping, match) if self.check is not None else ""
        if reason:
            grouping.miss(nodes, self.name, reason)
            return
        group = Group(nodes, self.kind, self.name, index)
        group.inputs = given
        group.closed = self.closed
        if self.anchor in match.bound:
            group.anchor = grouping.graph.producer[match.bound[self.anchor]]
        grouping.add(group)


def _shared(grouping: Grouping, nodes: list[int], last: int, given: tuple[str, ...]) -> list[int]:
    """Nodes other than the last whose result is needed outside the match, or as its input."""
    graph, inside = grouping.graph, set(nodes)
    return [
        index
        for index in nodes
        if index != last
        and any(
            name in given
            or name in graph.exits
            or not inside.issuperset(graph.readers.get(name, ()))
            for name in graph.nodes[index].node.outputs
        )
    ]
