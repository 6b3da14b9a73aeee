"""The rules, one family a file; `onnxroof.fusion.runtimes` says who has which."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.fusion.chain import Chain
    from onnxroof.fusion.composite import Composite
    from onnxroof.fusion.elementwise import Elementwise
    from onnxroof.fusion.rules.quantization import IntegerKernels, WeightOnly
    from onnxroof.fusion.rules.siblings import Siblings

    Rule: TypeAlias = Chain | Composite | Elementwise | IntegerKernels | Siblings | WeightOnly


@cache
def all_rules() -> Mapping[str, Rule]:
    """Every rule by name."""
    from onnxroof.fusion.rules import (
        activation,
        attention,
        convolution,
        layout,
        matmul,
        normalization,
        pointwise,
        quantization,
        siblings,
    )

    families = (
        quantization, siblings, activation, normalization, attention, convolution, matmul, layout,
        pointwise,
    )  # fmt: skip
    return {rule.name: rule for family in families for rule in family.RULES}
