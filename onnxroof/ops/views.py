"""Operators that move no bytes: their output is the input's bytes under another shape.

Shape and Size stand here too: a runtime answers them from metadata and never touches the tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import BoundedInt, interval, is_exact, largest, lower, upper
from onnxroof.graph.types import DType
from onnxroof.ops.arrays import int_scalar, int_vector
from onnxroof.ops.call import Impossible, TensorInfo, Undetermined, no_traffic
from onnxroof.ops.checks import is_same
from onnxroof.ops.geometry import normalize_axes
from onnxroof.ops.registry import (
    MICROSOFT,
    cost_rule,
    declare,
    declare_view,
    shape_rule,
    value_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, Value

declare_view("Reshape", "Squeeze", "Unsqueeze", control=(1,))
declare_view("Flatten", "Identity")
declare_view("ExpandDims", domain=MICROSOFT, control=(1,))


@shape_rule("Reshape")
def reshape_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The `shape` attribute (opset < 5) or input; 0 copies a size, one −1 takes what is left.

    With allowzero = 1 a 0 is a size of zero, and 0 together with −1 has no unique answer.
    """
    target = call.ints_from("shape", 1, "the target shape")
    if target is None:
        raise Impossible("no target shape is given")
    literal_zero = bool(call.attr("allowzero", 0))
    _refuse_bad_target(target, literal_zero=literal_zero)
    if 0 in target and not literal_zero:
        target = _with_copied(target, call.shape(0))
    if any(_may_be_special(size, literal_zero=literal_zero) for size in target):
        source = call.shape(0)
        target = tuple(
            _all_it_can_mean(axis, source, target, literal_zero=literal_zero)
            if _may_be_special(size, literal_zero=literal_zero)
            else size
            for axis, size in enumerate(target)
        )
    data = call.input(0)
    if data.shape is None:
        if -1 in target:
            raise Undetermined("the shape of input 0 is not known, so −1 is not")
        return [data.like(target)]
    return [data.like(_resolved(data.shape, target))]


def _refuse_bad_target(target: Shape, *, literal_zero: bool) -> None:
    if target.count(-1) > 1 or min(map(upper, target), default=0) < -1:
        raise Impossible(f"target shape {list(target)} has a second or invalid negative size")
    if literal_zero and 0 in target and -1 in target:
        raise Impossible(
            f"target shape {list(target)} has both 0 and -1 with allowzero=1, "
            "so -1 cannot be determined"
        )


def _with_copied(target: Shape, source: Shape) -> Shape:
    """Zeros replaced by the sizes they copy."""
    for axis, size in enumerate(target):
        if size == 0 and not isinstance(size, BoundedInt) and axis >= len(source):
            raise Impossible(f"target shape {list(target)} copies axis {axis} of {len(source)}")
    return tuple(
        source[axis] if size == 0 and not isinstance(size, BoundedInt) else size
        for axis, size in enumerate(target)
    )


def _may_be_special(size: int, *, literal_zero: bool) -> bool:
    """Whether a bounded size can be the 0 that copies or the −1 that takes what is left."""
    return isinstance(size, BoundedInt) and size.low < (0 if literal_zero else 1)


def _all_it_can_mean(axis: int, source: Shape, target: Shape, *, literal_zero: bool) -> int:
    """Bounds of the size that a bounded element leads to, which may be 0 or −1 at run time.

    It stays what it is where a 0 could copy nothing but a size of 0, or not be at all.
    """
    size = target[axis]
    copies = not literal_zero and axis < len(source) and not _copies_zero(axis, source, target)
    infers = lower(size) < 0 and not any(other == -1 for other in target if is_exact(other))
    if not copies and not infers:
        return largest(size, 0) if lower(size) < 0 else size
    meanings = [interval(max(lower(size), 0), max(upper(size), 0))]
    if copies:
        one = max(lower(size), 1)
        meanings = [interval(one, upper(size))] if upper(size) >= one else []
        meanings.append(source[axis])
    if infers:
        others = (*target[:axis], *target[axis + 1 :])
        fewest = math.prod(max(lower(other), 1) for other in others)
        meanings.append(interval(0, upper(math.prod(source)) // fewest))
    return interval(min(map(lower, meanings)), max(map(upper, meanings)))


def _copies_zero(axis: int, source: Shape, target: Shape) -> bool:
    """Whether the size that a 0 copies is 0 itself: the same size, or else the rest differs.

    With D the size copied, D · (other sizes of the source) = D · (other sizes of the target).
    """
    size = target[axis]
    if is_same(size, source[axis]):
        return True
    others = (*target[:axis], *target[axis + 1 :])
    have, want = math.prod((*source[:axis], *source[axis + 1 :])), math.prod(others)
    return -1 not in others and is_exact(have) and is_exact(want) and have != want


def _resolved(source: Shape, target: Shape) -> Shape:
    """The target with −1 worked out; sizes only known by bounds cancel where both sides have them.

    Raises:
        Impossible: The numbers of elements differ.
    """
    have, want = math.prod(source), math.prod(size for size in target if size != -1)
    exact = not isinstance(have, BoundedInt) and not isinstance(want, BoundedInt)
    if -1 not in target:
        if exact and have != want:
            raise Impossible(
                f"{have} elements of shape {list(source)} do not fit target shape {list(target)}"
            )
        return target
    if not exact:
        have, want = _cancelled(source, target)
    if upper(want) == 0 or (exact and have % want):
        raise Impossible(
            f"{have} elements of shape {list(source)} cannot fill target shape {list(target)}: "
            "-1 cannot be determined"
        )
    return tuple(have // want if size == -1 else size for size in target)


def _cancelled(source: Shape, target: Shape) -> tuple[int, int]:
    """Both element counts (−1 left out) without the bounded sizes that stand on both sides."""
    left, right = list(source), [size for size in target if size != -1]
    for size in [size for size in right if isinstance(size, BoundedInt)]:
        twin = next((other for other in left if is_same(size, other)), None)
        if twin is not None:
            left = _without(left, twin)
            right = _without(right, size)
    return math.prod(left), math.prod(right)


def _without(sizes: list[int], gone: int) -> list[int]:
    position = next(i for i, size in enumerate(sizes) if size is gone)
    return sizes[:position] + sizes[position + 1 :]


@shape_rule("Flatten")
def flatten_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[prod(D[:axis]), prod(D[axis:])]; the axis may equal the rank."""
    shape, axis = call.shape(0), call.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise Impossible(f"axis {axis} is out of range for {len(shape)} dimensions")
    axis = axis + len(shape) if axis < 0 else axis
    return [call.input(0).like((math.prod(shape[:axis]), math.prod(shape[axis:])))]


@shape_rule("Squeeze")
def squeeze_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Without the axes named by the attribute (opset < 13) or input; without axes: all of size 1.

    An empty `axes` counts as absent, which is how runtimes read it.
    """
    shape = call.shape(0)
    axes = call.exact_ints_from("axes", 1, "axes")
    if not axes:
        call.note(
            "without axes its rank depends on which sizes are 1; bind every free dimension of "
            "its input to the size you will run"
        )
        if any(map(_may_be_one, shape)):
            raise Undetermined("which sizes are 1, and so go, is known at run time only")
        return [call.input(0).like(tuple(dim for dim in shape if lower(dim) != 1))]
    gone = set(normalize_axes(axes, len(shape)))
    for axis in gone:
        if shape[axis] != 1 and not _may_be_one(shape[axis]):
            raise Impossible(f"axis {axis} of shape {list(shape)} is not 1, it cannot be squeezed")
    return [call.input(0).like(tuple(d for axis, d in enumerate(shape) if axis not in gone))]


def _may_be_one(dim: int) -> bool:
    return isinstance(dim, BoundedInt) and dim.low <= 1 <= upper(dim)


@shape_rule("Unsqueeze")
def unsqueeze_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Axes of size 1 put in at positions of the output: attribute (opset < 13) or input."""
    axes = call.exact_ints_from("axes", 1, "axes")
    if axes is None:
        raise Impossible("no axes are given")
    return [call.input(0).like(_unsqueezed(call.shape(0), axes))]


def _unsqueezed(shape: Shape, axes: Shape) -> Shape:
    rank = len(shape) + len(axes)
    added = set(normalize_axes(axes, rank))
    kept = iter(shape)
    return tuple(1 if axis in added else next(kept) for axis in range(rank))


@shape_rule("ExpandDims", domain=MICROSOFT)
def expand_dims_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One axis of size 1 put in where the scalar input says."""
    return [call.input(0).like(_unsqueezed(call.shape(0), call.exact_ints(1, "the axis")))]


@value_rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def view_value(call: OpCall) -> Sequence[Value | None]:
    """The same elements under the output's shape."""
    value = call.value(0)
    shape = call.output().shape
    if value is None or shape is None or math.prod(shape) != value.size:
        return [None]
    return [value.reshape(tuple(map(upper, shape)))]


value_rule("ExpandDims", domain=MICROSOFT)(view_value)


@shape_rule("Identity")
def identity_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The input as it is: tensor, sequence or optional."""
    data = call.input(0)
    return [
        TensorInfo(
            data.dtype, data.shape, kind=data.kind, items=data.items, element=data.element
        )
    ]  # fmt: skip


@value_rule("Identity")
def identity_value(call: OpCall) -> Sequence[Value | None]:
    """The input's value."""
    return [call.value(0)]


declare("Shape", "Size", value_from_shape=True, free="answered from metadata; no element is read")
cost_rule("Shape", "Size")(no_traffic)


def _kept_axes(call: OpCall, rank: int) -> range:
    """Axes from `start` to `end` (opset 15), counted from the back when negative, then clamped."""
    start, end = call.attr("start", 0), call.attr("end", rank)
    start = start + rank if start < 0 else start
    end = end + rank if end < 0 else end
    return range(min(max(start, 0), rank), min(max(end, 0), rank))


@shape_rule("Shape")
def shape_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One int64 for every axis from `start` to `end`."""
    return [TensorInfo(DType.INT64, (len(_kept_axes(call, len(call.shape(0)))),))]


@value_rule("Shape")
def shape_value(call: OpCall) -> Sequence[Value | None]:
    """The sizes themselves; the tensor's elements are not needed."""
    shape = call.shape(0)
    return [int_vector(shape[axis] for axis in _kept_axes(call, len(shape)))]


@shape_rule("Size")
def size_shape(call: OpCall) -> Sequence[TensorInfo]:
    """A scalar int64."""
    call.input(0)
    return [TensorInfo(DType.INT64, ())]


@value_rule("Size")
def size_value(call: OpCall) -> Sequence[Value | None]:
    """The number of elements; the elements themselves are not needed."""
    return [int_scalar(math.prod(call.shape(0)))]
