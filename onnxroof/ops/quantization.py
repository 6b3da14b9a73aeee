"""Linear quantization, block floating point, and ONNX Runtime's 8-bit elementwise operators.

Counting: quantizing or dequantizing is one operation per element. An 8-bit operator that
dequantizes, computes and requantizes in one go is counted as the operator it stands for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import is_exact, smallest
from onnxroof.graph.types import DType
from onnxroof.ops.activation import softmax_cost, softmax_rows
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, unless_none
from onnxroof.ops.element_types import dtype_attr
from onnxroof.ops.geometry import broadcast, ceil_div, normalize_axis
from onnxroof.ops.reduction import reduced_shape, reduction_work
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape

_ONE_INPUT = ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
_TWO_INPUTS = ("QLinearAdd", "QLinearMul")
_CONCATENATED = 128
"""Inputs of a QLinearConcat whose scales and zero points are told from weights."""

for _domain in ("", MICROSOFT):
    declare("QuantizeLinear", domain=_domain, quantization=(1, 2), pointwise=True)
    declare(
        "DequantizeLinear", domain=_domain, quantization=(1, 2), integer_weights=(0,),
        pointwise=True,
    )  # fmt: skip
declare("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT,
        quantization=(1, 2, 3, 4), pointwise=True)  # fmt: skip
declare("QLinearSoftmax", "QLinearReduceMean", domain=MICROSOFT, quantization=(1, 2, 3, 4))
declare(*_TWO_INPUTS, domain=MICROSOFT, quantization=(1, 2, 4, 5, 6, 7), pointwise=True)
declare("QLinearWhere", domain=MICROSOFT, quantization=(2, 3, 5, 6, 7, 8), pointwise=True)
declare("QLinearConcat", domain=MICROSOFT, quantization=(
    0, 1, *(first + offset for first in range(2, 2 + 3 * _CONCATENATED, 3) for offset in (1, 2)),
))  # fmt: skip
declare("MulInteger", domain=MICROSOFT, quantization=(1, 3), pointwise=True)
declare(
    "GatherBlockQuantized", domain=MICROSOFT, quantization=(2, 3),
    unpacked=lambda call, position: call.input(position).elements * _values_per_element(call),
)  # fmt: skip
declare("DequantizeBFP", domain=MICROSOFT, control=(1, 2))
declare("QOrderedGelu", domain=MICROSOFT, quantization=(1, 2), pointwise=True)
declare("QuantizeWithOrder", "DequantizeWithOrder", domain=MICROSOFT, quantization=(1,))


# -- QuantizeLinear, DequantizeLinear --------------------------------------------------------


@shape_rule("QuantizeLinear")
@shape_rule("QuantizeLinear", domain=MICROSOFT)
def quantize_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of x, in the zero point's type, else output_dtype, else uint8."""
    zero_point = call.input(2).dtype if call.has(2) else None
    _check_scale(call)
    return (call.input(0).like(dtype=zero_point or dtype_attr(call, "output_dtype", DType.UINT8)),)


@shape_rule("DequantizeLinear")
@shape_rule("DequantizeLinear", domain=MICROSOFT)
def dequantize_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of x, in output_dtype, else in the scale's type."""
    _check_scale(call)
    dtype = dtype_attr(call, "output_dtype", call.input(1).dtype)
    return (TensorInfo(dtype, call.input(0).shape),)


@cost_rule("QuantizeLinear", "DequantizeLinear")
@cost_rule("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
@cost_rule("QuantizeWithOrder", "DequantizeWithOrder", domain=MICROSOFT)
def quantize_cost(call: OpCall) -> OpCost:
    """Quantization or dequantization: per tensor, per axis or in blocks.

    Shapes
        x [*D]    y [*D]    scale and zero point: scalar, [D[axis]], or [*, ⌈D[axis] / block⌉, *]
    Formula
        flops = elements of y
    Source
        ONNX operator reference; ONNX Runtime, ContribOperators.
    """
    return OpCost(flops=call.output().elements)


def _check_scale(call: OpCall) -> None:
    """A 1-D scale of several elements is per axis and as long as the axis; blocks must fit."""
    x, scale = call.input(0).shape, call.input(1).shape
    axis = call.attr("axis", 1)
    if x is None or scale is None or not -len(x) <= axis < len(x):
        return
    axis %= len(x)
    block = call.attr("block_size", 0)
    if block and len(scale) == len(x):
        expected: Shape = (*x[:axis], ceil_div(x[axis], block), *x[axis + 1 :])
    elif len(scale) == 1 and scale[0] != 1 and not block:
        expected = (x[axis],)
    else:
        return
    if scale != expected and all(map(is_exact, (*scale, *expected))):
        raise Impossible(f"scale of shape {scale} does not fit x of shape {x}, {expected} does")


@shape_rule("DynamicQuantizeLinear")
def dynamic_quantize_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The output uint8 of the shape of x, a float scale and a uint8 zero point, both scalar."""
    y = call.input(0).like(dtype=DType.UINT8)
    return (y, TensorInfo(DType.FLOAT, ()), TensorInfo(DType.UINT8, ()))


@cost_rule("DynamicQuantizeLinear")
def dynamic_quantize_cost(call: OpCall) -> OpCost:
    """Quantization by the range of the data.

    Shapes
        x [*] of n elements    y [*]    y_scale []    y_zero_point []
    Formula
        flops = 3·n + 6: minimum and maximum 2·(n − 1), both stretched to hold 0: 2, scale 2
        (difference, division), zero point 4 (division, difference, rounding, saturation),
        quantization n
    Source
        ONNX operator reference.
    """
    elements = call.input(0).elements
    return unless_none(elements, OpCost(flops=3 * elements + 6))


@shape_rule("QuantizeWithOrder", domain=MICROSOFT)
def quantize_with_order_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int8 of the shape of the input, in another order."""
    return (call.input(0).like(dtype=DType.INT8),)


@shape_rule("DequantizeWithOrder", domain=MICROSOFT)
def dequantize_with_order_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The type `to` in the shape of the input."""
    return (call.input(0).like(dtype=dtype_attr(call, "to", DType.FLOAT)),)


# -- block floating point --------------------------------------------------------------------


@shape_rule("QuantizeBFP", domain=MICROSOFT)
def quantize_bfp_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Raw bytes whose number the format alone decides, then shape and strides of x."""
    rank = call.input(0).rank
    sizes = TensorInfo(DType.INT64, (rank,))
    return (TensorInfo(DType.UINT8, None), sizes, sizes)


@shape_rule("DequantizeBFP", domain=MICROSOFT)
def dequantize_bfp_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape the second input names, in the type `dtype`."""
    shape = call.ints(1, "the shape")
    return (TensorInfo(dtype_attr(call, "dtype", DType.FLOAT), shape),)


@cost_rule("QuantizeBFP", domain=MICROSOFT)
def quantize_bfp_cost(call: OpCall) -> OpCost:
    """Conversion to block floating point.

    Formula
        flops = elements of x
    Source
        ONNX Runtime, ContribOperators.
    """
    return OpCost(flops=call.input(0).elements)


@cost_rule("DequantizeBFP", domain=MICROSOFT)
def dequantize_bfp_cost(call: OpCall) -> OpCost:
    """Conversion from block floating point.

    Formula
        flops = elements of y
    Source
        ONNX Runtime, ContribOperators.
    """
    return OpCost(flops=call.output().elements)


# -- 8-bit operators -------------------------------------------------------------------------


@shape_rule(*_ONE_INPUT, "QOrderedGelu", domain=MICROSOFT)
def qlinear_unary_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the type and shape of X."""
    return (call.input(0).like(),)


@shape_rule(*_TWO_INPUTS, domain=MICROSOFT)
def qlinear_binary_shape(call: OpCall) -> Sequence[TensorInfo]:
    """C has the type of A and the shape A (input 0) and B (input 3) broadcast to."""
    return (call.input(0).like(broadcast(call.shape(0), call.shape(3))),)


@shape_rule("QLinearWhere", domain=MICROSOFT)
def qlinear_where_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Z has the type of X and the shape condition, X (input 1) and Y (input 4) broadcast to."""
    return (call.input(1).like(broadcast(call.shape(0), call.shape(1), call.shape(4))),)


@shape_rule("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The reduced axes become 1 (keepdims, the default) or go."""
    return (call.input(0).like(reduced_shape(call)),)


@shape_rule("QLinearConcat", domain=MICROSOFT)
def qlinear_concat_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Inputs 2, 5, 8, … joined along `axis`; the result has the type of Y_zero_point."""
    shapes = [call.shape(position) for position in range(2, len(call.inputs), 3)]
    if not shapes:
        raise Impossible("there is nothing to concatenate")
    axis = normalize_axis(call.attr("axis", 1), len(shapes[0]))
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(others) > 1:
        raise Impossible(f"shapes {shapes} differ on another axis than {axis}")
    joined = sum(shape[axis] for shape in shapes)
    first = shapes[0]
    return (call.input(1).like((*first[:axis], joined, *first[axis + 1 :])),)


@shape_rule("MulInteger", domain=MICROSOFT)
def mul_integer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """C is int32, of the shape A (input 0) and B (input 2) broadcast to."""
    return (TensorInfo(DType.INT32, broadcast(call.shape(0), call.shape(2))),)


@cost_rule(*_TWO_INPUTS, "QLinearLeakyRelu", "QLinearWhere", "MulInteger", domain=MICROSOFT)
def qlinear_cost(call: OpCall) -> OpCost:
    """Elementwise operator on 8-bit integers.

    Shapes
        Inputs broadcast to the output; scales and zero points are scalar.
    Formula
        flops = elements of the output
    Convention
        Dequantizing and requantizing are part of the one operation.
    Source
        ONNX Runtime, ContribOperators.
    """
    return OpCost(flops=call.output().elements)


@cost_rule("QLinearSigmoid", "QOrderedGelu", domain=MICROSOFT)
def qlinear_transcendental_cost(call: OpCall) -> OpCost:
    """Elementwise transcendental function on 8-bit integers.

    Shapes
        X [*]    Y [*]    scales and zero points scalar
    Formula
        flops = transcendentals = elements of Y
    Convention
        Dequantizing and requantizing are part of the one operation, a table look-up or not.
    Source
        ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    return OpCost(flops=elements, transcendentals=elements)


@cost_rule("QLinearConcat", domain=MICROSOFT)
def qlinear_concat_cost(call: OpCall) -> OpCost:
    """Concatenation of tensors of different scales: each element is rescaled once.

    Formula
        flops = elements of Y
    Source
        ONNX Runtime, ContribOperators.
    """
    return OpCost(flops=call.output().elements)


@cost_rule("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax_cost(call: OpCall) -> OpCost:
    """Softmax on 8-bit integers over rows of n elements.

    Shapes
        X [*D]; n = D[axis], or prod(D[axis:]) where the attribute opset is below 13
    Formula
        flops = 5·n − 2 per row; transcendentals = n per row
    Source
        ONNX Runtime, ContribOperators.
    """
    coerced = call.attr("opset", 13) < 13
    return softmax_cost(*softmax_rows(call, default_axis=-1, coerced=coerced))


@cost_rule("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean_cost(call: OpCall) -> OpCost:
    """Mean of n 8-bit integers.

    Formula
        flops = n per element of the output
    Source
        ONNX Runtime, ContribOperators.
    """
    return reduction_work(call, 1, 0, 0, 0)


# -- GatherBlockQuantized --------------------------------------------------------------------


@shape_rule("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Rows of the unpacked data along gather_axis, in the type of the scales."""
    data = list(call.shape(0))
    data[-1] *= _values_per_element(call)
    axis = normalize_axis(call.attr("gather_axis", 0), len(data))
    shape = (*data[:axis], *call.shape(1), *data[axis + 1 :])
    return (call.input(2).like(shape),)


@cost_rule("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized_cost(call: OpCall) -> OpCost:
    """Rows of a block-quantized table, dequantized.

    Shapes
        data [*D], packed along the last axis when stored as uint8 with bits < 8
        indices [*I]    output [*D[:axis], *I, *D[axis + 1:]]
    Formula
        flops = elements of the output
    Traffic
        of data, scales and zero points the rows taken, at most all
    Source
        ONNX Runtime, ContribOperators.
    """
    shape = call.shape(0)
    axis = normalize_axis(call.attr("gather_axis", 0), len(shape))
    rows, taken = shape[axis], math.prod(call.shape(1))
    reads = {
        position: smallest(ceil_div(nbytes * taken, rows), nbytes)
        for position in (0, 2, 3)
        if call.has(position) and (nbytes := call.input(position).nbytes) is not None
        if rows and call.shape(position)[axis] == rows
    }
    return OpCost(flops=call.output().elements, reads=reads)


def _values_per_element(call: OpCall) -> int:
    """Quantized values in one stored element."""
    if call.input(0).dtype is not DType.UINT8:
        return 1
    bits = call.attr("bits", 4)
    if bits not in (2, 4, 8):
        raise Impossible(f"bits must be 2, 4 or 8, got {bits}")
    return 8 // bits
