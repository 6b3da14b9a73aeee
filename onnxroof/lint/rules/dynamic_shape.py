"""DIM001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import named
from onnxroof.graph.types import SymbolicDim
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding


class DynamicShape(Rule):
    """Sizes that are not known before the run keep memory from being planned ahead.

    ## Why it costs
    With all sizes known a runtime lays every tensor into one arena once and never allocates again;
    microcontrollers and NPUs have no other way. A size that depends on the data (NonZero,
    NonMaxSuppression, Loop) or a free spatial or sequence axis forces allocation at run time,
    padding to the largest case, or one engine per shape.

    ## Flagged
        agraph (float[64] x) => (int64[1,n] y)
        { y = NonZero (x) }

    ## Clean
        agraph (float[64] x) => (bool[64] y)
        <float zero = {0.0}>
        { y = Greater (x, zero) }

    ## What to do
    Fix the axis in the export, or export one model per size. For data-dependent sizes: replace the
    selection by a mask, or by TopK with a fixed k; or cut that part off and run it on the host.
    A free batch axis is not reported: runtimes plan for the batch they are given.
    """

    code = "DIM001"
    name = "dynamic-shape"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        for op_type, nodes in _data_dependent(analysis).items():
            yield self.found(
                f"only the run tells the size of what {op_type} makes"
                f" ({units.plural(len(nodes), 'node')}: {named(nodes)})",
                nodes=nodes,
            )
        free: dict[str, list[str]] = {}
        for item in analysis.model.graph.inputs:
            for dim in (item.type.shape or ())[1:]:
                if isinstance(dim, SymbolicDim):
                    free.setdefault(str(dim), []).append(item.name)
        for axis, names in free.items():
            inputs = list(dict.fromkeys(names))
            yield self.found(
                f"axis {axis} of {units.plural(len(inputs), 'input')} is free: {named(inputs)}",
                tensors=inputs,
            )


def _data_dependent(analysis: Analysis) -> dict[str, list[str]]:
    """Operator → labels of its nodes that make sizes nobody knows before the run."""
    makers = {name.rpartition(".")[0] for name in analysis.data_dependent}
    found: dict[str, list[str]] = {}
    for node in analysis.nodes:
        if not makers.isdisjoint(node.node.outputs):
            found.setdefault(node.op_type, []).append(node.name)
    return found
