"""Operators that sample an image at other positions: Resize, Upsample, GridSample and relatives."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import ends, interval, is_exact, lower, smallest, upper
from onnxroof.ops.call import FREE, Impossible, OpCost, Undetermined
from onnxroof.ops.checks import can_be_equal, is_same
from onnxroof.ops.geometry import ceil_div, normalize_axes
from onnxroof.ops.registry import (
    INTERNAL_NHWC,
    MICROSOFT,
    NCHWC,
    cost_rule,
    declare,
    shape_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo

declare("Resize", control=(1, 2, 3), sizes=(3,))
declare("Resize", domain=INTERNAL_NHWC, control=(1, 2, 3), sizes=(3,))
declare("Upsample", control=(1,))
declare("AffineGrid", control=(1,), sizes=(1,))
declare("CropAndResize", domain=MICROSOFT, control=(3,), sizes=(3,))


def interpolation_flops(mode: str, axes: int) -> int:
    """Arithmetic of one interpolated element: a weighted sum of the neighbours.

    Nearest 0; linear over d axes 2·2^d − 1 (2^d products, 2^d − 1 additions); cubic 2·4^d − 1.
    """
    taps = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(mode, 1)
    return 0 if taps == 1 or axes == 0 else 2 * taps**axes - 1


# -- Resize and Upsample ---------------------------------------------------------------------


def _scaled(call: OpCall, shape: Shape, scales: Sequence[float], axes: Shape) -> Shape:
    """⌊D · scale⌋, exact for the scale as stored; says so where float32 rounding gives another."""
    if len(scales) != len(axes):
        raise Impossible(f"{len(scales)} scales do not fit {len(axes)} axes")
    if not all(0 < scale < math.inf for scale in scales):
        raise Impossible(f"scales must be positive, got {list(scales)}")
    sizes = list(shape)
    for axis, scale in zip(axes, scales, strict=True):
        sizes[axis] = _floor_product(shape[axis], scale)
        rounded = math.floor(np.float32(upper(shape[axis])) * np.float32(scale))
        if rounded != upper(sizes[axis]):
            call.note(
                f"axis {axis} has ⌊{shape[axis]} · {scale!r}⌋ = {sizes[axis]} by the operator's "
                f"text, computed exactly; a runtime that multiplies in float32 gives {rounded}"
            )
    return tuple(sizes)


def _floor_product(size: int, scale: float) -> int:
    numerator, denominator = scale.as_integer_ratio()
    return size * numerator // denominator


def _given(call: OpCall, position: int) -> bool:
    """Whether an optional input is there and not the empty tensor that stands for absent."""
    return call.has(position) and call.input(position).shape != (0,)


def _floats(call: OpCall, position: int, what: str) -> Sequence[float]:
    value = call.value(position)
    if value is None:
        raise Undetermined(f"{what} (input {position}) is computed at run time")
    return [float(item) for item in value.ravel().tolist()]


def _resized_axes(call: OpCall) -> Shape:
    axes = call.ints_attr("axes")
    rank = len(call.shape(0))
    return tuple(range(rank)) if axes is None else normalize_axes(axes, rank)


@shape_rule("Upsample", "Resize")
def upsample_shape(call: OpCall) -> Sequence[TensorInfo]:
    """⌊D · scale⌋ for the scales of an input (opset 9) or attribute (7, and before).

    Resize of opset 10 is the same.
    """
    shape = call.shape(0)
    scales = _upsample_scales(call, len(shape))
    return [call.input(0).like(_scaled(call, shape, scales, tuple(range(len(shape)))))]


def _upsample_scales(call: OpCall, rank: int) -> Sequence[float]:
    if call.has(1):
        return _floats(call, 1, "scales")
    if "scales" in call.attributes:
        return list(call.attr("scales", (1.0,)))
    if "height_scale" in call.attributes and rank == 4:
        return [1.0, 1.0, call.attr("height_scale", 1.0), call.attr("width_scale", 1.0)]
    raise Impossible("no scales are given")


@shape_rule("Resize", since=11)
def resize_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Sizes as given, or ⌊D · scale⌋, along `axes` (all by default).

    An empty tensor counts as absent. The text multiplies by the extent of `roi` in mode
    tf_crop_and_resize; runtimes do not, and their size is the one that will be seen.
    """
    shape, axes = call.shape(0), _resized_axes(call)
    by_size, by_scale = _given(call, 3), _given(call, 2)
    if by_size and by_scale and call.value(2) is not None:
        raise Impossible("both scales and sizes are given")
    if by_size:
        return [call.input(0).like(_to_sizes(call, shape, axes))]
    if not by_scale:
        raise Impossible("neither scales nor sizes are given")
    scales = _floats(call, 2, "scales")
    if call.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        _note_roi(call, shape, scales, axes)
    return [call.input(0).like(_scaled(call, shape, scales, axes))]


def _note_roi(call: OpCall, shape: Shape, scales: Sequence[float], axes: Shape) -> None:
    """Say where the region of interest would change the size by the text."""
    roi = call.value(1)
    if roi is None or roi.size != 2 * len(axes):
        call.note("spec and runtimes disagree for roi: it is left out of the size, as runtimes do")
        return
    starts, ends = roi.ravel().tolist()[: len(axes)], roi.ravel().tolist()[len(axes) :]
    for axis, scale, start, end in zip(axes, scales, starts, ends, strict=True):
        if end - start != 1:
            by_text = math.floor(upper(shape[axis]) * (end - start) * scale)
            call.note(
                f"spec and runtimes disagree for roi: axis {axis} has {by_text} by the text, "
                f"{_floor_product(shape[axis], scale)} in runtimes, which is what is counted"
            )


def _to_sizes(call: OpCall, shape: Shape, axes: Shape) -> Shape:
    sizes = call.ints(3, "sizes")
    if len(sizes) != len(axes):
        raise Impossible(f"{len(sizes)} sizes do not fit {len(axes)} axes")
    if min(map(upper, sizes), default=0) < 0:
        raise Impossible(f"sizes {list(sizes)} are negative")
    result = list(shape)
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    wanted = sizes if policy == "stretch" else _kept_aspect(shape, sizes, axes, policy)
    for axis, size in zip(axes, wanted, strict=True):
        result[axis] = size
    return tuple(result)


def _kept_aspect(shape: Shape, sizes: Shape, axes: Shape, policy: str) -> Shape:
    """One scale for all axes: round_half_up(D · s), s the least (not_larger) or greatest ratio."""
    old = [shape[axis] for axis in axes]
    if not all(map(is_exact, (*old, *sizes))):
        raise Undetermined(f"keep_aspect_ratio_policy {policy} needs exact sizes")
    if policy not in ("not_larger", "not_smaller") or 0 in old:
        raise Impossible(f"keep_aspect_ratio_policy {policy!r} cannot be applied to {list(shape)}")
    by_ratio = sorted(zip(sizes, old, strict=True), key=lambda pair: Fraction(*pair))
    size, dim = by_ratio[0] if policy == "not_larger" else by_ratio[-1]
    return tuple((2 * size * each + dim) // (2 * dim) for each in old)


@cost_rule("Resize", "Upsample")
def resize_cost(call: OpCall) -> OpCost:
    """Interpolation between grid points.

    Formula
        flops = elements of Y · (2 · t^d − 1), d the axes that change, t the points per axis:
        linear 2, cubic 4; nearest 0
        antialias, when shrinking: t = ⌈2 · D / O⌉ (linear), ⌈4 · D / O⌉ (cubic) of that axis
    Traffic
        nearest: of the data at most as many bytes as the output has; other modes: default
    Convention
        The weighted sum over all d axes at once; positions and weights are not charged.
    Source
        ONNX operator reference, Resize and Upsample.
    """
    data, output = call.input(0), call.output()
    mode = call.attr("mode", "nearest")
    taps = 2 if "linear" in mode else 4 if "cubic" in mode else 1
    if taps == 1:
        read, written = data.nbytes, output.nbytes
        return (
            FREE if read is None or written is None else OpCost(reads={0: smallest(read, written)})
        )
    points = math.prod(
        _points(call, axis, taps, old, new)
        for axis, (old, new) in enumerate(zip(data.dims, output.dims, strict=True))
    )
    per_element = (2 * count - 1 if count != 1 else 0 for count in ends(points))
    return OpCost(flops=output.elements * interval(*per_element))


def _points(call: OpCall, axis: int, taps: int, old: int, new: int) -> int:
    """Points of the input that make one of the output along an axis: 1 where nothing changes.

    More than `taps` only where an antialiased axis shrinks; bounds where sizes are.
    """
    if is_same(old, new) and not _is_cropped(call, axis):
        return 1
    fewest = 1 if can_be_equal(old, new) and not _is_cropped(call, axis) else taps
    least, most = max(lower(new), 1), taps
    if call.attr("antialias", 0):
        if upper(new) < lower(old):
            fewest = max(fewest, ceil_div(taps * lower(old), max(upper(new), 1)))
        if least < upper(old):
            most = ceil_div(taps * upper(old), least)
    return interval(fewest, most)


def _is_cropped(call: OpCall, axis: int) -> bool:
    """Whether a region of interest makes even an axis of equal size interpolate."""
    if call.attr("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return False
    roi, axes = call.value(1), _resized_axes(call)
    if roi is None or axis not in axes or roi.size != 2 * len(axes):
        return False
    at, listed = axes.index(axis), roi.ravel().tolist()
    return (listed[at], listed[at + len(axes)]) != (0.0, 1.0)


shape_rule("Resize", domain=INTERNAL_NHWC, since=11)(resize_shape)
cost_rule("Resize", domain=INTERNAL_NHWC, since=11)(resize_cost)


@shape_rule("Upsample", domain=NCHWC)
def blocked_upsample_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Every size times its integer scale; the layout is blocked, the shape still NCHW."""
    shape, scales = call.shape(0), call.ints_attr("scales")
    if scales is None or len(scales) != len(shape):
        raise Impossible(f"scales {scales} do not fit {len(shape)} axes")
    return [call.input(0).like(tuple(d * times for d, times in zip(shape, scales, strict=True)))]


cost_rule("Upsample", domain=NCHWC)(resize_cost)


# -- sampling grids --------------------------------------------------------------------------


@shape_rule("GridSample")
def grid_sample_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, C, *O] for X [N, C, *D] and grid [N, *O, d]."""
    data, grid = call.shape(0), call.shape(1)
    rank = len(data) - 2
    if rank < 1 or len(grid) != len(data) or (is_exact(grid[-1]) and grid[-1] != rank):
        raise Impossible(f"a grid of {list(grid)} does not fit data of {list(data)}")
    return [call.input(0).like((*data[:2], *grid[1:-1]))]


@cost_rule("GridSample")
def grid_sample_cost(call: OpCall) -> OpCost:
    """Interpolation at given positions.

    Shapes
        X [N, C, *D]    grid [N, *O, d]    Y [N, C, *O]
    Formula
        flops = elements of Y · (2 · t^d − 1), t = 2 (linear), 4 (cubic); nearest 0
            + elements of grid · 4 (from [−1, 1] to pixels: + 1, · D, − 1, / 2;
            3 with align_corners: + 1, / 2, · (D − 1))
    Convention
        Weights and the padding of positions outside are not charged.
    Source
        ONNX operator reference, GridSample.
    """
    output, grid = call.output(), call.input(1)
    per_element = interpolation_flops(call.attr("mode", "linear"), len(call.shape(0)) - 2)
    to_pixels = 3 if call.attr("align_corners", 0) else 4
    return OpCost(flops=output.elements * per_element + grid.elements * to_pixels)


shape_rule("GridSample", domain=MICROSOFT)(grid_sample_shape)
cost_rule("GridSample", domain=MICROSOFT)(grid_sample_cost)


@shape_rule("GridSample", domain=INTERNAL_NHWC)
def grid_sample_nhwc_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, *O, C] for X [N, *D, C] and grid [N, *O, d]."""
    data, grid = call.shape(0), call.shape(1)
    if len(grid) != len(data) or len(data) < 3:
        raise Impossible(f"a grid of {list(grid)} does not fit data of {list(data)}")
    return [call.input(0).like((data[0], *grid[1:-1], data[-1]))]


cost_rule("GridSample", domain=INTERNAL_NHWC)(grid_sample_cost)


@shape_rule("AffineGrid")
def affine_grid_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, *D, d] for `size` (N, C, *D) with d spatial axes."""
    size = call.ints(1, "size")
    if len(size) not in (4, 5):
        raise Impossible(f"size must have 4 or 5 values, got {list(size)}")
    return [call.input(0).like((size[0], *size[2:], len(size) - 2))]


@cost_rule("AffineGrid")
def affine_grid_cost(call: OpCall) -> OpCost:
    """Positions under an affine map.

    Formula
        flops = elements of the grid · 2 · d: d products and d additions per coordinate
    Convention
        The undistorted grid itself is not charged.
    Source
        ONNX operator reference, AffineGrid.
    """
    grid = call.output()
    return OpCost(flops=grid.elements * 2 * grid.dims[-1])


@shape_rule("CropAndResize", domain=MICROSOFT)
def crop_and_resize_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[R, C, *crop_size] for R regions of an image batch [N, C, H, W]."""
    data, regions, size = call.shape(0), call.shape(1), call.ints(3, "the crop size")
    if len(data) != 4 or len(size) != 2 or not regions:
        raise Impossible(f"data {list(data)}, regions {list(regions)}, crop size {list(size)}")
    return [call.input(0).like((regions[0], data[1], *size))]


@cost_rule("CropAndResize", domain=MICROSOFT)
def crop_and_resize_cost(call: OpCall) -> OpCost:
    """Bilinear (7 per element) or nearest (0) sampling, corner aligned.

    Formula
        flops = elements of Y · 7, plus 2 per row and column of a region for its position
    Source
        ONNX Runtime contrib operator reference, CropAndResize.
    """
    output = call.output()
    regions, _, height, width = output.dims
    positions = 2 * regions * (height + width)
    mode = call.attr("mode", "bilinear")
    return OpCost(flops=output.elements * interpolation_flops(mode, 2) + positions)


# -- ImageDecoder ----------------------------------------------------------------------------


@shape_rule("ImageDecoder")
def image_decoder_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[H, W, C] of the encoded image, which only its bytes tell."""
    raise Undetermined(f"{call.op_type}: the size of an encoded image is known only at run time")


@cost_rule("ImageDecoder")
def image_decoder_cost(call: OpCall) -> OpCost:
    """Unknown: the work of decoding depends on the format and content of the image."""
    raise Undetermined(f"{call.op_type}: the work of decoding depends on the image")
