"""Operators that take or put elements by index: Gather and Scatter in all their forms.

Traffic is what is really touched: a Gather reads the rows it takes, not the table; a Scatter is
done in place and writes what it updates, unless its destination is a constant that must be copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import BoundedInt, smallest, upper
from onnxroof.ops.arrays import exact_ints, picked
from onnxroof.ops.call import FREE, Impossible, OpCost, Undetermined
from onnxroof.ops.geometry import normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule, value_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from onnxroof.ops.call import OpCall, TensorInfo, Value

_TAKES = "copies the elements it takes; no arithmetic"

declare("Gather", "GatherElements", "GatherND", positions=(1,), free=_TAKES)
declare("GatherND", domain=MICROSOFT, positions=(1,), free=_TAKES)
declare("Scatter", "ScatterElements", "ScatterND", positions=(1,))
declare("TorchEmbedding", domain=MICROSOFT, control=(2, 3), free=_TAKES)
declare("TensorScatter", free="copies the update into the cache; no arithmetic")


@cost_rule("Gather", "GatherElements", "GatherND")
def gather_cost(call: OpCall) -> OpCost:
    """Free of arithmetic.

    Traffic
        of the data as many bytes as the output has, at most the whole; the indices
    Convention
        A row taken twice is read twice, as long as that is less than the whole table.
    Source
        ONNX operator reference, Gather, GatherElements, GatherND.
    """
    data, taken = call.input(0).nbytes, call.output().nbytes
    return FREE if data is None or taken is None else OpCost(reads={0: smallest(data, taken)})


cost_rule("GatherND", "TorchEmbedding", domain=MICROSOFT)(gather_cost)


def _indices(call: OpCall) -> NDArray[np.int64] | None:
    value = call.value(1)
    return None if value is None else exact_ints(value)


@shape_rule("Gather")
def gather_shape(call: OpCall) -> Sequence[TensorInfo]:
    """D[:axis] + indices + D[axis + 1:]."""
    data, indices = call.shape(0), call.shape(1)
    if not data:
        raise Impossible("Gather takes data with at least one axis")
    axis = normalize_axis(call.attr("axis", 0), len(data))
    _refuse_out_of_range(call, data[axis])
    return [call.input(0).like((*data[:axis], *indices, *data[axis + 1 :]))]


@value_rule("Gather")
def gather_value(call: OpCall) -> Sequence[Value | None]:
    """The elements at the indices; negative ones count from the end."""
    value, indices = call.value(0), _indices(call)
    if value is None or indices is None:
        return [None]
    axis = normalize_axis(call.attr("axis", 0), value.ndim)
    return [picked(value.take(indices, axis), value)]


def _refuse_out_of_range(call: OpCall, *sizes: int) -> None:
    """Refuse known indices outside an axis of so many, or of so many for each part of a tuple."""
    indices = _indices(call)
    if indices is None or not indices.size:
        return
    parts = [indices] if len(sizes) == 1 else np.moveaxis(indices, -1, 0)
    for size, part in zip(map(upper, sizes), parts, strict=False):
        low, high = int(part.min()), int(part.max())
        if low < -size or high >= size:
            worst = high if high >= size else low
            raise Impossible(f"index {worst} is out of range for a size of {size}")


@shape_rule("TorchEmbedding", domain=MICROSOFT)
def torch_embedding_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One row of the table per index: indices + [embedding size]."""
    weight = call.shape(0)
    if len(weight) != 2:
        raise Impossible(f"the table must have 2 axes, not {len(weight)}")
    return [call.input(0).like((*call.shape(1), weight[1]))]


@shape_rule("GatherElements")
def gather_elements_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of the indices."""
    data, indices = call.shape(0), call.shape(1)
    if len(data) != len(indices):
        raise Impossible(f"indices have {len(indices)} axes, data {len(data)}")
    _refuse_out_of_range(call, data[normalize_axis(call.attr("axis", 0), len(data))])
    return [call.input(0).like(indices)]


@value_rule("GatherElements")
def gather_elements_value(call: OpCall) -> Sequence[Value | None]:
    """One element per index along the axis."""
    value, indices = call.value(0), _indices(call)
    if value is None or indices is None:
        return [None]
    axis = normalize_axis(call.attr("axis", 0), value.ndim)
    return [picked(value[_along(indices, axis)], value)]


def _along(indices: NDArray[np.int64], axis: int) -> tuple[NDArray[np.int64], ...]:
    """Every index at its own position, with the axis replaced by the index itself."""
    where = [np.asarray(along, dtype=np.int64) for along in np.indices(indices.shape)]
    where[axis] = indices
    return tuple(where)


def _tuple_length(call: OpCall) -> int:
    """The size of the last axis of the indices of GatherND or ScatterND."""
    indices = call.shape(1)
    if not indices:
        raise Impossible("indices must have at least one axis")
    if isinstance(indices[-1], BoundedInt):
        raise Undetermined("the length of an index tuple is computed at run time")
    return indices[-1]


@shape_rule("GatherND")
def gather_nd_shape(call: OpCall) -> Sequence[TensorInfo]:
    """indices[:-1] + D[batch_dims + t:] for index tuples of length t (batch_dims: opset 12)."""
    data, indices = call.shape(0), call.shape(1)
    batch = call.attr("batch_dims", 0)
    used = batch + _tuple_length(call)
    if used > len(data):
        raise Impossible(f"index tuples address {used} axes of data with {len(data)}")
    _refuse_out_of_range(call, *data[batch:used])
    return [call.input(0).like((*indices[:-1], *data[used:]))]


@value_rule("GatherND")
def gather_nd_value(call: OpCall) -> Sequence[Value | None]:
    """The slices at the index tuples."""
    value, indices = call.value(0), _indices(call)
    if value is None or indices is None or call.attr("batch_dims", 0):
        return [None]
    return [picked(value[tuple(np.moveaxis(indices, -1, 0))], value)]


shape_rule("GatherND", domain=MICROSOFT)(gather_nd_shape)
value_rule("GatherND", domain=MICROSOFT)(gather_nd_value)


# -- scatter ---------------------------------------------------------------------------------


@shape_rule("Scatter", "ScatterElements")
def scatter_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of the data; indices and updates have one shape."""
    data, indices = call.shape(0), call.input(1).shape
    updates = call.input(2).shape
    _refuse_out_of_range(call, data[normalize_axis(call.attr("axis", 0), len(data))])
    if indices is not None and updates is not None and len(indices) != len(updates):
        raise Impossible(f"indices have {len(indices)} axes, updates {len(updates)}")
    return [call.input(0).like(data)]


@shape_rule("ScatterND")
def scatter_nd_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of the data."""
    data = call.shape(0)
    if call.input(1).shape is not None:
        length = _tuple_length(call)
        if length > len(data):
            raise Impossible(f"index tuples address more axes than the {len(data)} of the data")
        _refuse_out_of_range(call, *data[:length])
    return [call.input(0).like(data)]


@shape_rule("TensorScatter")
def tensor_scatter_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of the cache."""
    cache, update = call.shape(0), call.shape(1)
    axis = normalize_axis(call.attr("axis", -2), len(cache))
    if len(update) != len(cache) or _is_longer(update[axis], cache[axis]):
        raise Impossible(f"an update of {list(update)} does not fit a cache of {list(cache)}")
    return [call.input(0).like(cache)]


def _is_longer(one: int, other: int) -> bool:
    exact = not isinstance(one, BoundedInt) and not isinstance(other, BoundedInt)
    return exact and one > other


@cost_rule("Scatter", "ScatterElements", "ScatterND")
def scatter_cost(call: OpCall) -> OpCost:
    """Updates put at indices, in place.

    Formula
        flops = 1 per element of the updates when `reduction` is not "none", else 0
    Traffic
        updates and indices are read, and as many bytes as the updates have written; with a
        reduction as many read of the data; the rest of the data is not copied
    Convention
        Data that is a constant must be copied first: it is read and written whole.
    Source
        ONNX operator reference, ScatterElements and ScatterND.
    """
    reduces = call.attr("reduction", "none") != "none"
    return _in_place(call, call.input(2), reduces=reduces)


@cost_rule("TensorScatter")
def tensor_scatter_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: a cache update in place.

    Traffic
        the update is read, and as many bytes of the cache are written; a constant cache is copied
        first: read and written whole
    """
    return _in_place(call, call.input(1), reduces=False)


def _in_place(call: OpCall, update: TensorInfo, *, reduces: bool) -> OpCost:
    flops = update.elements if reduces else 0
    put, whole = update.nbytes, call.output().nbytes
    if call.input(0).constant or put is None or whole is None:
        return OpCost(flops=flops)
    touched = smallest(put, whole)
    return OpCost(flops=flops, reads={0: touched if reduces else 0}, writes={0: touched})


def _scatter_values(call: OpCall) -> tuple[Value, NDArray[np.int64], Value] | None:
    """Data (a copy), indices and updates when all are known and nothing is reduced."""
    value, indices, updates = call.value(0), _indices(call), call.value(2)
    if value is None or indices is None or updates is None:
        return None
    if call.attr("reduction", "none") != "none":
        return None
    return np.array(value, dtype=np.result_type(value, updates)), indices, updates


@value_rule("Scatter", "ScatterElements")
def scatter_value(call: OpCall) -> Sequence[Value | None]:
    """The data with one element replaced per index along the axis."""
    known = _scatter_values(call)
    if known is None:
        return [None]
    value, indices, updates = known
    axis = normalize_axis(call.attr("axis", 0), value.ndim)
    value[_along(indices, axis)] = updates
    return [picked(value, value)]


@value_rule("ScatterND")
def scatter_nd_value(call: OpCall) -> Sequence[Value | None]:
    """The data with one slice replaced per index tuple."""
    known = _scatter_values(call)
    if known is None:
        return [None]
    value, indices, updates = known
    value[tuple(np.moveaxis(indices, -1, 0))] = updates
    return [picked(value, value)]
