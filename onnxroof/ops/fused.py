"""What an activation fused into another operator adds to its work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.ops.call import OpCost, unless_none
from onnxroof.ops.geometry import normalize_axis

if TYPE_CHECKING:
    from onnxroof.ops.call import OpCall

_EVALUATED = frozenset({
    "celu", "elu", "fastgelu", "gelu", "geglu", "logsigmoid", "mish", "parametricsoftplus",
    "quickgelu", "scaledtanh", "selu", "sigmoid", "silu", "softplus", "swiglu", "swish", "tanh",
})  # fmt: skip
"""Activations that evaluate exp, tanh or erf, in lower case."""

_NONE = frozenset({"", "none", "identity"})


def activation_cost(name: str, elements: int) -> OpCost:
    """One operation an element, which is a transcendental one for the sigmoid and exp families."""
    lowered = name.lower()
    if lowered in _NONE:
        return OpCost()
    return OpCost(0, elements, elements if lowered in _EVALUATED else 0)


def fused_activation(call: OpCall) -> OpCost:
    """Work of the operator's `activation` attribute over its first output."""
    name = call.attr("activation", "")
    y = call.output()
    if name.lower() not in ("softmax", "logsoftmax"):
        return activation_cost(name, y.elements)
    axis = normalize_axis(call.attr("activation_axis", -1), y.rank)
    rows = math.prod(dim for position, dim in enumerate(y.dims) if position != axis)
    each = y.dims[axis]
    if name.lower() == "softmax":
        return unless_none(each, OpCost(0, rows * (5 * each - 2), rows * each))
    return unless_none(each, OpCost(0, rows * (5 * each - 1), rows * (each + 1)))
