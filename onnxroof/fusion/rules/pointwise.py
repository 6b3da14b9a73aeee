"""Neighbouring elementwise operators."""

from __future__ import annotations

from onnxroof.fusion.chain import Chain
from onnxroof.fusion.elementwise import Elementwise
from onnxroof.fusion.rules.convolution import LITE

RULES = (
    Chain(
        name="add-activation",
        anchors=frozenset({"Add", "Sub", "Mul", "Div", "AveragePool"}),
        then=(LITE,),
        why="The activation runs on the result before it is stored.",
    ),
    Elementwise(
        name="elementwise",
        why="Each element passes through all of them in registers: one read, one write.",
    ),
    Elementwise(
        name="elementwise-broadcast",
        why="A smaller operand is computed on the fly for each element that needs it.",
        broadcasts=True,
    ),
    Elementwise(
        name="elementwise-reduction",
        why="A generated loop computes what a reduction reads, the reduction, and what is made "
        "of its result, while the row stays on chip.",
        broadcasts=True,
        through_views=True,
        reductions=True,
        stores=True,
    ),
)
