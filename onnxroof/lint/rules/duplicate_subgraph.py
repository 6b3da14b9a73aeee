"""STR005."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import named
from onnxroof.lint.reading import runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding


class DuplicateSubgraph(Rule):
    """The same thing is computed twice from the same tensors.

    ## Why it costs
    Runtimes that look for common subexpressions compute it once, others twice. Exporters write an
    attention mask or a positional encoding once per layer.

    ## Flagged
        agraph (float[1,64] x) => (float[1,64] y)
        {
          a = Sigmoid (x)
          b = Sigmoid (x)
          y = Mul (a, b)
        }

    ## Clean
        agraph (float[1,64] x) => (float[1,64] y)
        {
          a = Sigmoid (x)
          y = Mul (a, a)
        }

    ## What to do
    Compute it once and pass it on: in the model's code, or with an optimizer that eliminates
    common subexpressions.
    """

    code = "STR005"
    name = "duplicate-subgraph"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        copies = _copies(analysis)
        by_original: dict[tuple[str, ...], list[NodeCost]] = {}
        for group in _connected(analysis, copies):
            originals = tuple(analysis.nodes[copies[node.node.index]].name for node in group)
            by_original.setdefault(originals, []).extend(group)
        shared: dict[str, NodeCost] = {}
        first: list[str] = []
        for originals, nodes in by_original.items():
            if without(analysis, {node.node.index for node in nodes}).nbytes:
                yield self._finding(analysis, nodes, originals, "")
            else:
                shared.update((node.name, node) for node in nodes)
                first += originals
        if shared:
            note = f"; {analysis.kernels.runtime} computes it once"
            yield self._finding(analysis, list(shared.values()), tuple(dict.fromkeys(first)), note)

    def _finding(
        self, analysis: Analysis, nodes: list[NodeCost], originals: tuple[str, ...], note: str
    ) -> Finding:
        names = [node.name for node in nodes]
        saving = without(analysis, {node.node.index for node in nodes})
        verb = "repeats" if len(nodes) == 1 else "repeat"
        return self.found(
            f"{units.plural(len(nodes), 'node')} ({named(names)}) {verb} what {named(originals)}"
            f" computed{note}",
            nodes=names,
            seconds=saving.seconds,
            nbytes=saving.nbytes,
            flops=sum(int(node.flops or 0) for node in nodes),
        )


def _copies(analysis: Analysis) -> Mapping[int, int]:
    """Node → the earlier node that computes the same, for nodes that run and do something."""
    first: dict[object, NodeCost] = {}
    stand_in: dict[str, str] = {}
    found: dict[int, int] = {}
    for node in analysis.nodes:
        operator = node.call.operator
        if not runs(node) or operator is None or operator.random or node.node.subgraphs:
            continue
        inputs = tuple(_identity(analysis, stand_in.get(name, name)) for name in node.node.inputs)
        attributes = node.node.attributes
        key = (operator, attributes, inputs, tuple(map(bool, node.node.outputs)))
        twin = first.setdefault(key, node)
        if twin is node:
            continue
        stand_in.update(zip(node.node.outputs, twin.node.outputs, strict=True))
        if node.flops or node.traffic_bytes:
            found[node.node.index] = twin.node.index
    return found


def _identity(analysis: Analysis, name: str) -> object:
    """Tiny constants are equal by value, everything else by name."""
    info = analysis.tensors.get(name)
    known = info is not None and info.constant and info.value is not None
    return info.value_key if known and info is not None else name


def _connected(analysis: Analysis, copies: Mapping[int, int]) -> Iterator[list[NodeCost]]:
    """Copies that feed each other, together; in execution order."""
    leader: dict[int, int] = {}
    maker: dict[str, int] = {}
    for index in copies:
        node = analysis.nodes[index].node
        leader[index] = index
        for name in node.inputs:
            if name in maker:
                leader[_led(leader, maker[name])] = index
        maker.update(dict.fromkeys(filter(None, node.outputs), index))
    groups: dict[int, list[NodeCost]] = {}
    for index in copies:
        groups.setdefault(_led(leader, index), []).append(analysis.nodes[index])
    yield from groups.values()


def _led(leader: dict[int, int], index: int) -> int:
    """The leader of a node's group; paths are halved on the way."""
    while leader[index] != index:
        leader[index] = index = leader[leader[index]]
    return index
