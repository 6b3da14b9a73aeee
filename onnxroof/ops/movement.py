"""Operators that copy elements to other places without arithmetic.

Traffic is that of the default rule, every input and output once, except where only a part of the
input is touched. Cutting and padding stand in `slicing`, gathering and scattering by index in
`indexing`, operators whose output size depends on values in `selection`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import BoundedInt, is_exact, upper
from onnxroof.ops.call import FREE, Impossible, OpCost
from onnxroof.ops.geometry import broadcast, normalize_axes, normalize_axis
from onnxroof.ops.registry import (
    INTERNAL_NHWC,
    MICROSOFT,
    cost_rule,
    declare,
    shape_rule,
    value_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo, Value

_COPIES = "copies elements; no arithmetic"

declare("Transpose", "Concat", "DepthToSpace", "SpaceToDepth", free=_COPIES)
declare("Expand", control=(1,), sizes=(1,), free=_COPIES)
declare("ReverseSequence", control=(1,), free=_COPIES)
declare("Tile", control=(1, 2), sizes=(1,), free=_COPIES)
declare("Trilu", control=(1,), free="copies one triangle and writes zeros; no arithmetic")
declare("Trilu", domain=MICROSOFT, control=(1,), free=_COPIES)
declare("Col2Im", control=(1, 2))
declare("UnfoldTensor", domain=MICROSOFT, free=_COPIES)
declare("DepthToSpace", "SpaceToDepth", domain=INTERNAL_NHWC, free=_COPIES)


@cost_rule("Transpose", "Concat", "DepthToSpace", "SpaceToDepth")
def copy_cost(call: OpCall) -> OpCost:  # noqa: ARG001 - every rule takes the call
    """Free of arithmetic; every input is read once and every output written once."""
    return FREE


cost_rule("ReverseSequence", "Tile", "Expand", "Trilu")(copy_cost)
cost_rule("Trilu", "UnfoldTensor", domain=MICROSOFT)(copy_cost)
cost_rule("DepthToSpace", "SpaceToDepth", domain=INTERNAL_NHWC)(copy_cost)


# -- whole tensors ---------------------------------------------------------------------------


def _permutation(call: OpCall, rank: int) -> Shape:
    perm = call.ints_attr("perm")
    if perm is None:
        return tuple(reversed(range(rank)))
    if len(perm) != rank:
        raise Impossible(f"perm {list(perm)} does not fit {rank} dimensions")
    return normalize_axes(perm, rank)


@shape_rule("Transpose")
def transpose_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The input's axes in the order of `perm`; reversed when not given."""
    shape = call.shape(0)
    return [call.input(0).like(tuple(shape[axis] for axis in _permutation(call, len(shape))))]


@value_rule("Transpose")
def transpose_value(call: OpCall) -> Sequence[Value | None]:
    """The elements with axes permuted."""
    value = call.value(0)
    return [None if value is None else value.transpose(_permutation(call, value.ndim))]


@shape_rule("Concat")
def concat_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The sum of the sizes along `axis` (1 by default before opset 4); all other sizes agree."""
    shapes = [call.shape(position) for position in range(len(call.inputs))]
    if not shapes:
        raise Impossible("Concat has no input")
    rank = len(shapes[0])
    axis = normalize_axis(call.attr("axis", 1), rank)
    if any(len(shape) != rank for shape in shapes):
        raise Impossible(f"inputs differ in rank: {[list(shape) for shape in shapes]}")
    dims = tuple(
        sum(sizes) if position == axis else _common(sizes, position)
        for position, sizes in enumerate(zip(*shapes, strict=True))
    )
    dtype = next((info.dtype for info in call.given() if info.dtype), None)
    return [call.input(0).like(dims, dtype)]


def _common(sizes: tuple[int, ...], axis: int) -> int:
    """The one size all inputs have; an exact one settles those only known by bounds."""
    exact = {size for size in sizes if not isinstance(size, BoundedInt)}
    if len(exact) > 1:
        raise Impossible(f"inputs differ along axis {axis}: {list(sizes)}")
    if exact:
        return exact.pop()
    return min(sizes)


@value_rule("Concat")
def concat_value(call: OpCall) -> Sequence[Value | None]:
    """The elements one after the other."""
    values = [info.value for info in call.given()]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return [None]
    return [np.concatenate(known, axis=call.attr("axis", 1))]


@shape_rule("Expand")
def expand_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Input and target shape broadcast together, as numpy does (either may stretch)."""
    target = call.ints(1, "the target shape")
    if min(map(upper, target), default=0) < 0:
        raise Impossible(f"target shape {list(target)} has a negative size")
    return [call.input(0).like(broadcast(call.shape(0), target))]


@value_rule("Expand")
def expand_value(call: OpCall) -> Sequence[Value | None]:
    """The elements repeated along stretched axes."""
    value, shape = call.value(0), call.output().shape
    if value is None or shape is None or not call.output().exact:
        return [None]
    return [np.broadcast_to(value, shape)]


@shape_rule("Tile")
def tile_axis_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One axis repeated, as before opset 6: inputs `tiles` and `axis` are scalars."""
    shape, (times,) = call.shape(0), call.ints(1, "tiles")
    (axis,) = call.exact_ints(2, "the axis")
    at = normalize_axis(int(axis), len(shape))
    return [call.input(0).like((*shape[:at], shape[at] * times, *shape[at + 1 :]))]


@shape_rule("Tile", since=6)
def tile_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Every size times its repeats."""
    shape, repeats = call.shape(0), call.ints(1, "repeats")
    if len(repeats) != len(shape):
        raise Impossible(f"{len(repeats)} repeats do not fit {len(shape)} dimensions")
    return [
        call.input(0).like(tuple(dim * times for dim, times in zip(shape, repeats, strict=True)))
    ]


@value_rule("Tile", since=6)
def tile_value(call: OpCall) -> Sequence[Value | None]:
    """The elements repeated."""
    value, repeats = call.value(0), call.ints(1, "repeats")
    if value is None or BoundedInt in map(type, repeats):
        return [None]
    return [np.tile(value, repeats)]


@shape_rule("ReverseSequence", "Trilu")
def same_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The input's shape."""
    return [call.input(0).like(call.shape(0))]


shape_rule("Trilu", domain=MICROSOFT)(same_shape)


@value_rule("Trilu")
def trilu_value(call: OpCall) -> Sequence[Value | None]:
    """One triangle, zeros elsewhere; `k` shifts the diagonal."""
    value = call.value(0)
    shift = call.exact_ints(1, "k") if call.has(1) else (0,)
    if value is None or value.dtype == object or len(shift) != 1:
        return [None]
    return [(np.triu if call.attr("upper", 1) else np.tril)(value, shift[0])]


value_rule("Trilu", domain=MICROSOFT)(trilu_value)


# -- blocks ----------------------------------------------------------------------------------


def _image(call: OpCall) -> tuple[int, int, int, int, int]:
    """(N, C, H, W, blocksize), whichever the layout."""
    shape, block = call.shape(0), call.attr("blocksize", 0)
    if len(shape) != 4 or block < 1:
        raise Impossible(f"shape {list(shape)} and blocksize {block}: a 4-D input is needed")
    if call.node.domain == INTERNAL_NHWC:
        return shape[0], shape[3], shape[1], shape[2], block
    return *shape, block


def _from_image(call: OpCall, channels: int, height: int, width: int) -> Sequence[TensorInfo]:
    batch = call.shape(0)[0]
    if call.node.domain == INTERNAL_NHWC:
        return [call.input(0).like((batch, height, width, channels))]
    return [call.input(0).like((batch, channels, height, width))]


def _divided(size: int, divisor: int) -> int:
    if is_exact(size) and is_exact(divisor) and size % divisor:
        raise Impossible(f"a size of {size} is not a multiple of {divisor}")
    return size // divisor


@shape_rule("DepthToSpace")
def depth_to_space_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, C / b², H · b, W · b] for blocks of b × b."""
    _, channels, height, width, block = _image(call)
    return _from_image(call, _divided(channels, block * block), height * block, width * block)


@shape_rule("SpaceToDepth")
def space_to_depth_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, C · b², H / b, W / b] for blocks of b × b."""
    _, channels, height, width, block = _image(call)
    return _from_image(
        call, channels * block * block, _divided(height, block), _divided(width, block)
    )


shape_rule("DepthToSpace", domain=INTERNAL_NHWC)(depth_to_space_shape)
shape_rule("SpaceToDepth", domain=INTERNAL_NHWC)(space_to_depth_shape)


@shape_rule("UnfoldTensor", domain=MICROSOFT)
def unfold_shape(call: OpCall) -> Sequence[TensorInfo]:
    """⌊(D − size) / step⌋ + 1 windows along `dim`, and a last axis of `size`."""
    shape = list(call.shape(0))
    axis = normalize_axis(call.attr("dim", -1), len(shape))
    size, step = call.attr("size", 1), call.attr("step", 1)
    if step < 1 or upper(shape[axis]) < size:
        raise Impossible(f"windows of {size} by {step} do not fit a size of {shape[axis]}")
    shape[axis] = (shape[axis] - size) // step + 1
    return [call.input(0).like((*shape, size))]


@shape_rule("Col2Im")
def col2im_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, C, *image_shape] with C = input channels / prod(block_shape)."""
    shape = call.shape(0)
    image, block = call.ints(1, "the image shape"), call.ints(2, "the block shape")
    if len(shape) != 3 or len(image) != len(block) or not math.prod(block):
        raise Impossible(f"shape {list(shape)}, image {list(image)}, block {list(block)}")
    return [call.input(0).like((shape[0], _divided(shape[1], math.prod(block)), *image))]


@cost_rule("Col2Im")
def col2im_cost(call: OpCall) -> OpCost:
    """Columns added back into an image.

    Shapes
        X [N, C · prod(block), L]    Y [N, C, *image]
    Formula
        flops = N · C · prod(block) · L: every column element is added to its pixel
    Convention
        The first addition to a pixel counts; those that fall on padding do too.
    Source
        ONNX operator reference, Col2Im.
    """
    return OpCost(flops=call.input(0).elements)
