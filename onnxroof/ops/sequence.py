"""Sequences and optionals: lists of tensors, which cost only what is copied into or out of them.

While a sequence is built from known pieces, each element keeps its own shape, so a constant index
finds it. Otherwise only what all elements have in common is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import BoundedInt, interval, is_exact, largest, lower, upper
from onnxroof.graph.types import DTYPE_BY_CODE, DType, ValueType
from onnxroof.ops.arrays import has_bounds
from onnxroof.ops.call import Impossible, TensorInfo, Undetermined, no_traffic, no_work
from onnxroof.ops.checks import can_be_equal
from onnxroof.ops.geometry import ceil_div, normalize_axis
from onnxroof.ops.registry import cost_rule, declare, shape_rule, value_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnxroof.ops.call import OpCall, Shape, Value

MOST_ITEMS = 1024
"""A longer sequence keeps only what its elements have in common."""


def sequence_of(items: tuple[TensorInfo, ...], dtype: DType | None = None) -> TensorInfo:
    """A sequence whose elements are all known; `dtype` is for one that is empty."""
    element = common(items)
    kept = items if len(items) <= MOST_ITEMS else None
    dtype = element.dtype if element is not None else dtype
    return TensorInfo(dtype, None, kind="sequence", items=kept, element=element)


def unknown_length(element: TensorInfo | None, dtype: DType | None = None) -> TensorInfo:
    """A sequence of unknown length."""
    dtype = element.dtype if element is not None else dtype
    return TensorInfo(dtype, None, kind="sequence", element=element)


def common(items: tuple[TensorInfo, ...]) -> TensorInfo | None:
    """What tensors have in common: type, rank, and each size as an interval."""
    if not items:
        return None
    first = items[0]
    shape = first.shape
    for item in items[1:]:
        shape = common_shape(shape, item.shape)
    return TensorInfo(first.dtype, shape)


def common_shape(one: Shape | None, other: Shape | None) -> Shape | None:
    """Each size as an interval that holds both; None where not even the rank is common."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(
        a if a == b and is_exact(a) and is_exact(b)
        else interval(min(lower(a), lower(b)), max(upper(a), upper(b)))
        for a, b in zip(one, other, strict=True)
    )  # fmt: skip


def _sequence(call: OpCall, position: int = 0) -> TensorInfo:
    info = call.input(position)
    if info.kind == "optional" and info.element is not None:
        info = info.element
    if info.kind == "tensor" and info.dtype is None and info.shape is None:
        raise Undetermined(f"what input {position} holds is not known")
    if info.kind != "sequence":
        raise Impossible(f"input {position} should be a sequence, it is {info!r}")
    return info


def _index(call: OpCall, position: int, length: int, *, insert: bool = False) -> int | None:
    """The constant index as a position, or None when the run decides."""
    value = call.value(position)
    if value is None or has_bounds(value):
        return None
    index: int = value.ravel().tolist()[0]
    last = length if insert else length - 1
    if not -length <= index <= last:
        raise Impossible(f"index {index} is out of range for a sequence of {length}")
    return index + length if index < 0 else index


# -- building and taking apart ----------------------------------------------------------------


@shape_rule("SequenceConstruct")
def sequence_construct_shape(call: OpCall) -> Sequence[TensorInfo]:
    """A sequence of the inputs."""
    return [sequence_of(call.given())]


@shape_rule("SequenceEmpty")
def sequence_empty_shape(call: OpCall) -> Sequence[TensorInfo]:
    """A sequence of no elements of type `dtype` (float unless given)."""
    return [sequence_of((), DTYPE_BY_CODE.get(call.attr("dtype", 1)))]


@shape_rule("SequenceInsert")
def sequence_insert_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The sequence with the tensor at the position, or at the end."""
    sequence, tensor = _sequence(call), call.input(1)
    items = sequence.items
    if items is None:
        if sequence.element is None:
            return [unknown_length(None, tensor.dtype)]
        return [unknown_length(common((sequence.element, tensor)))]
    index = _index(call, 2, len(items), insert=True) if call.has(2) else len(items)
    if index is None:
        return [unknown_length(common((*items, tensor)))]
    return [sequence_of((*items[:index], tensor, *items[index:]))]


@shape_rule("SequenceErase")
def sequence_erase_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The sequence without the element at the position, or without its last."""
    sequence = _sequence(call)
    items = sequence.items
    if items is None:
        return [unknown_length(sequence.element, sequence.dtype)]
    index = _index(call, 1, len(items)) if call.has(1) else len(items) - 1
    if index is None:
        return [unknown_length(sequence.element, sequence.dtype)]
    if not items:
        raise Impossible("an empty sequence has no element to erase")
    kept = (*items[:index], *items[index + 1 :])
    return [sequence_of(kept, sequence.dtype)]


@shape_rule("SequenceAt")
def sequence_at_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The element at the position; at an unknown one, what all elements have in common."""
    sequence = _sequence(call)
    if sequence.items is not None:
        index = _index(call, 1, len(sequence.items))
        if index is not None:
            return [sequence.items[index].like(sequence.items[index].dims)]
    element = sequence.element
    if element is None or element.shape is None:
        raise Undetermined("which element of the sequence is taken is known at run time only")
    return [element.like()]


@shape_rule("SequenceLength")
def sequence_length_shape(call: OpCall) -> Sequence[TensorInfo]:
    """A scalar."""
    _sequence(call)
    return [TensorInfo(DType.INT64, ())]


@value_rule("SequenceLength")
def sequence_length_value(call: OpCall) -> Sequence[Value | None]:
    """The number of elements, when each is known."""
    items = _sequence(call).items
    return [None if items is None else np.array(len(items), dtype=np.int64)]


_LIST = "a list of tensors: the elements stay where they are"
declare("SequenceConstruct", "SequenceEmpty", free=_LIST)
declare("SequenceInsert", free=_LIST, control=(2,))
declare("SequenceErase", "SequenceAt", free=_LIST, control=(1,))
declare("SequenceLength", free="metadata alone", value_from_shape=True)
cost_rule(
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceInsert",
    "SequenceErase",
    "SequenceAt",
    "SequenceLength",
)(no_traffic)


# -- splitting and joining --------------------------------------------------------------------


@shape_rule("SplitToSequence")
def split_to_sequence_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Pieces of the given sizes, of one given size (the last smaller), or of 1 each."""
    x = call.input(0)
    if x.shape is None:
        return [unknown_length(TensorInfo(x.dtype, None))]
    axis = normalize_axis(call.attr("axis", 0), x.rank)
    size = x.dims[axis]

    def piece(length: int) -> TensorInfo:
        return x.like((*x.dims[:axis], length, *x.dims[axis + 1 :]))

    if not call.has(1):
        one = piece(1) if call.attr("keepdims", 1) else x.like(x.dims[:axis] + x.dims[axis + 1 :])
        return [_repeated(one, size)]
    split = call.value(1)
    if split is None:
        return [unknown_length(piece(BoundedInt(upper(size))))]
    if split.ndim == 0:
        return [_chunks(piece, size, split.tolist())]
    sizes = [largest(length, 0) if lower(length) < 0 else length for length in split.tolist()]
    if min(map(upper, split.tolist()), default=0) < 0 or not can_be_equal(sum(sizes), size):
        raise Impossible(f"pieces of {split.tolist()} do not add up to {size} along axis {axis}")
    return [sequence_of(tuple(piece(length) for length in sizes))]


def _repeated(one: TensorInfo, count: int) -> TensorInfo:
    if not is_exact(count) or count > MOST_ITEMS:
        return unknown_length(one)
    return sequence_of((one,) * count, one.dtype)


def _chunks(piece: Callable[[int], TensorInfo], size: int, chunk: int) -> TensorInfo:
    """Pieces of one size, the last with what remains."""
    if upper(chunk) < 1:
        raise Impossible(f"the size of a piece must be positive, got {chunk}")
    if not is_exact(size) or not is_exact(chunk):
        most = min(upper(chunk), upper(size))
        return unknown_length(piece(interval(min(1, lower(size)), most)))
    whole = piece(chunk)
    count, rest = ceil_div(size, chunk), size % chunk
    if count > MOST_ITEMS:
        return unknown_length(whole if not rest else piece(BoundedInt(chunk, rest)))
    last = (piece(rest),) if rest else ()
    return sequence_of((whole,) * (count - len(last)) + last)


declare("SplitToSequence", control=(1,), free="copies the pieces, no arithmetic")
cost_rule("SplitToSequence")(no_work)


@shape_rule("ConcatFromSequence")
def concat_from_sequence_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The elements joined along `axis`, or stacked along a new one."""
    sequence = _sequence(call)
    if sequence.items is None:
        raise Undetermined("how many elements the sequence has is known at run time only")
    items = sequence.items
    if not items:
        raise Impossible("an empty sequence cannot be joined")
    shared = [item.dims for item in items]
    rank, stacked = len(shared[0]), call.attr("new_axis", 0) == 1
    if any(len(dims) != rank for dims in shared):
        raise Impossible("the elements of the sequence differ in rank")
    axis = normalize_axis(call.attr("axis", 0), rank + stacked)
    joined = len(items) if stacked else sum(dims[axis] for dims in shared)
    for position in range(rank):
        sizes = {upper(dims[position]) for dims in shared if is_exact(dims[position])}
        if len(sizes) > 1 and (stacked or position != axis):
            raise Impossible(f"the elements differ along axis {position}: {sorted(sizes)}")
    rest = shared[0][axis:] if stacked else shared[0][axis + 1 :]
    return [items[0].like((*shared[0][:axis], joined, *rest))]


declare("ConcatFromSequence", free="copies the elements, no arithmetic")
cost_rule("ConcatFromSequence")(no_work)


# -- optionals --------------------------------------------------------------------------------


@shape_rule("Optional")
def optional_shape(call: OpCall) -> Sequence[TensorInfo]:
    """An optional that holds the input, or an empty one of type `type`."""
    if call.has(0):
        held = call.input(0)
        if held.kind == "tensor":
            held = held.like()  # without its value, which an equal call's would not be
        return [TensorInfo(held.dtype, None, kind="optional", items=(held,), element=held)]
    declared = call.attributes.get("type")
    if not isinstance(declared, ValueType):
        raise Impossible("without an input, attribute type must say what the optional could hold")
    element = typed(declared)
    return [TensorInfo(element.dtype, None, kind="optional", items=(), element=element)]


def typed(declared: ValueType) -> TensorInfo:
    """What a type of the file says of a value."""
    dims = declared.shape
    exact = None
    if dims is not None and all(isinstance(dim, int) for dim in dims):
        exact = tuple(dim for dim in dims if isinstance(dim, int))
    if declared.kind == "tensor":
        return TensorInfo(declared.dtype, exact)
    element = typed(declared.element) if declared.element is not None else None
    dtype = element.dtype if element is not None else declared.dtype
    return TensorInfo(dtype, None, kind=declared.kind, element=element)


@shape_rule("OptionalGetElement")
def optional_get_shape(call: OpCall) -> Sequence[TensorInfo]:
    """What the optional holds; a tensor or sequence as it is."""
    info = call.input(0)
    if info.kind != "optional":
        return [info]
    if info.items == ():
        raise Impossible("the optional is empty")
    if info.element is None:
        raise Undetermined("what the optional holds is not known")
    return [info.element]


@shape_rule("OptionalHasElement")
def optional_has_shape(_: OpCall) -> Sequence[TensorInfo]:
    """A boolean scalar."""
    return [TensorInfo(DType.BOOL, ())]


@value_rule("OptionalHasElement")
def optional_has_value(call: OpCall) -> Sequence[Value | None]:
    """Whether there is an element, when the file tells."""
    info = call.inputs[0] if call.inputs else None
    if info is None:
        return [np.array(False)]
    if info.kind != "optional":
        return [np.array(True)]
    return [None if info.items is None else np.array(bool(info.items))]


declare("Optional", "OptionalGetElement", free="a wrapper around its input's bytes")
declare("OptionalHasElement", free="metadata alone", value_from_shape=True)
cost_rule("Optional", "OptionalGetElement", "OptionalHasElement")(no_traffic)
