"""STR003."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import producers, readers, runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding

_RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


class RedundantReshapePair(Rule):
    """A Reshape follows a Reshape that nobody else reads: one would do.

    ## Why it costs
    Most runtimes make a Reshape a view, so the pair costs little; on those that copy or launch a
    kernel for it, the tensor is moved twice. Either way it hides fusions from simple matchers.

    ## Flagged
        agraph (float[2,3,4] x) => (float[4,6] y)
        <int64[1] flat = {24}, int64[2] target = {4, 6}>
        {
          a = Relu (x)
          b = Reshape (a, flat)
          c = Reshape (b, target)
          y = Abs (c)
        }

    ## Clean
        agraph (float[2,3,4] x) => (float[4,6] y)
        <int64[2] target = {4, 6}>
        {
          a = Relu (x)
          c = Reshape (a, target)
          y = Abs (c)
        }

    ## What to do
    Keep the second one only (with the shape of the result written out where it used 0 or −1).
    """

    code = "STR003"
    name = "redundant-reshape-pair"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        makers, read_by = producers(analysis.cost), readers(analysis.cost)
        exits = set(analysis.model.graph.outputs)
        for node in analysis.nodes:
            first = makers.get(node.node.inputs[0]) if _is_live_reshape(node) else None
            if first is None or not _is_live_reshape(first):
                continue
            between = node.node.inputs[0]
            if len(read_by.get(between, ())) != 1 or between in exits:
                continue
            saving = without(analysis, {first.node.index})
            yield self.found(
                f"{first.op_type} {first.name} is followed by {node.op_type} {node.name}"
                " and read by nothing else",
                nodes=[first.name, node.name],
                seconds=saving.seconds,
                nbytes=saving.nbytes,
            )


def _is_live_reshape(node: NodeCost) -> bool:
    if node.kind not in _RESHAPES or not runs(node) or not node.node.inputs:
        return False
    info = node.call.inputs[0]
    return info is not None and not info.constant
