"""Execution order: keeps the file's order where it is valid, else sorts stably.

Linear in nodes and edges and free of recursion. Finds the names a body captures from outside.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onnxroof.graph.types import Node


def in_order(
    nodes: Sequence[Node], defined: Collection[str], outputs: Sequence[str]
) -> tuple[Sequence[Node], tuple[str, ...], bool]:
    """Nodes in execution order, captured names, and whether the file already was in order.

    Raises:
        InvalidGraphError: A tensor is made twice, or the nodes form a cycle.
    """
    available = set(defined)
    available.add("")
    foreign: dict[str, None] = {}
    makes = 0
    for node in nodes:
        read = node.reads if node.subgraphs else node.inputs
        if not available.issuperset(read):
            foreign.update((name, None) for name in read if name not in available)
        made = node.outputs
        available.update(made)
        makes += len(made) - made.count("")
    foreign.update((name, None) for name in outputs if name not in available)
    if len(available) - len(defined) - 1 != makes:
        _refuse_second_maker(nodes, defined)
    late = [name for name in foreign if name in available]
    if not late:
        return nodes, tuple(foreign), True
    for name in late:
        del foreign[name]
    return _stable_sort(nodes), tuple(foreign), False


def _refuse_second_maker(nodes: Sequence[Node], defined: Collection[str]) -> None:
    made = set(defined)
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in made:
                raise InvalidGraphError(_label(node), f"makes tensor {quoted(name)} a second time")
            made.add(name)


def _label(node: Node) -> str:
    return f"node {quoted(node.name or node.op_type)} ({node.op_type})"


def _stable_sort(nodes: Sequence[Node]) -> list[Node]:
    """Always the earliest node of the file whose inputs are ready."""
    producer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    waits: list[int] = []
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        needed = {producer[name] for name in node.reads if name in producer}
        waits.append(len(needed))
        for maker in needed:
            readers[maker].append(position)
    ready = [position for position, count in enumerate(waits) if not count]
    heapify(ready)
    ordered: list[Node] = []
    while ready:
        position = heappop(ready)
        ordered.append(nodes[position])
        for reader in readers[position]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, reader)
    if len(ordered) < len(nodes):
        stuck = next(nodes[position] for position, count in enumerate(waits) if count)
        raise InvalidGraphError(
            _label(stuck), "is part of a cycle or waits for one: no execution order exists"
        )
    return ordered
