"""Shape arithmetic that many operators share and that is easy to get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import BoundedInt, interval, largest, lower, upper
from onnxroof.ops.call import Impossible, Undetermined
from onnxroof.ops.checks import is_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxroof.ops.call import OpCall, Shape


def broadcast(*shapes: Shape) -> Shape:
    """Numpy-style broadcast: align at the last axis, 1 stretches.

    Raises:
        Impossible: Two sizes differ and neither is 1.
    """
    first = shapes[0]
    is_bounded = any(BoundedInt in map(type, shape) for shape in shapes)
    if not is_bounded and all(shape == first for shape in shapes[1:]):
        return first  # of bounded sizes only the upper ends would have been compared
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_broadcast_dim(dims, shapes) for dims in zip(*padded, strict=True))


def _broadcast_dim(dims: tuple[int, ...], shapes: tuple[Shape, ...]) -> int:
    """One axis. A bounded size gives way to an exact size other than 1, since both must agree."""
    result = 1
    for dim in dims:
        if result == 1 and not isinstance(result, BoundedInt):
            result = dim
        elif isinstance(dim, BoundedInt) or isinstance(result, BoundedInt):
            result = _agree(result, dim)
        elif dim not in (1, result):
            listed = ", ".join("×".join(map(str, shape)) or "scalar" for shape in shapes)
            raise Impossible(f"shapes {listed} do not broadcast: {result} against {dim}")
    return result


def _agree(one: int, other: int) -> int:
    """One axis of which a size is bounded: both are the same, or one of them is 1."""
    if isinstance(one, BoundedInt) and isinstance(other, BoundedInt):
        if is_same(one, other):
            return one
        certain = next((dim for dim in (one, other) if lower(dim) > 1), None)
        if certain is not None:
            return certain
        return interval(min(lower(one), lower(other)), max(upper(one), upper(other)))
    exact, bounded = (other, one) if isinstance(one, BoundedInt) else (one, other)
    return bounded if exact == 1 else exact


def broadcast_at(target: Shape, shape: Shape, axis: int) -> Shape:
    """Legacy broadcast of opset 6 and before: `shape` aligned at `axis` of `target`."""
    trailing = len(target) - axis - len(shape)
    return broadcast(target, (*shape, *(1,) * trailing))


def normalize_axis(axis: int, rank: int) -> int:
    """A possibly negative axis as a position.

    Raises:
        Impossible: It is out of range.
        Undetermined: Only bounds of it are known.
    """
    if isinstance(axis, BoundedInt):
        raise Undetermined("an axis is computed at run time")
    if not -rank <= axis < max(rank, 1):
        raise Impossible(f"axis {axis} is out of range for {rank} dimensions")
    return axis + rank if axis < 0 else axis


def normalize_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes as positions, in the order given. Raises Impossible when out of range or repeated."""
    positions = tuple(normalize_axis(axis, rank) for axis in axes)
    if len(set(positions)) < len(positions):
        raise Impossible(f"axes {list(positions)} name an axis twice")
    return positions


def ceil_div(numerator: int, divisor: int) -> int:
    """⌈numerator / divisor⌉ in exact integers."""
    return -(-numerator // divisor)


def sliding_window(
    call: OpCall, spatial: Shape, kernel: Shape, *, ceil_mode: bool = False
) -> Shape:
    """Output sizes of a window sliding over the spatial axes (convolution, pooling).

    With K' = dilation·(K − 1) + 1 and P the sum of both paddings:
    O = ⌊(D + P − K') / stride⌋ + 1; with `ceil_mode` ⌈·⌉, less a last window that would begin in
    the right padding. auto_pad SAME_*: O = ⌈D / stride⌉; VALID: P = 0.

    Raises:
        Impossible: The attributes do not fit the number of spatial axes, or the window is larger
            than the padded input.
    """
    rank = len(spatial)
    strides = _per_axis(call, "strides", rank)
    dilations = _per_axis(call, "dilations", rank)
    if len(kernel) != rank:
        raise Impossible(f"a window of {len(kernel)} axes does not fit {rank} spatial axes")
    auto_pad = call.attr("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(ceil_div(dim, stride) for dim, stride in zip(spatial, strides, strict=True))
    pads = (0,) * (2 * rank) if auto_pad == "VALID" else call.ints_attr("pads") or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise Impossible(f"pads has {len(pads)} values, {2 * rank} are needed")
    return tuple(
        _window_count(
            call,
            spatial[axis],
            dilations[axis] * (kernel[axis] - 1) + 1,
            strides[axis],
            (pads[axis], pads[axis + rank]),
            ceil_mode=ceil_mode,
        )
        for axis in range(rank)
    )


def _window_count(
    call: OpCall, size: int, window: int, stride: int, pads: tuple[int, int], *, ceil_mode: bool
) -> int:
    """Windows along one axis; a last one may hang over the end with `ceil_mode` alone."""
    room = size + pads[0] + pads[1] - window
    count = (ceil_div(room, stride) if ceil_mode else room // stride) + 1
    if ceil_mode and upper((count - 1) * stride) >= upper(size + pads[0]):
        count = count - 1
    if upper(count) < 1 and upper(size) > 0:
        return _overhanging(call, window, upper(room), stride)
    return largest(count, 0) if lower(count) < 0 else count


def _overhanging(call: OpCall, window: int, room: int, stride: int) -> int:
    """A window larger than its input: none fits, though pooling runtimes round toward zero."""
    count = 1 - -room // stride
    if "Pool" not in call.op_type or count < 0:
        raise Impossible(f"a window of {window} is larger than the padded input of {room + window}")
    call.note(
        f"a window of {window} is larger than the padded input of {room + window}: {count} taken,"
        " as runtimes that round toward zero do; by the operator text there is none"
    )
    return count


def _per_axis(call: OpCall, name: str, rank: int) -> Sequence[int]:
    values = call.ints_attr(name) or (1,) * rank
    if len(values) != rank:
        raise Impossible(f"{name} has {len(values)} values for {rank} spatial axes")
    if min(values, default=1) < 1:
        raise Impossible(f"{name} must be positive, got {list(values)}")
    return values
