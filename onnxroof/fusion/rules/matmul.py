"""Matrix products with bias, scale, transposed operands, residual and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.chain import FITS, NO_CANDIDATE, Chain, Step
from onnxroof.fusion.rules.conditions import (
    constant_bounds,
    frozen_batchnorm,
    last_axis_constant,
    makes_scaled,
    same_shape_residual,
    scalar_constant,
)
from onnxroof.fusion.rules.convolution import LITE, SIMPLE, SMOOTH, activation

if TYPE_CHECKING:
    from onnxroof.fusion.chain import Edge


def swaps_last_axes(edge: Edge) -> str | None:
    """A transpose the product can do while it reads.

    Either the last two axes change places, or, in a product of two activations, the first axis
    becomes that of the rows.
    """
    info = edge.info()
    if info is None or info.shape is None or len(info.shape) < 2:
        return NO_CANDIDATE
    rank = len(info.shape)
    order = edge.candidate.call.attributes.get("perm", tuple(range(rank - 1, -1, -1)))
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    rows_first = (*range(1, rank - 1), 0, rank - 1)
    if order == swapped:
        return FITS
    batched = not any(i is None or i.constant for i in edge.anchor.call.inputs)
    return FITS if batched and order == rows_first else NO_CANDIDATE


def product_of_matrix(edge: Edge) -> str | None:
    """BatchNormalization over columns: the product has rank 2."""
    info = edge.info()
    if info is None or info.shape is None or len(info.shape) != 2:
        return NO_CANDIDATE
    return frozen_batchnorm(edge)


PRODUCTS = frozenset({"MatMul", "Gemm"})
BIAS = Step("the bias", frozenset({"Add"}), last_axis_constant)
SCALE = Step("a scale", frozenset({"Mul", "Div"}), scalar_constant)
RESIDUAL = Step("the residual addition", frozenset({"Add"}), same_shape_residual)
BATCHNORM = Step(
    "BatchNormalization", frozenset({"BatchNormalization"}), product_of_matrix,
    folds=True, notable=True,
)  # fmt: skip
SCALED = Step("a scaled operand", frozenset({"Mul", "Div"}), makes_scaled, repeats=True)
SWAPPED = Step("a transposed operand", frozenset({"Transpose"}), swaps_last_axes, repeats=True)

_WHY = "Bias and activation run on the accumulators before they are stored."

RULES = (
    Chain(
        name="matmul-bias",
        anchors=PRODUCTS,
        then=(BATCHNORM, BIAS),
        before=(SWAPPED, SCALED),
        why=_WHY + " A scale becomes the product's own factor, a swap of the last two axes its "
        "reading order.",
        open_after=True,
    ),
    Chain(
        name="library-bias",
        anchors=PRODUCTS,
        then=(BIAS,),
        why="A linear layer is one library call, which adds its bias; where element-wise work "
        "follows, the bias joins that instead.",
    ),
    Chain(
        name="matmul-activation",
        anchors=frozenset({"Gemm", "MatMul"}),
        then=(
            BATCHNORM,
            BIAS,
            Step("the activation", SIMPLE, constant_bounds, notable=True),
        ),
        before=(SWAPPED, SCALED),
        why=_WHY,
    ),
    Chain(
        name="matmul-lite-activation",
        anchors=PRODUCTS,
        then=(BATCHNORM, BIAS, LITE),
        before=(SWAPPED, SCALED),
        why=_WHY,
    ),
    Chain(
        name="gemm-activation",
        anchors=frozenset({"Gemm"}),
        then=(BATCHNORM, Step("the activation", SIMPLE, constant_bounds, notable=True)),
        why=_WHY,
    ),
    Chain(
        name="matmul-scale",
        anchors=PRODUCTS,
        then=(SCALE,),
        before=(SWAPPED, SCALED),
        why="A scale becomes the product's own factor, a swap of the last two axes its reading "
        "order.",
        open_after=True,
    ),
    Chain(
        name="matmul-bias-residual-activation",
        anchors=PRODUCTS,
        then=(SCALE, BATCHNORM, BIAS, RESIDUAL, activation(SIMPLE | SMOOTH)),
        before=(SWAPPED, SCALED),
        why=_WHY,
    ),
)
