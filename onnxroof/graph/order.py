"""Execution order: keeps the file's order where it is valid, else sorts stably.

Linear in nodes and edges and free of recursion. Finds the names a body captures from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onnxroof.graph.types import AttributeValue, Graph

    Fields = tuple[
        str, str, str, int, tuple[str, ...], tuple[str, ...],
        tuple[tuple[str, AttributeValue], ...], tuple[tuple[str, Graph], ...], str,
    ]  # fmt: skip


@dataclass(slots=True)
class Draft:
    """A node before its position is known: the fields of `Node` after `index`."""

    fields: Fields

    @property
    def label(self) -> str:
        """Name and operator, for messages."""
        return f"node {quoted(self.fields[0] or self.fields[2])} ({self.fields[2]})"

    def reads(self) -> tuple[str, ...]:
        """Inputs, and what the bodies capture."""
        inputs, subgraphs = self.fields[4], self.fields[7]
        if not subgraphs:
            return inputs
        return (*inputs, *(name for _, graph in subgraphs for name in graph.captures))


def in_order(
    drafts: Sequence[Draft], defined: Collection[str], outputs: Sequence[str]
) -> tuple[Sequence[Draft], tuple[str, ...], bool]:
    """Drafts in execution order, captured names, and whether the file already was in order.

    Raises:
        InvalidGraphError: A tensor is made twice, or the nodes form a cycle.
    """
    producer: dict[str, int] = {}
    captured: dict[str, None] = {}
    is_sorted = True
    for position, draft in enumerate(drafts):
        for name in draft.reads():
            if name and name not in producer and name not in defined:
                captured[name] = None
        for name in draft.fields[5]:
            if not name:
                continue
            if name in producer or name in defined:
                raise InvalidGraphError(draft.label, f"makes tensor {quoted(name)} a second time")
            producer[name] = position
    for name in outputs:
        if name and name not in producer and name not in defined:
            captured[name] = None
    late = [name for name in captured if name in producer]
    for name in late:
        del captured[name]
        is_sorted = False
    if is_sorted:
        return drafts, tuple(captured), True
    return _stable_sort(drafts, producer), tuple(captured), False


def _stable_sort(drafts: Sequence[Draft], producer: dict[str, int]) -> list[Draft]:
    """Always the earliest node of the file whose inputs are ready."""
    waits: list[int] = []
    readers: list[list[int]] = [[] for _ in drafts]
    for position, draft in enumerate(drafts):
        needed = {producer[name] for name in draft.reads() if name in producer}
        waits.append(len(needed))
        for maker in needed:
            readers[maker].append(position)
    ready = [position for position, count in enumerate(waits) if not count]
    heapify(ready)
    ordered: list[Draft] = []
    while ready:
        position = heappop(ready)
        ordered.append(drafts[position])
        for reader in readers[position]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, reader)
    if len(ordered) < len(drafts):
        stuck = next(drafts[position] for position, count in enumerate(waits) if count)
        raise InvalidGraphError(stuck.label, "is part of a cycle, so no execution order exists")
    return ordered
