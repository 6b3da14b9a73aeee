"""What a constant is for, decided by who reads it: weight, quantization data or control."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.cost.records import Role
from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from onnxroof.graph.types import Constant
    from onnxroof.ops.call import OpCall
    from onnxroof.ops.registry import Operator

_SCALED_BY_PARAMETERS = frozenset({"Add", "Mul", "MulInteger", "PRelu", "QLinearAdd", "QLinearMul"})
"""Elementwise operators whose single-element operand may be learned: a bias, a scale, a slope."""

_RETYPING = frozenset({"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"})
"""Operators that give a constant another type: it stays what it was to its reader."""

_LOOKUPS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators whose further inputs index the first."""


def role_at(
    call: OpCall, position: int, constant: Constant, *, is_packed: bool = False
) -> Role | None:
    """What reading a constant at an input makes it; None: decided by who reads the folded result.

    Weights are floating-point constants and integers of up to 16 bits or with several values in
    each (`is_packed`); other integers and booleans index and steer, unless the operator says that
    this input is a weight (an int32 bias). A single number in elementwise arithmetic is a literal
    of the model's code, not a parameter, except a one-element initializer that Add, Mul or PRelu
    reads. So is an initial state that a Constant node holds: the zeros of the model's code.
    """
    operator = call.operator
    may_be_weight = is_weight_type(constant.dtype) or (is_packed and _takes_values(call))
    if operator is not None:
        if position in operator.quantization:
            return Role.QUANTIZATION
        if position in operator.control or _steers(call, position):
            return Role.CONTROL
        passes = call.folded and not position and call.kind in _RETYPING
        if position in operator.integer_weights and not (passes and may_be_weight):
            return Role.WEIGHT
        may_be_literal = (operator.pointwise and not passes) or position in operator.states
        if may_be_literal and _is_literal(call, operator, position, constant):
            return Role.CONTROL
    if not may_be_weight:
        return Role.CONTROL
    return None if call.folded else Role.WEIGHT


def _steers(call: OpCall, position: int) -> bool:
    """Whether an input is an index or a condition, whatever it was stored as."""
    info = call.inputs[position]
    is_condition = info is not None and info.dtype is DType.BOOL
    return is_condition or (position > 0 and call.kind in _LOOKUPS)


def _takes_values(call: OpCall) -> bool:
    """Whether numbers wider than weights may be some; not in arithmetic on what a run computes."""
    return call.folded or call.operator is None or not call.operator.pointwise


def _is_literal(call: OpCall, operator: Operator, position: int, constant: Constant) -> bool:
    """A single number or a zero state that the exporter wrote for a literal in the code.

    The operator is elementwise, or the constant is a state.
    """
    if position in operator.states:
        return constant.origin == "Constant"
    shape = constant.shape
    if not shape:
        return True
    if math.prod(shape) != 1:
        return False
    return constant.origin == "Constant" or call.kind not in _SCALED_BY_PARAMETERS


def is_weight_type(dtype: DType) -> bool:
    """Floats and integers of up to 16 bits; wider integers and booleans index and steer."""
    if dtype.is_float:
        return True
    return dtype.is_integer and dtype.bits is not None and dtype.bits <= 16
