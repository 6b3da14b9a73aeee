"""Elementwise arithmetic, comparison, logic and type conversion, and running sums along an axis.

Counting: one operation per element of the output, however it is implemented; where it evaluates a
transcendental function, that evaluation is the one operation and is also counted apart.
Value rules are in `elementwise_values`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.ops.arrays import has_bounds
from onnxroof.ops.call import FREE, Impossible, OpCost, TensorInfo, unless_none
from onnxroof.ops.element_types import dtype_attr
from onnxroof.ops.geometry import broadcast, broadcast_at, normalize_axis
from onnxroof.ops.registry import cost_rule, declare, declare_view, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape

UNARY = ("Abs", "BitwiseNot", "Ceil", "Floor", "Neg", "Reciprocal", "Round", "Sign")
"""One input, same type out, plain arithmetic."""

UNARY_TRANSCENDENTAL = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log", "Sin",
    "Sinh", "Sqrt", "Tan",
)  # fmt: skip
"""One input, same type out, a transcendental function."""

LEGACY_UNARY = ("Affine", "ImageScaler", "Scale")
"""Experimental operators of opset 1 that old files still hold."""

PREDICATES = ("IsInf", "IsNaN", "Not")
"""One input, boolean out."""

BINARY = ("Add", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Mod", "Mul", "Sub")
"""Two inputs of one type, same type out."""

COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor")
"""Two inputs, boolean out."""

VARIADIC = ("Max", "Mean", "Min", "Sum")

declare(*UNARY, *UNARY_TRANSCENDENTAL, *LEGACY_UNARY, *PREDICATES, pointwise=True)
declare(*BINARY, *COMPARISONS, *VARIADIC, "Pow", "Where", pointwise=True)
declare("Clip", control=(1, 2), pointwise=True)
declare("Cast", pointwise=True, free="converts a type, no arithmetic")
declare("CastLike", control=(1,), pointwise=True, free="converts a type, no arithmetic")
declare("CumSum", "CumProd", control=(1,))
declare_view("BitCast")


@shape_rule(*UNARY, *UNARY_TRANSCENDENTAL, *LEGACY_UNARY, "Clip")
def same_as_input(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the type and shape of X."""
    return (call.input(0).like(),)


@shape_rule(*PREDICATES)
def predicate_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y is boolean, of the shape of X."""
    return (call.input(0).like(dtype=DType.BOOL),)


@shape_rule(*BINARY, "Pow")
def binary_shape(call: OpCall) -> Sequence[TensorInfo]:
    """C has the type of A and the shape A and B broadcast to; before opset 7 A's own shape."""
    return (call.input(0).like(broadcast_pair(call)),)


@shape_rule(*COMPARISONS)
def comparison_shape(call: OpCall) -> Sequence[TensorInfo]:
    """C is boolean, of the shape A and B broadcast to; before opset 7 A's own shape."""
    return (TensorInfo(DType.BOOL, broadcast_pair(call)),)


@shape_rule(*VARIADIC)
def variadic_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The result has the shape all inputs broadcast to (before opset 8 all are equal)."""
    return (call.input(0).like(broadcast(*(info.dims for info in call.given()))),)


@shape_rule("Where")
def where_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape condition, X and Y broadcast to, in the type of X."""
    return (call.input(1).like(broadcast(call.shape(0), call.shape(1), call.shape(2))),)


@shape_rule("Cast", "BitCast")
def cast_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The input's shape in the type `to`; BitCast keeps the bits per element."""
    target = dtype_attr(call, "to", None)
    if target is None:
        raise Impossible("attribute to is missing")
    source = call.input(0)
    if call.op_type == "BitCast" and source.dtype and source.dtype.bits != target.bits:
        raise Impossible(f"{source.dtype.label} and {target.label} differ in bits per element")
    return (source.like(dtype=target),)


@shape_rule("CastLike")
def cast_like_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of the first input, in the type of the second."""
    return (TensorInfo(call.input(1).dtype, call.input(0).shape),)


@shape_rule("CumSum", "CumProd")
def running_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the type and shape of X; the axis must be one of X's."""
    axis = call.value(1)
    if axis is not None and not has_bounds(axis) and call.input(0).shape is not None:
        running_axis(call)
    return (call.input(0).like(),)


@cost_rule(*UNARY, *LEGACY_UNARY, *PREDICATES, *BINARY, *COMPARISONS, "Clip", "Where")
def one_operation_per_element(call: OpCall) -> OpCost:
    """Elementwise arithmetic, comparison or logic.

    Shapes
        Inputs broadcast to the output.
    Formula
        flops = elements of the output
    Source
        ONNX operator reference.
    """
    return OpCost(flops=call.output().elements)


@cost_rule(*UNARY_TRANSCENDENTAL, "Pow")
def one_transcendental_per_element(call: OpCall) -> OpCost:
    """Elementwise transcendental function: the evaluation is the one operation.

    Shapes
        Inputs broadcast to the output.
    Formula
        flops = transcendentals = elements of the output
    Source
        ONNX operator reference.
    """
    elements = call.output().elements
    return OpCost(flops=elements, transcendentals=elements)


@cost_rule(*VARIADIC)
def variadic_cost(call: OpCall) -> OpCost:
    """Elementwise sum, maximum, minimum or mean of k tensors.

    Shapes
        k inputs that broadcast to the output.
    Formula
        flops = (k − 1) · elements of the output; Mean: k · elements, with its division
    Source
        ONNX operator reference.
    """
    operations = len(call.given()) - (call.op_type != "Mean")
    return OpCost(flops=operations * call.output().elements)


@cost_rule("Cast", "CastLike")
def cast_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: a change of type."""
    call.output()
    return FREE


@cost_rule("CumSum", "CumProd")
def running_cost(call: OpCall) -> OpCost:
    """Running sum or product along one axis.

    Shapes
        x [*, n, *]    y [*, n, *]
    Formula
        flops = (n − 1) per line along the axis
    Convention
        With an axis that is computed at run time: one per element, which is at most one per line
        too many.
    Source
        ONNX operator reference.
    """
    elements = call.output().elements
    axis = call.value(1)
    if axis is None or has_bounds(axis):
        return OpCost(flops=elements, note="the axis is not known: one operation per element")
    shape = call.shape(0)
    if not shape:
        return FREE
    along = running_axis(call)
    lines = math.prod(dim for axis, dim in enumerate(shape) if axis != along)
    return unless_none(shape[along], OpCost(flops=lines * (shape[along] - 1)))


def running_axis(call: OpCall) -> int:
    """The axis of CumSum and CumProd as a position (0 for a scalar)."""
    return normalize_axis(call.exact_ints(1, "the axis")[0], len(call.shape(0)) or 1)


def legacy_axis(call: OpCall) -> int | None:
    """Where the second operand is aligned in opset 6 and before; None: at the last axes."""
    if call.opset >= 7 or "axis" not in call.attributes:
        return None
    rank, other = len(call.shape(0)), len(call.shape(1))
    axis = call.attr("axis", 0)
    axis = axis + rank if axis < 0 else axis
    if other < rank and axis + other > rank:
        return None
    return axis


def broadcast_pair(call: OpCall) -> Shape:
    """Shape of a binary operator's result.

    Before opset 7 only the second operand stretches, aligned where the attribute `axis` says.

    Raises:
        Impossible: The operands do not broadcast.
    """
    a, b = call.shape(0), call.shape(1)
    axis = legacy_axis(call)
    return broadcast(a, b) if axis is None else broadcast_at(a, b, axis)
