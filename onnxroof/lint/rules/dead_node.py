"""STR012."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import named
from onnxroof.lint.reading import without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding


class DeadNode(Rule):
    """No output of the graph depends on a node.

    ## Why it costs
    Optimizing runtimes drop dead nodes, others run them; their weights stay in the file either
    way. They are what is left of an auxiliary head, of debugging, or of a cut graph.

    ## Flagged
        agraph (float[1,64] x) => (float[1,64] y)
        {
          y = Relu (x)
          unread = Sigmoid (x)
        }

    ## Clean
        agraph (float[1,64] x) => (float[1,64] y)
        {
          y = Relu (x)
        }

    ## What to do
    Remove the nodes, or make their result a graph output if it was meant to be one.
    """

    code = "STR012"
    name = "dead-node"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        wanted = set(analysis.model.graph.outputs)
        dead: list[NodeCost] = []
        for node in reversed(analysis.nodes):
            if wanted.isdisjoint(name for name in node.node.outputs if name):
                dead.append(node)
            else:
                wanted.update(name for name in node.node.reads if name)
        if dead:
            yield self._finding(analysis, dead[::-1])

    def _finding(self, analysis: Analysis, dead: list[NodeCost]) -> Finding:
        saving = without(analysis, {node.node.index for node in dead})
        names = [node.name for node in dead]
        work = sum(int(node.macs or 0) for node in dead)
        said = f"no output depends on {units.plural(len(dead), 'node')}: {named(names)}"
        if work:
            said += f"; they do {units.count(work, 'MAC')}"
        return self.found(
            said,
            nodes=names,
            seconds=saving.seconds,
            nbytes=saving.nbytes + sum(node.weight_bytes for node in dead),
            macs=work,
        )
