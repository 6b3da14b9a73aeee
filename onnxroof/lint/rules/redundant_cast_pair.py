"""STR001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.lint.reading import producers, runs, without
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding

_EXACT_IN: Mapping[DType, frozenset[DType]] = {
    DType.FLOAT16: frozenset({DType.FLOAT, DType.DOUBLE}),
    DType.BFLOAT16: frozenset({DType.FLOAT, DType.DOUBLE}),
    DType.FLOAT: frozenset({DType.DOUBLE}),
    DType.BOOL: frozenset(dtype for dtype in DType if dtype.is_float or dtype.is_integer),
    DType.INT8: frozenset({DType.INT16, DType.INT32, DType.INT64, DType.FLOAT, DType.DOUBLE}),
    DType.UINT8: frozenset(
        {DType.INT16, DType.UINT16, DType.INT32, DType.INT64, DType.FLOAT, DType.DOUBLE}
    ),
    DType.INT16: frozenset({DType.INT32, DType.INT64, DType.FLOAT, DType.DOUBLE}),
    DType.INT32: frozenset({DType.INT64, DType.DOUBLE}),
}
"""Element type → types that hold every value of it."""


class RedundantCastPair(Rule):
    """A Cast is undone by the next one, or runs although its input has the type already.

    ## Why it costs
    Each Cast that runs reads and writes the whole tensor, and it keeps its neighbours from fusing.
    Mixed-precision converters leave such pairs at the border of every operator they skip.

    ## Flagged
        agraph (float16[1,64] x) => (float16[1,64] y)
        {
          wide = Cast<to = 1> (x)
          back = Cast<to = 10> (wide)
          y = Relu (back)
        }

    ## Clean
        agraph (float16[1,64] x) => (float[1,64] y)
        {
          wide = Cast<to = 1> (x)
          y = Relu (wide)
        }

    ## What to do
    Remove both casts. (A pair that narrows first and widens then rounds the values: it is not
    redundant, and not reported.)
    """

    code = "STR001"
    name = "redundant-cast-pair"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        makers = producers(analysis.cost)
        for node in analysis.nodes:
            if node.kind != "Cast" or not runs(node) or not node.call.outputs:
                continue
            source, target = node.call.inputs[0], node.call.outputs[0]
            if source is None or source.constant or source.dtype is None:
                continue
            if source.dtype is target.dtype:
                saving = without(analysis, {node.node.index})
                if saving.nbytes:  # else the runtime drops it, as it does with Identity
                    yield self.found(
                        f"{node.name} casts {source.dtype.label} to itself",
                        nodes=[node.name], seconds=saving.seconds, nbytes=saving.nbytes,
                    )  # fmt: skip
                continue
            first = makers.get(node.node.inputs[0])
            if first is None or first.kind != "Cast" or not runs(first):
                continue
            origin = first.call.inputs[0]
            if (
                origin is None
                or origin.dtype is not target.dtype
                or origin.dtype is None
                or source.dtype not in _EXACT_IN.get(origin.dtype, ())
            ):
                continue
            saving = without(analysis, {node.node.index, first.node.index})
            yield self.found(
                f"{first.name} casts {origin.dtype.label} to {source.dtype.label}, {node.name}"
                " casts it back without loss",
                nodes=[first.name, node.name], seconds=saving.seconds, nbytes=saving.nbytes,
            )  # fmt: skip
