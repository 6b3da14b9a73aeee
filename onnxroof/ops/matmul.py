"""Matrix products in floating point: MatMul, Gemm, their fused forms, Det."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost
from onnxroof.ops.checks import require_equal, require_rank, require_rank_at_least
from onnxroof.ops.element_types import dtype_attr
from onnxroof.ops.fused import activation_cost, fused_activation
from onnxroof.ops.geometry import broadcast
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo


def matmul_dims(a: Shape, b: Shape) -> Shape:
    """Shape of the product of two arrays as numpy.matmul gives it.

    Raises:
        Impossible: An operand is a scalar, the inner sizes differ or the batches do not broadcast.
    """
    if not a or not b:
        raise Impossible("a matrix product takes no scalar")
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    require_equal(left[-1], right[-2], f"inner sizes of {_listed(a)} and {_listed(b)} differ")
    batch = broadcast(left[:-2], right[:-2])
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


def _listed(shape: Shape) -> str:
    return "×".join(map(str, shape))


def gemm_dims(call: OpCall, a: Shape, b: Shape) -> tuple[int, int, int]:
    """(M, K, N) after transA and transB. Raises Impossible when the matrices do not fit."""
    require_rank(len(a), 2, "A")
    require_rank(len(b), 2, "B")
    rows, inner = reversed(a) if call.attr("transA", 0) else a
    depth, columns = reversed(b) if call.attr("transB", 0) else b
    require_equal(inner, depth, f"inner sizes of {_listed(a)} and {_listed(b)} differ")
    return rows, inner, columns


def _check_addend(call: OpCall, position: int, product: Shape) -> None:
    """C must broadcast to Y. Raises Impossible otherwise."""
    info = call.inputs[position] if call.has(position) else None
    if info is None or info.shape is None:
        return
    if len(info.shape) > len(product) or broadcast(info.shape, product) != product:
        raise Impossible(f"C {_listed(info.shape)} does not broadcast to {_listed(product)}")


def _scaled(call: OpCall, name: str, elements: int) -> int:
    """Products with a scalar attribute that is not 1."""
    return 0 if call.attr(name, 1.0) == 1.0 else elements


@shape_rule("MatMul")
def matmul_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y as numpy.matmul: batches broadcast, one-dimensional operands lose their axis."""
    return [call.input(0).like(matmul_dims(call.shape(0), call.shape(1)))]


@cost_rule("MatMul")
def matmul_cost(call: OpCall) -> OpCost:
    """Matrix product with broadcast batches.

    Shapes
        A [*batch, M, K]    B [*batch, K, N]    Y [*batch, M, N]; either may be one-dimensional
    Formula
        macs = elements of Y · K
        flops = 2 · macs
    Source
        ONNX operator reference, MatMul.
    """
    macs = call.output().elements * call.shape(0)[-1]
    return OpCost(macs, 2 * macs)


@shape_rule("Gemm")
@shape_rule("FusedGemm", domain=MICROSOFT)
def gemm_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [M, N]; C must broadcast to it."""
    rows, _, columns = gemm_dims(call, call.shape(0), call.shape(1))
    if call.node.domain or call.opset >= 7 or call.attr("broadcast", 0):
        _check_addend(call, 2, (rows, columns))
    return [call.input(0).like((rows, columns))]


@cost_rule("Gemm")
@cost_rule("FusedGemm", domain=MICROSOFT)
def gemm_cost(call: OpCall) -> OpCost:
    """Y = alpha · A' · B' + beta · C, transposed as asked; FusedGemm adds an activation.

    Shapes
        A [M, K]    B [K, N]    C broadcasts to [M, N], optional    Y [M, N]
    Formula
        macs = M · K · N
        flops = 2 · macs, plus M · N for C (each output element gets one addition, however small
        C is), M · N if alpha is not 1, one per element of C if beta is not 1, M · N for the
        activation of FusedGemm
    Source
        ONNX operator reference, Gemm; ONNX Runtime contrib operators, FusedGemm.
    """
    rows, inner, columns = gemm_dims(call, call.shape(0), call.shape(1))
    y = rows * columns
    macs = y * inner
    flops = 2 * macs + _scaled(call, "alpha", y)
    if call.has(2):
        flops += y + _scaled(call, "beta", call.input(2).elements)
    return OpCost(macs, flops) + fused_activation(call)


def _swapped(shape: Shape, *, batch: bool, last_two: bool) -> Shape:
    """Operand of FusedMatMul as multiplied: transBatch moves the first axis before the last."""
    if batch:
        require_rank_at_least(len(shape), 3, "an operand with transposed batch")
        shape = (*shape[1:-1], shape[0], shape[-1])
    if last_two and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _fused_operands(call: OpCall) -> tuple[Shape, Shape]:
    a, b = (
        _swapped(
            call.shape(position),
            batch=call.attr(f"transBatch{name}", 0) != 0,
            last_two=call.attr(f"trans{name}", 0) != 0,
        )
        for position, name in enumerate("AB")
    )
    return a, b


@shape_rule(
    "FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", "SparseToDenseMatMul",
    domain=MICROSOFT,
)  # fmt: skip
def fused_matmul_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y as numpy.matmul of the operands transposed as the attributes ask."""
    y = matmul_dims(*_fused_operands(call))
    return [call.input(1).like(y, call.input(0).dtype)]


@cost_rule(
    "FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", "SparseToDenseMatMul",
    domain=MICROSOFT,
)  # fmt: skip
def fused_matmul_cost(call: OpCall) -> OpCost:
    """Y = alpha · A' · B', transposed as asked, with an optional activation.

    Shapes
        A [*batch, M, K] after transA and transBatchA    B [*batch, K, N] likewise
        Y [*batch, M, N]
    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus one per element of Y if alpha is not 1 and for the activation of
        FusedMatMulActivation
    Convention
        The sparse operand of SparseToDenseMatMul is charged dense.
    Source
        ONNX Runtime contrib operators, FusedMatMul and others.
    """
    a, _ = _fused_operands(call)
    y = call.output().elements
    macs = y * a[-1]
    cost = OpCost(macs, 2 * macs + _scaled(call, "alpha", y)) + fused_activation(call)
    if call.op_type != "SparseToDenseMatMul":
        return cost
    return OpCost(cost.macs, cost.flops, note="the sparse operand is charged as if dense")


@shape_rule("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y as MatMul of X and W."""
    return [call.input(0).like(matmul_dims(call.shape(0), call.shape(1)))]


@cost_rule("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu_cost(call: OpCall) -> OpCost:
    """MatMul, then a bias and Gelu.

    Formula
        macs = elements of Y · K
        flops = 2 · macs, plus one per element of Y for bias if given and one for Gelu
        transcendentals = elements of Y
    Source
        ONNX Runtime contrib operators, GemmFastGelu.
    """
    y = call.output().elements
    macs = y * call.shape(0)[-1]
    return OpCost(macs, 2 * macs + (y if call.has(2) else 0)) + activation_cost("Gelu", y)


@shape_rule("GemmFloat8", domain=MICROSOFT)
def gemm_float8_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [M, N] of the type the attribute dtype names, float by default."""
    rows, _, columns = gemm_dims(call, call.shape(0), call.shape(1))
    _check_addend(call, 2, (rows, columns))
    return [call.input(0).like((rows, columns), dtype_attr(call, "dtype", DType.FLOAT))]


@cost_rule("GemmFloat8", domain=MICROSOFT)
def gemm_float8_cost(call: OpCall) -> OpCost:
    """As Gemm, on 8-bit floats with scales.

    Formula
        macs = M · K · N
        flops as Gemm, plus M · N where a scale is given and alpha is 1: scales fold into alpha
    Source
        ONNX Runtime contrib operators, GemmFloat8.
    """
    cost = gemm_cost(call)
    y = call.output().elements
    scaled = any(call.has(position) for position in (3, 4, 5)) and not _scaled(call, "alpha", y)
    return cost + OpCost(0, y if scaled else 0)


@shape_rule("Det")
def det_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*batch] from X [*batch, M, M]."""
    x = call.input(0)
    require_rank_at_least(x.rank, 2, "X")
    require_equal(x.dims[-2], x.dims[-1], "a determinant is of square matrices")
    return [x.like(x.dims[:-2])]


@cost_rule("Det")
def det_cost(call: OpCall) -> OpCost:
    """Determinant of square matrices.

    Shapes
        X [*batch, M, M]    Y [*batch]
    Formula
        Gaussian elimination: step i of M − 1 makes i quotients and i² products and differences;
        M − 1 products of the diagonal:
        flops = batch · (M(M−1)/2 + 2·(M−1)M(2M−1)/6 + M − 1)
    Source
        ONNX operator reference, Det, computed by elimination.
    """
    size, batch = call.shape(0)[-1], call.output().elements
    if not size:
        return OpCost()
    squares = (size - 1) * size * (2 * size - 1) // 6
    return OpCost(0, batch * (size * (size - 1) // 2 + 2 * squares + size - 1))


declare("GemmFloat8", domain=MICROSOFT, quantization=(3, 4, 5))
