"""Values of elementwise operators, for the arithmetic that computes shapes inside a graph."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import largest, smallest
from onnxroof.graph.types import DType
from onnxroof.graph.values import NUMPY_TYPE
from onnxroof.ops import arithmetic
from onnxroof.ops.arithmetic import evaluate
from onnxroof.ops.elementwise import legacy_axis, running_axis
from onnxroof.ops.registry import value_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.ops.arithmetic import ArrayFunction, IntervalFunction
    from onnxroof.ops.call import OpCall, Value

_Pair = tuple["ArrayFunction", "IntervalFunction | None"]

_UNARY: Mapping[str, _Pair] = {
    "Abs": (np.abs, arithmetic.absolute_interval),
    "Ceil": (np.ceil, None),
    "Exp": (np.exp, None),
    "Floor": (np.floor, None),
    "IsNaN": (np.isnan, None),
    "Log": (np.log, None),
    "Neg": (np.negative, lambda a: -a),
    "Not": (np.logical_not, None),
    "Reciprocal": (np.reciprocal, None),
    "Relu": (lambda x: np.maximum(x, np.zeros_like(x)), lambda a: largest(a, 0)),
    "Round": (np.rint, None),
    "Sign": (np.sign, arithmetic.sign_interval),
    "Sqrt": (np.sqrt, None),
    "BitwiseNot": (np.invert, None),
}

_BINARY: Mapping[str, _Pair] = {
    "Add": (np.add, lambda a, b: a + b),
    "Sub": (np.subtract, lambda a, b: a - b),
    "Mul": (np.multiply, lambda a, b: a * b),
    "Div": (arithmetic.divide, arithmetic.divide_interval),
    "Pow": (arithmetic.power, None),
    "BitwiseAnd": (np.bitwise_and, None),
    "BitwiseOr": (np.bitwise_or, None),
    "BitwiseXor": (np.bitwise_xor, None),
}

_COMPARISONS: Mapping[str, _Pair] = {
    "And": (np.logical_and, None),
    "Or": (np.logical_or, None),
    "Xor": (np.logical_xor, None),
    "Equal": (np.equal, arithmetic.equal_interval),
    "Less": (np.less, arithmetic.less_interval),
    "LessOrEqual": (np.less_equal, arithmetic.less_or_equal_interval),
    "Greater": (np.greater, lambda a, b: arithmetic.less_interval(b, a)),
    "GreaterOrEqual": (np.greater_equal, lambda a, b: arithmetic.less_or_equal_interval(b, a)),
}

_VARIADIC: Mapping[str, _Pair] = {
    "Max": (np.maximum, largest),
    "Min": (np.minimum, smallest),
    "Sum": (np.add, lambda a, b: a + b),
}


@value_rule(*(name for name in _UNARY if name not in ("IsNaN", "Not")))
def unary_value(call: OpCall) -> Sequence[Value | None]:
    """The function of every element."""
    exact, bounded = _UNARY[call.op_type]
    return (evaluate(exact, bounded, call.input(0).dtype, _value(call, 0)),)


@value_rule("IsNaN", "Not")
def predicate_value(call: OpCall) -> Sequence[Value | None]:
    """The predicate of every element."""
    exact, bounded = _UNARY[call.op_type]
    return (evaluate(exact, bounded, DType.BOOL, _value(call, 0)),)


@value_rule(*_BINARY)
def binary_value(call: OpCall) -> Sequence[Value | None]:
    """Integers: Div truncates toward zero, overflow wraps; Pow keeps the type of its base."""
    exact, bounded = _BINARY[call.op_type]
    return (evaluate(exact, bounded, call.input(0).dtype, _value(call, 0), _second(call)),)


@value_rule("Mod")
def mod_value(call: OpCall) -> Sequence[Value | None]:
    """Sign of the divisor, or of the dividend with fmod=1."""
    exact = arithmetic.fmod if call.attr("fmod", 0) else arithmetic.modulo
    dtype = call.input(0).dtype
    return (evaluate(exact, arithmetic.modulo_interval, dtype, _value(call, 0), _value(call, 1)),)


@value_rule("BitShift")
def bit_shift_value(call: OpCall) -> Sequence[Value | None]:
    """X moved by Y bits to the left or right."""
    exact = np.left_shift if call.attr("direction", "") == "LEFT" else np.right_shift
    return (evaluate(exact, None, call.input(0).dtype, _value(call, 0), _value(call, 1)),)


@value_rule(*_COMPARISONS)
def comparison_value(call: OpCall) -> Sequence[Value | None]:
    """Booleans, where the bounds of the operands decide them."""
    exact, bounded = _COMPARISONS[call.op_type]
    if call.input(0).dtype is DType.STRING:
        return (None,)
    return (evaluate(exact, bounded, DType.BOOL, _value(call, 0), _second(call)),)


@value_rule(*_VARIADIC)
def variadic_value(call: OpCall) -> Sequence[Value | None]:
    """The inputs combined one after the other."""
    exact, bounded = _VARIADIC[call.op_type]
    dtype = call.input(0).dtype

    def combine(one: Value | None, other: Value | None) -> Value | None:
        if one is None or other is None:
            return None
        return evaluate(exact, bounded, dtype, one, other)

    return (reduce(combine, (info.value for info in call.given())),)


@value_rule("Where")
def where_value(call: OpCall) -> Sequence[Value | None]:
    """X where the condition holds, else Y."""
    values = (_value(call, 0), _value(call, 1), _value(call, 2))
    return (evaluate(np.where, arithmetic.choose, call.input(1).dtype, *values),)


@value_rule("Clip")
def clip_value(call: OpCall) -> Sequence[Value | None]:
    """Not below min, then not above max, each when given."""
    result: Value | None = _value(call, 0)
    dtype = call.input(0).dtype
    for position, name, choice in ((1, "min", "Max"), (2, "max", "Min")):
        limit = call.value(position)
        if limit is None and name in call.attributes:
            limit = np.asarray(call.attr(name, 0.0), dtype=_value(call, 0).dtype)
        if limit is not None and result is not None:
            result = evaluate(*_VARIADIC[choice], dtype, result, limit)
    return (result,)


@value_rule("Cast", "CastLike")
def cast_value(call: OpCall) -> Sequence[Value | None]:
    """Floats to integers truncate, to booleans: not zero; bounded integers stay integers."""
    value, target = _value(call, 0), call.outputs[0].dtype
    source = call.input(0).dtype
    if target is None or source is None or DType.STRING in (source, target):
        return (None,)
    if target is DType.BOOL:
        return (evaluate(lambda x: x != 0, arithmetic.nonzero_interval, target, value),)
    bounded = (lambda a: a) if target.is_integer else None
    return (evaluate(lambda x: x, bounded, target, value),)


@value_rule("BitCast")
def bit_cast_value(call: OpCall) -> Sequence[Value | None]:
    """The same bits under another type."""
    value, target = _value(call, 0), NUMPY_TYPE.get(call.outputs[0].dtype or DType.STRING)
    if target is None or arithmetic.is_bounded(value):
        return (None,)
    return (value.view(target),)


@value_rule("CumSum", "CumProd")
def running_value(call: OpCall) -> Sequence[Value | None]:
    """Running sum or product; `exclusive` shifts by one, `reverse` runs from the end."""
    value = _value(call, 0)
    dtype = call.input(0).dtype
    target = NUMPY_TYPE.get(dtype) if dtype is not None else None
    if target is None or not value.ndim:
        return (None,)
    if not value.size:
        return (value,)
    axis = running_axis(call)
    summing = call.op_type == "CumSum"
    lines = np.flip(value, axis) if call.attr("reverse", 0) else value
    if call.attr("exclusive", 0):
        first = np.full_like(lines.take([0], axis), 0 if summing else 1)
        lines = np.concatenate([first, lines.take(range(lines.shape[axis] - 1), axis)], axis)
    with np.errstate(all="ignore"):
        result = (np.add if summing else np.multiply).accumulate(lines, axis)
    result = np.flip(result, axis) if call.attr("reverse", 0) else result
    if arithmetic.is_bounded(value):
        return (arithmetic.settle(result, target),)
    return (result.astype(target, copy=False),)


def _value(call: OpCall, position: int) -> Value:
    """A value the walk has made sure of."""
    value = call.value(position)
    if value is None:
        raise ValueError(f"the value of input {position} is not known")
    return value


def _second(call: OpCall) -> Value:
    """The second operand, aligned as opset 6 and before wanted it."""
    value, axis = _value(call, 1), legacy_axis(call)
    if axis is None:
        return value
    trailing = len(call.shape(0)) - axis - value.ndim
    return value.reshape(value.shape + (1,) * max(trailing, 0))
