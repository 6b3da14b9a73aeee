"""STR002."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.layout import is_permutation
from onnxroof.lint.reading import input_shape, integers, producers, runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding


class RedundantTransposePair(Rule):
    """A Transpose follows a Transpose: one, or none, would do.

    ## Why it costs
    A Transpose moves every element and usually runs far from the memory's bandwidth. Converters
    between channels-first and channels-last leave pairs that cancel.

    ## Flagged
        agraph (float[1,4,8,8] x) => (float[1,4,8,8] y)
        {
          last = Transpose<perm = [0, 2, 3, 1]> (x)
          first = Transpose<perm = [0, 3, 1, 2]> (last)
          y = Relu (first)
        }

    ## Clean
        agraph (float[1,4,8,8] x) => (float[1,8,8,4] y)
        {
          last = Transpose<perm = [0, 2, 3, 1]> (x)
          y = Relu (last)
        }

    ## What to do
    Remove both where they cancel; else replace them by one with the composed permutation.
    """

    code = "STR002"
    name = "redundant-transpose-pair"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        makers = producers(analysis.cost)
        for node in analysis.nodes:
            if node.kind != "Transpose" or not runs(node):
                continue
            first = makers.get(node.node.inputs[0])
            if first is None or first.kind != "Transpose" or not runs(first):
                continue
            inner, outer = _order(first), _order(node)
            if inner is None or outer is None or len(inner) != len(outer):
                continue
            composed = tuple(inner[axis] for axis in outer)
            cancels = composed == tuple(range(len(composed)))
            gone = {node.node.index, first.node.index} if cancels else {node.node.index}
            saving = without(analysis, gone)
            what = "cancel" if cancels else f"are one with perm = {list(composed)}"
            yield self.found(
                f"{first.name} and {node.name} {what}",
                nodes=[first.name, node.name],
                seconds=saving.seconds,
                nbytes=saving.nbytes,
            )


def _order(node: NodeCost) -> tuple[int, ...] | None:
    shape = input_shape(node, 0)
    if shape is None:
        return None
    order = integers(node, "perm") or tuple(reversed(range(len(shape))))
    return order if is_permutation(order, len(shape)) else None
