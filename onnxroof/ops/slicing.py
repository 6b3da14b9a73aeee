"""Operators that cut along axes or put padding around: Split, Slice, Crop, Pad, CenterCropPad."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import BoundedInt, ends, interval, is_exact, largest, lower, upper
from onnxroof.ops.arrays import picked
from onnxroof.ops.call import FREE, Impossible, OpCost, Undetermined
from onnxroof.ops.geometry import ceil_div, normalize_axes, normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule, value_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo, Value

_COPIES = "copies elements; no arithmetic"

declare("Split", control=(1,), data_dependent=True, free=_COPIES)
declare("Slice", control=(1, 2, 3, 4), data_dependent=True, free=_COPIES)
declare("DynamicSlice", control=(1, 2, 3), data_dependent=True, free=_COPIES)
declare("Crop", free=_COPIES)
declare("Pad", control=(1, 2, 3), sizes=(1,), free=_COPIES)
declare("Pad", domain=MICROSOFT, control=(1, 2), sizes=(1,), free=_COPIES)
declare("CenterCropPad", control=(1,), free=_COPIES)


@cost_rule("Split", "Pad", "CenterCropPad")
def cut_cost(call: OpCall) -> OpCost:  # noqa: ARG001 - every rule takes the call
    """Free of arithmetic; the input is read once and every output written once."""
    return FREE


cost_rule("Pad", domain=MICROSOFT)(cut_cost)


@cost_rule("Slice", "DynamicSlice", "Crop")
def part_cost(call: OpCall) -> OpCost:
    """Free of arithmetic; only the part that is kept is read.

    Traffic
        of the data as many bytes as the output has
    """
    kept = call.output().nbytes
    return FREE if kept is None else OpCost(reads={0: kept})


# -- Split -----------------------------------------------------------------------------------


def _parts(call: OpCall, size: int) -> Shape:
    """Sizes of the parts of a Split along its axis.

    Raises:
        Impossible: The sizes do not add up, or equal parts do not come out.
    """
    sizes = call.ints_from("split", 1, "the sizes of the parts")
    if sizes is not None:
        exact = not isinstance(size, BoundedInt) and BoundedInt not in map(type, sizes)
        if min(map(upper, sizes), default=0) < 0 or (exact and sum(sizes) != size):
            raise Impossible(f"Split into {list(sizes)} does not divide a size of {size}")
        return sizes
    count = call.attr("num_outputs", call.output_count)
    if count < 1:
        raise Impossible(f"Split with num_outputs={count}")
    if isinstance(size, BoundedInt):
        chunk = ceil_div(size, count)
        return (*(chunk,) * (count - 1), interval(0 if count > 1 else size.low, upper(chunk)))
    if call.opset < 18 and size % count:
        raise Impossible(f"Split cannot divide a size of {size} into {count} equal parts")
    chunk = ceil_div(size, count)
    last = size - chunk * (count - 1)
    if last < 0:
        raise Impossible(
            f"Split with num_outputs={count} cannot divide a size of {size}: "
            f"{count - 1} parts of {chunk} leave {last} for the last"
        )
    return (*(chunk,) * (count - 1), last)


@shape_rule("Split")
def split_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Parts along `axis`: sizes by attribute (opset < 13) or input, else equal ones.

    From opset 18 on parts have ⌈size / num_outputs⌉, the last what is left. Sizes computed at run
    time are at most the whole.
    """
    data, shape = call.input(0), call.shape(0)
    axis = normalize_axis(call.attr("axis", 0), len(shape))
    try:
        parts = _parts(call, shape[axis])
    except Undetermined:
        parts = tuple(interval(0, upper(shape[axis])) for _ in range(call.output_count))
    if len(parts) < call.output_count:
        raise Impossible(f"Split has {call.output_count} outputs but {len(parts)} parts")
    return [
        data.like((*shape[:axis], part, *shape[axis + 1 :])) for part in parts[: call.output_count]
    ]


@value_rule("Split")
def split_value(call: OpCall) -> Sequence[Value | None]:
    """The elements of every part."""
    value = call.value(0)
    if value is None:
        return []
    axis = normalize_axis(call.attr("axis", 0), value.ndim)
    cuts = list(itertools.accumulate(_parts(call, value.shape[axis])))
    if BoundedInt in map(type, cuts):
        return []
    pieces = np.split(value, cuts[:-1], axis)
    return [picked(piece, value) for piece in pieces[: call.output_count]]


def _slice_axes(call: OpCall, rank: int, count: int) -> Shape:
    axes = call.exact_ints_from("axes", 3, "axes")
    if axes is None:
        axes = tuple(range(count))
    if len(axes) != count:
        raise Impossible(f"{count} starts do not fit {len(axes)} axes")
    return normalize_axes(axes, rank)


def _slices(call: OpCall, rank: int) -> list[tuple[int, int, int, int]]:
    """(axis, start, end, step) of every sliced axis.

    Raises:
        Undetermined: A bound is computed at run time.
    """
    starts = call.ints_from("starts", 1, "starts")
    stops = call.ints_from("ends", 2, "ends")
    if starts is None or stops is None or len(starts) != len(stops):
        raise Impossible(f"starts {starts} and ends {stops} do not belong together")
    axes = _slice_axes(call, rank, len(starts))
    steps = call.ints(4, "steps") if call.has(4) else (1,) * len(starts)
    if len(steps) != len(starts) or any(ends(step) == (0, 0) for step in steps):
        raise Impossible(f"steps {list(steps)} do not fit starts {list(starts)}")
    return list(zip(axes, starts, stops, steps, strict=True))


_TO_THE_END = (2**31 - 1, 2**63 - 1)
"""Ends that runtimes read as "as far as there is", backwards too; by the text nothing is kept."""


def _clamped(size: int, start: int, stop: int, step: int) -> range:
    """The positions a slice keeps; negative bounds count from the end, then both are clamped."""
    if step < 0 and stop in _TO_THE_END:
        stop = -size - 1
    start = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    if step > 0:
        return range(min(max(start, 0), size), min(max(stop, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(stop, -1), size - 1), step)


def sliced_size(size: int, start: int, stop: int, step: int) -> int:
    """How many elements a slice keeps, as bounds when the size or a bound of the slice is one.

    The count is piecewise linear in size, start and stop, so its extremes lie at the ends of
    their intervals or where a piece ends: at 0 and −1, and where the size meets a bound.
    """
    if BoundedInt not in (type(size), type(start), type(stop), type(step)):
        return len(_clamped(size, start, stop, step))
    if isinstance(step, BoundedInt):
        return interval(0, upper(size))
    starts, stops = _corners(start, (-1, 0)), _corners(stop, (-1, 0))
    breaks = {abs(bound) + near for bound in {*starts, *stops} for near in (-1, 0, 1)}
    counts = [
        len(_clamped(*corner, step))
        for corner in itertools.product(_corners(size, breaks), starts, stops)
    ]
    return interval(min(counts), max(counts))


def _corners(value: int, breaks: Sequence[int] | set[int]) -> set[int]:
    low, high = ends(value)
    return {low, high, *(point for point in breaks if low < point < high)}


@shape_rule("Slice", "DynamicSlice")
def slice_shape(call: OpCall) -> Sequence[TensorInfo]:
    """⌈(end − start) / step⌉ along sliced axes, after counting from the end and clamping.

    Bounds are attributes before opset 10. Bounds computed at run time leave at most the input's
    size.
    """
    shape = list(call.shape(0))
    try:
        slices = _slices(call, len(shape))
    except Undetermined:
        return [call.input(0).like(_at_most(call, shape))]
    for axis, start, stop, step in slices:
        shape[axis] = sliced_size(shape[axis], start, stop, step)
        if step < 0 and stop in _TO_THE_END:
            call.note(
                f"spec and runtimes disagree for a backward slice that ends at {stop}: runtimes "
                "go on to the first element, which is what is counted; the text keeps nothing"
            )
    return [call.input(0).like(tuple(shape))]


def _at_most(call: OpCall, shape: list[int]) -> Shape:
    """Sizes of a slice whose bounds are not known: every sliced axis between nothing and all."""
    touched: Sequence[int] = range(len(shape))
    if not call.has(3):
        count = call.input(1).shape
        touched = range(count[0]) if count else touched
    elif call.value(3) is not None:
        axes = call.ints(3, "axes")
        if all(map(is_exact, axes)):
            touched = normalize_axes(axes, len(shape))
    return tuple(
        interval(0, upper(dim)) if axis in touched else dim for axis, dim in enumerate(shape)
    )


@value_rule("Slice", "DynamicSlice")
def slice_value(call: OpCall) -> Sequence[Value | None]:
    """The elements kept."""
    value = call.value(0)
    if value is None:
        return [None]
    source = value
    for axis, start, stop, step in _slices(call, value.ndim):
        if BoundedInt in (type(start), type(stop), type(step)):
            return [None]
        positions = _clamped(value.shape[axis], start, stop, step)
        value = value.take(np.array(positions, dtype=np.int64), axis)
    return [picked(value, source)]


@shape_rule("Crop")
def crop_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[N, C, H', W'] by the experimental opset-1 operator that runtimes still accept.

    `border` is (left, top, right, bottom); `scale` (height, width), when given, is the size cut
    out from the top left corner on.
    """
    shape, border = call.shape(0), call.ints_attr("border")
    if len(shape) != 4 or border is None or len(border) != 4:
        raise Impossible("Crop takes a 4-D input and a border of 4 values")
    left, top, right, bottom = border
    size = call.ints_attr("scale") or (shape[2] - top - bottom, shape[3] - left - right)
    if min(map(upper, size)) < 0 or len(size) != 2:
        raise Impossible(f"border {list(border)} leaves nothing of shape {list(shape)}")
    return [call.input(0).like((*shape[:2], *size))]


# -- padding ---------------------------------------------------------------------------------


def _pads(call: OpCall, rank: int) -> list[tuple[int, int]]:
    """(begin, end) for every axis; negative pads cut off."""
    pads = call.ints_attr("paddings") or call.ints_from("pads", 1, "pads")
    axes = call.exact_ints(3, "axes") if call.has(3) else tuple(range(rank))
    if pads is None or len(pads) != 2 * len(axes):
        raise Impossible(f"pads {pads} do not fit {len(axes)} axes")
    both = [(0, 0)] * rank
    for position, axis in enumerate(normalize_axes(axes, rank)):
        both[axis] = (pads[position], pads[position + len(axes)])
    return both


@shape_rule("Pad")
def pad_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Every size plus the padding at both its ends, whatever the mode.

    Pads are an attribute before opset 11 (`paddings` in opset 1), for chosen axes from opset 18.
    """
    shape = call.shape(0)
    padded = tuple(
        dim + begin + end for dim, (begin, end) in zip(shape, _pads(call, len(shape)), strict=True)
    )
    if min(map(upper, padded), default=0) < 0:
        raise Impossible(f"negative pads cut more than there is of shape {list(shape)}")
    return [call.input(0).like(tuple(largest(dim, 0) if lower(dim) < 0 else dim for dim in padded))]


@value_rule("Pad")
def pad_value(call: OpCall) -> Sequence[Value | None]:
    """The elements with constants around; other modes are not needed by shape arithmetic."""
    value = call.value(0)
    if value is None or call.attr("mode", "constant") != "constant":
        return [None]
    pads = _pads(call, value.ndim)
    if not pads or any(BoundedInt in map(type, pair) for pair in pads):
        return [None]
    fill = call.value(2)
    filler = call.attr("value", 0.0) if fill is None else fill.ravel().tolist()[0]
    cut = tuple(
        slice(max(-begin, 0), size - max(-end, 0))
        for size, (begin, end) in zip(value.shape, pads, strict=True)
    )
    kept = value[cut]
    room = [(max(begin, 0), max(end, 0)) for begin, end in pads]
    sizes = [begin + size + end for size, (begin, end) in zip(kept.shape, room, strict=True)]
    # beside bounds a number of Python's: with one of numpy's they would add up to a plain one
    padded = np.full(sizes, int(filler) if value.dtype == object else filler, dtype=value.dtype)
    inner = tuple(
        slice(begin, begin + size) for size, (begin, _) in zip(kept.shape, room, strict=True)
    )
    padded[inner] = kept
    return [padded]


shape_rule("Pad", domain=MICROSOFT)(pad_shape)
value_rule("Pad", domain=MICROSOFT)(pad_value)


@shape_rule("CenterCropPad")
def center_crop_pad_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The sizes asked for along `axes` (all by default)."""
    shape, target = list(call.shape(0)), call.ints(1, "the target shape")
    axes = call.ints_attr("axes") or tuple(range(len(shape)))
    if len(axes) != len(target):
        raise Impossible(f"target shape {list(target)} does not fit {len(axes)} axes")
    for axis, size in zip(normalize_axes(axes, len(shape)), target, strict=True):
        shape[axis] = size
    return [call.input(0).like(tuple(shape))]
