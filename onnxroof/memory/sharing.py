"""Which tensors can share a buffer: views of another, and results written over their input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.cost import Status
from onnxroof.fusion.layout import may_be_view, view_reason
from onnxroof.fusion.runtimes import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnxroof.cost import GraphCost, NodeCost
    from onnxroof.memory.lifetimes import Lifetimes

Pair = tuple[str, str]


def views(cost: GraphCost) -> list[Pair]:
    """(source, view): the output is the input's bytes, so it needs none of its own."""
    runtime = RUNTIMES["basic"]
    return [
        (node.node.inputs[0], name)
        for node in cost.nodes
        if node.status is not Status.FOLDED
        and may_be_view(node)
        and view_reason(node, cost.shaped.tensors, runtime)
        for name in node.node.outputs
        if name
    ]


def in_place(cost: GraphCost, lifetimes: Lifetimes, aliased: Iterable[Pair] = ()) -> list[Pair]:
    """(input, output) pairs where the output is written over an input nobody needs any more.

    Elementwise operators, residual additions among them, over an input of the same size. Inputs
    and outputs of the graph are the caller's and never overwritten, except by `cache_appends`. With
    views `aliased`, a view's buffer is that of its source.
    """
    buffer: dict[str, str] = {}
    for source, view in aliased:
        buffer[view] = buffer.get(source, source)
    dies = dict(zip(lifetimes.names, lifetimes.deaths, strict=True))
    size = dict(zip(lifetimes.names, lifetimes.sizes, strict=True))
    callers = {item.name for item in cost.shaped.graph.inputs}
    callers |= {buffer.get(name, name) for name in cost.shaped.graph.outputs}
    pairs: list[Pair] = []
    for step, node in enumerate(cost.nodes):
        operator = node.call.operator
        if node.status is Status.FOLDED or operator is None or not operator.pointwise:
            continue
        result = node.node.outputs[0]
        for read in node.node.inputs:
            name = buffer.get(read, read)
            if name not in callers and dies.get(name) == step and size[name] == size.get(result):
                pairs.append((name, result))
                break
    return pairs


def cache_appends(cost: GraphCost) -> Iterator[Pair]:
    """(past, present) of every Concat from a graph input to a graph output.

    In place, the caller's buffer has room for the longer form from the start.
    """
    graph = cost.shaped.graph
    given = {item.name for item in graph.inputs}
    results = set(graph.outputs)
    for node in cost.nodes:
        if node.kind == "Concat" and node.node.outputs[0] in results and _appends(node):
            past = node.node.inputs[0]
            if past in given:
                yield past, node.node.outputs[0]


def _appends(node: NodeCost) -> bool:
    return node.status is not Status.FOLDED and len(node.call.given()) == 2
