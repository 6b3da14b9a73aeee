"""Fused projections with packed weights: normalization, several products, adapters in one node."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost
from onnxroof.ops.checks import require_equal
from onnxroof.ops.fused import activation_cost
from onnxroof.ops.matmul import matmul_dims
from onnxroof.ops.normalization import root_mean_square
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo

_COL = 0
"""cublasLt's column order: the matrix is stored transposed."""


def _tokens(call: OpCall) -> int:
    return math.prod(call.shape(0)[:-1])


def _width(call: OpCall, name: str) -> int:
    value = call.attr(name, 0)
    if value < 1:
        raise Impossible(f"attribute {name} must be positive, got {value}")
    return value


def _projected(call: OpCall, *names: str) -> list[TensorInfo]:
    """One output per attribute that names a width, from the last axis K of the first input."""
    a = call.input(0)
    require_equal(a.dims[-1], _width(call, "K"), "the last axis of A and the weight's K differ")
    return [a.like((*a.dims[:-1], _width(call, name))) for name in names]


def _normalized(call: OpCall, scale_at: int) -> OpCost:
    """The optional residual addition and root mean square normalization of A."""
    a = call.input(0)
    added = OpCost(0, a.elements if call.has(1) else 0)
    if not call.has(scale_at):
        return added
    return added + root_mean_square(_tokens(call), a.dims[-1])


def _products(call: OpCall, widths: Sequence[int], bias_at: Sequence[int]) -> OpCost:
    """A times several K × N weights, each dequantized once, plus the biases given."""
    tokens, inner = _tokens(call), call.shape(0)[-1]
    macs = tokens * inner * sum(widths)
    biased = sum(tokens * width for width, at in zip(widths, bias_at, strict=True) if call.has(at))
    return OpCost(macs, 2 * macs + biased + (inner * sum(widths) if tokens else 0))


@shape_rule("MatMulNBitsMlp", domain=MICROSOFT)
def mlp_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*batch, N]; input_skip_bias_sum like A."""
    return [*_projected(call, "N"), call.input(0).like()][: max(call.output_count, 1)]


@cost_rule("MatMulNBitsMlp", domain=MICROSOFT)
def mlp_cost(call: OpCall) -> OpCost:
    """Gate and value projections of one input: activation(A · gate) · (A · up).

    Shapes
        A [*batch, K]    gate and up: K · N packed values each    Y [*batch, N]
    Formula
        macs = 2 · elements of Y · K
        flops = 2 · macs, plus 2 · K · N to dequantize, plus 2 per element of Y (activation,
        product) and one for each bias given; plus SkipSimplifiedLayerNormalization of A if asked
    Source
        ONNX Runtime contrib operators, MatMulNBitsMlp.
    """
    y, width = call.output().elements, call.attr("N", 0)
    activation = activation_cost(call.attr("activation", ""), y)
    return (
        _products(call, (width, width), (5, 8)) + _normalized(call, 2) + activation + OpCost(0, y)
    )


@shape_rule("MatMulNBitsQkv", domain=MICROSOFT)
def qkv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Q [*batch, Nq], K and V [*batch, Nkv]; input_skip_bias_sum like A."""
    outputs = [*_projected(call, "Nq", "Nkv", "Nkv"), call.input(0).like()]
    return outputs[: max(call.output_count, 1)]


@cost_rule("MatMulNBitsQkv", domain=MICROSOFT)
def qkv_cost(call: OpCall) -> OpCost:
    """Query, key and value projections of one normalized input.

    Formula
        macs = tokens · K · (Nq + 2 · Nkv)
        flops = 2 · macs, plus K · (Nq + 2 · Nkv) to dequantize, plus the biases and the
        (Skip)SimplifiedLayerNormalization of A
    Source
        ONNX Runtime contrib operators, MatMulNBitsQkv.
    """
    query, key = call.attr("Nq", 0), call.attr("Nkv", 0)
    return _products(call, (query, key, key), (5, 8, 11)) + _normalized(call, 2)


@shape_rule("MatMulNBitsQLoRA", domain=MICROSOFT)
def qlora_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*batch, N] from X [*batch, K]."""
    return _projected(call, "N")


@cost_rule("MatMulNBitsQLoRA", domain=MICROSOFT)
def qlora_cost(call: OpCall) -> OpCost:
    """A packed product plus a packed low-rank adapter of rank R (0 where the adapter is empty).

    Formula
        macs = tokens · (K · N + K · R + R · N)
        flops = 2 · macs, plus (K · N + K · R + R · N) to dequantize, plus one addition per element
        of Y if there is an adapter
    Source
        ONNX Runtime contrib operators, MatMulNBitsQLoRA.
    """
    tokens, inner, columns = _tokens(call), call.shape(0)[-1], call.attr("N", 0)
    rank = call.shape(3)[0] if call.input(3).elements else 0
    weights = inner * columns + inner * rank + rank * columns
    macs = tokens * weights
    joined = call.output().elements if rank else 0
    return OpCost(macs, 2 * macs + joined + (weights if tokens else 0))


def _ordered_operands(call: OpCall) -> tuple[Shape, Shape]:
    a, b = call.shape(0), call.shape(2)
    transposed = call.attr("order_B", _COL) == _COL and len(b) > 1 and b[-1] == a[-1]
    return a, ((*b[:-2], b[-1], b[-2]) if transposed else b)


@shape_rule("QOrderedMatMul", domain=MICROSOFT)
def ordered_matmul_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int8 Y as MatMul; B is stored transposed in column order."""
    return [call.input(0).like(matmul_dims(*_ordered_operands(call)))]


@cost_rule("QOrderedMatMul", domain=MICROSOFT)
def ordered_matmul_cost(call: OpCall) -> OpCost:
    """Matrix product of 8-bit integers in column order.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus one per element of Y each for the requantization, for bias and for C
    Source
        ONNX Runtime contrib operators, QOrderedMatMul.
    """
    y = call.output().elements
    macs = y * call.shape(0)[-1]
    extra = y * (1 + call.has(5) + call.has(6))
    return OpCost(macs, 2 * macs + extra, compute_dtype=DType.INT8)


def _unpacked(call: OpCall, position: int) -> int:
    """Values of `bits` bits in a packed weight; elements of anything else."""
    weight = call.input(position)
    if weight.dtype is not DType.UINT8:
        return weight.elements
    return weight.elements * 8 // max(call.attr("bits", 4), 1)


declare("MatMulNBitsMlp", domain=MICROSOFT, quantization=(4, 7), unpacked=_unpacked)
declare("MatMulNBitsQkv", domain=MICROSOFT, quantization=(4, 7, 10), unpacked=_unpacked)
declare("MatMulNBitsQLoRA", domain=MICROSOFT, quantization=(2, 4, 6), unpacked=_unpacked)
declare("QOrderedMatMul", domain=MICROSOFT, quantization=(1, 3, 4, 7))
