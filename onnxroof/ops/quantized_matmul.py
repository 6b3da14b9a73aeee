"""Matrix products of quantized operands: integer products, and products with packed weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.checks import require_equal
from onnxroof.ops.fused import activation_cost
from onnxroof.ops.matmul import gemm_dims, matmul_dims
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape


def _integer_type(info: TensorInfo) -> DType | None:
    """Type of the multiply-accumulates: int8 for both signs of 8 bits, else the operand's own."""
    return None if info.dtype is None else info.dtype.multiplied


def _shifted(call: OpCall, *pairs: tuple[int, int]) -> int:
    """Subtractions of zero points from operands that are computed at run time."""
    return sum(
        call.input(operand).elements
        for operand, zero_point in pairs
        if call.has(zero_point) and not call.input(operand).constant
    )


@shape_rule("MatMulInteger")
@shape_rule("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int32 Y, sized as MatMul."""
    return [TensorInfo(DType.INT32, matmul_dims(call.shape(0), call.shape(1)))]


@cost_rule("MatMulInteger")
@cost_rule("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_cost(call: OpCall) -> OpCost:
    """Matrix product of integers with 32-bit sums.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus one subtraction per element of each operand that has a zero point
        and is not a constant
    Source
        ONNX operator reference, MatMulInteger; ONNX Runtime contrib operators, MatMulInteger16.
    """
    macs = call.output().elements * call.shape(0)[-1]
    flops = 2 * macs + _shifted(call, (0, 2), (1, 3))
    return OpCost(macs, flops, compute_dtype=_integer_type(call.input(0)))


@shape_rule("QLinearMatMul")
def qlinear_matmul_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y of the type of y_zero_point, sized as MatMul."""
    return [TensorInfo(call.input(7).dtype, matmul_dims(call.shape(0), call.shape(3)))]


@cost_rule("QLinearMatMul")
def qlinear_matmul_cost(call: OpCall) -> OpCost:
    """Matrix product of 8-bit values, requantized.

    Formula
        macs = elements of y · K
        flops = 2 · macs, plus one subtraction per element of each operand that has a zero point
        and is not a constant, plus one per element of y for the requantization
    Source
        ONNX operator reference, QLinearMatMul.
    """
    y = call.output().elements
    macs = y * call.shape(0)[-1]
    flops = 2 * macs + y + _shifted(call, (0, 2), (3, 5))
    return OpCost(macs, flops, compute_dtype=_integer_type(call.input(0)))


@shape_rule("QGemm", domain=MICROSOFT)
def qgemm_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [M, N]: quantized if y_zero_point is given, else of the type of a_scale."""
    rows, _, columns = gemm_dims(call, call.shape(0), call.shape(3))
    dtype = call.input(8).dtype if call.has(8) else call.input(1).dtype
    return [TensorInfo(dtype, (rows, columns))]


@cost_rule("QGemm", domain=MICROSOFT)
def qgemm_cost(call: OpCall) -> OpCost:
    """Quantized Gemm.

    Shapes
        A [M, K]    B [K, N]    C int32, broadcasts to [M, N], optional    Y [M, N]
    Formula
        macs = M · K · N
        flops = 2 · macs, plus one subtraction per element of an operand with a zero point that is
        not a constant, plus M · N for the (re)quantization and M · N for C if given
    Source
        ONNX Runtime contrib operators, QGemm.
    """
    rows, inner, columns = gemm_dims(call, call.shape(0), call.shape(3))
    y = rows * columns
    macs = y * inner
    flops = 2 * macs + _shifted(call, (0, 2), (3, 5)) + y + (y if call.has(6) else 0)
    return OpCost(macs, flops, compute_dtype=_integer_type(call.input(0)))


@shape_rule("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y of the type of a_scale, sized as MatMul."""
    return [TensorInfo(call.input(2).dtype, matmul_dims(call.shape(0), call.shape(1)))]


@cost_rule("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float_cost(call: OpCall) -> OpCost:
    """As MatMulInteger, scaled to floating point.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus one subtraction per element of each operand that has a zero point and
        is not a constant, plus one per element of Y for the scale and one for bias if given
    Source
        ONNX Runtime contrib operators, MatMulIntegerToFloat.
    """
    y = call.output().elements
    macs = y * call.shape(0)[-1]
    flops = 2 * macs + _shifted(call, (0, 4), (1, 5)) + y + (y if call.has(6) else 0)
    return OpCost(macs, flops, compute_dtype=_integer_type(call.input(0)))


@shape_rule("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y of the type of A, sized as MatMul."""
    return [call.input(0).like(matmul_dims(call.shape(0), call.shape(1)))]


@cost_rule("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul_cost(call: OpCall) -> OpCost:
    """Float A quantized on the fly, multiplied as 8-bit integers, and scaled back.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus 4 per element of A (minimum, maximum, quantization, zero point),
        plus one per element of Y for the scale and one for bias if given
    Source
        ONNX Runtime contrib operators, DynamicQuantizeMatMul.
    """
    y, a = call.output().elements, call.input(0).elements
    macs = y * call.shape(0)[-1]
    flops = 2 * macs + 4 * a + y + (y if call.has(4) else 0)
    return OpCost(macs, flops, compute_dtype=DType.INT8)


def _projected(call: OpCall, inner: int, columns: int) -> Shape:
    """[*batch, columns] from A [*batch, inner]. Raises Impossible when the last axis differs."""
    a = call.shape(0)
    require_equal(a[-1], inner, "the last axis of A and the weight's K differ")
    return (*a[:-1], columns)


def _required(call: OpCall, name: str) -> int:
    """A required integer attribute. Raises Impossible when absent or not positive."""
    value = call.attr(name, 0)
    if value < 1:
        raise Impossible(f"attribute {name} must be positive, got {value}")
    return value


@shape_rule("MatMulNBits", "MatMulPacked", domain=MICROSOFT)
def matmul_nbits_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*batch, N] from A [*batch, K]; K and N are attributes."""
    return [call.input(0).like(_projected(call, _required(call, "K"), _required(call, "N")))]


@cost_rule("MatMulNBits", domain=MICROSOFT)
def matmul_nbits_cost(call: OpCall) -> OpCost:
    """Product with a weight stored in 2 to 8 bits a value, dequantized on the way.

    Shapes
        A [*batch, K]    B uint8, K · N values of `bits` bits, packed    scales, zero points
        bias [N] optional    Y [*batch, N]
    Formula
        macs = elements of Y · K, in the type of A
        flops = 2 · macs, plus K · N for the dequantization (as DequantizeLinear), plus one per
        element of Y for bias if given
    Source
        ONNX Runtime contrib operators, MatMulNBits.
    """
    return _weight_only(call, call.attr("K", 0), call.attr("N", 0), bias=5)


@cost_rule("MatMulPacked", domain=MICROSOFT)
def matmul_packed_cost(call: OpCall) -> OpCost:
    """As MatMulNBits, with an optional activation of Y.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus K · N for the dequantization, plus the activation of Y
    Source
        ONNX Runtime contrib operators, MatMulPacked.
    """
    name = call.attr("activation_type", "none")
    cost = _weight_only(call, call.attr("K", 0), call.attr("N", 0))
    return cost + activation_cost(name, call.output().elements)


def _weight_only(call: OpCall, inner: int, columns: int, bias: int = -1) -> OpCost:
    """Product of A with a K × N weight that is dequantized once."""
    y = call.output().elements
    macs = y * inner
    biased = y if bias > 0 and call.has(bias) else 0
    dequantized = inner * columns if y else 0
    return OpCost(macs, 2 * macs + dequantized + biased)


@shape_rule("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*batch, N] from A [*batch, K]; with transB = 0 Y [*batch, K] from A [*batch, N]."""
    return [call.input(0).like(_projected(call, *_bnb4_sizes(call)))]


def _bnb4_sizes(call: OpCall) -> tuple[int, int]:
    inner, columns = _required(call, "K"), _required(call, "N")
    return (inner, columns) if call.attr("transB", 1) else (columns, inner)


@cost_rule("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4_cost(call: OpCall) -> OpCost:
    """As MatMulNBits, with a 4-bit float weight.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus K · N for the dequantization
    Source
        ONNX Runtime contrib operators, MatMulBnb4.
    """
    return _weight_only(call, *_bnb4_sizes(call))


@shape_rule("MatMulFpQ4", domain=MICROSOFT)
def matmul_fpq4_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y as MatMul of A with a weight of the shape that input B_shape holds."""
    return [call.input(0).like(matmul_dims(call.shape(0), call.ints(2, "the shape of B")))]


@cost_rule("MatMulFpQ4", domain=MICROSOFT)
def matmul_fpq4_cost(call: OpCall) -> OpCost:
    """As MatMulNBits, with the weight's shape [K, N] in input B_shape.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus K · N for the dequantization
    Source
        ONNX Runtime contrib operators, MatMulFpQ4.
    """
    inner, columns = call.ints(2, "the shape of B")
    return _weight_only(call, inner, columns)


@shape_rule("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain=MICROSOFT)
def matmul_block_float_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*batch, N] from A [*batch, K] and B [N, K] of 8-bit or [N, K/2] of 4-bit floats."""
    return [call.input(0).like(_projected(call, *_block_float_sizes(call)))]


def _block_float_sizes(call: OpCall) -> tuple[int, int]:
    columns, stored = call.shape(1)
    return (2 * stored if "Fp4" in call.op_type else stored), columns


@cost_rule("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain=MICROSOFT)
def matmul_block_float_cost(call: OpCall) -> OpCost:
    """As MatMulNBits, with a weight of 4-bit or 8-bit floats scaled in blocks.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus K · N for the dequantization, plus one per element of Y for bias if
        given
    Source
        ONNX Runtime contrib operators, MatMulBlockQuantizedFp4Weight and
        MatMulBlockQuantizedFp8Weight.
    """
    bias = 5 if "Fp4" in call.op_type else 4
    return _weight_only(call, *_block_float_sizes(call), bias=bias)


def _unpacked(call: OpCall, position: int) -> int:
    """K · N for the weight, stored elements for anything else (a bias)."""
    if position != 1:
        return call.input(position).elements
    if "Block" in call.op_type:
        return math.prod(_block_float_sizes(call))
    if call.op_type == "MatMulFpQ4":
        return math.prod(call.ints(2, "the shape of B"))
    return _required(call, "K") * _required(call, "N")


declare("MatMulInteger", quantization=(2, 3))
declare("QLinearMatMul", quantization=(1, 2, 4, 5, 6, 7))
declare("QGemm", domain=MICROSOFT, quantization=(1, 2, 4, 5, 7, 8), integer_weights=(6,))
declare("MatMulIntegerToFloat", domain=MICROSOFT, quantization=(2, 3, 4, 5))
declare("DynamicQuantizeMatMul", domain=MICROSOFT, quantization=(2, 3))
declare("MatMulNBits", domain=MICROSOFT, quantization=(2, 3, 4), unpacked=_unpacked)
declare("MatMulPacked", "MatMulBnb4", domain=MICROSOFT, quantization=(2,), unpacked=_unpacked)
declare("MatMulFpQ4", domain=MICROSOFT, control=(2,), unpacked=_unpacked)
declare(
    "MatMulBlockQuantizedFp4Weight", domain=MICROSOFT, quantization=(2, 3, 4), unpacked=_unpacked
)
declare("MatMulBlockQuantizedFp8Weight", domain=MICROSOFT, quantization=(2, 3))
