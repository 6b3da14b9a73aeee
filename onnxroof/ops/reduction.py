"""Reductions over axes, and the position of the largest or smallest element along an axis."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import largest, smallest
from onnxroof.graph.types import DType
from onnxroof.graph.values import NUMPY_TYPE
from onnxroof.ops.arithmetic import is_bounded, settle
from onnxroof.ops.call import OpCost, TensorInfo, Undetermined, unless_none
from onnxroof.ops.geometry import normalize_axes, normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule, value_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxroof.ops.call import OpCall, Shape, Value

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

_PER_ROW: Mapping[str, tuple[int, int, int, int]] = {
    # flops = a·n + b and transcendentals = c·n + d for n elements reduced to one
    "ReduceMax": (1, -1, 0, 0),
    "ReduceMin": (1, -1, 0, 0),
    "ReduceProd": (1, -1, 0, 0),
    "ReduceSum": (1, -1, 0, 0),
    "ReduceMean": (1, 0, 0, 0),
    "ReduceL1": (2, -1, 0, 0),
    "ReduceSumSquare": (2, -1, 0, 0),
    "ReduceL2": (2, 0, 0, 1),
    "ReduceLogSum": (1, 0, 0, 1),
    "ReduceLogSumExp": (2, 0, 1, 1),
}

declare(*REDUCTIONS, control=(1,))


@shape_rule(*REDUCTIONS)
def reduction_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The reduced axes become 1 (keepdims, the default) or go."""
    return (call.input(0).like(reduced_shape(call)),)


@shape_rule("ArgMax", "ArgMin")
def arg_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Positions as int64; the axis (default 0) becomes 1 (keepdims, the default) or goes."""
    return (TensorInfo(DType.INT64, _without(call, call.shape(0), (_axis(call),))),)


@shape_rule("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int8 sums are int32, uint8 sums uint32."""
    dtype = DType.INT32 if call.input(0).dtype is DType.INT8 else DType.UINT32
    return (TensorInfo(dtype, reduced_shape(call)),)


@cost_rule(*REDUCTIONS)
def reduction_cost(call: OpCall) -> OpCost:
    """Reduction of n elements to one, for every element of the output.

    Shapes
        data [*D]    reduced [*D without the axes, or 1 in their place]    n = prod(D[axes])
    Formula
        flops per output element: Sum, Max, Min, Prod n − 1; Mean n; L1, SumSquare 2·n − 1;
        L2 2·n (with its root); LogSum n (with its log); LogSumExp 2·n (n exp, n − 1 sums, log)
        transcendentals: L2 1; LogSum 1; LogSumExp n + 1
    Convention
        Over an empty set of axes (noop_with_empty_axes) n is 1.
    Source
        ONNX operator reference.
    """
    return reduction_work(call, *_PER_ROW[call.op_type])


@cost_rule("ArgMax", "ArgMin")
def arg_cost(call: OpCall) -> OpCost:
    """Position of the largest or smallest of n elements along one axis.

    Shapes
        data [*, n, *]    reduced [*, 1, *] or [*, *]
    Formula
        flops = n − 1 comparisons per element of the output
    Source
        ONNX operator reference.
    """
    length = call.shape(0)[_axis(call)] if call.shape(0) else 1
    return unless_none(length, OpCost(flops=call.output().elements * (length - 1)))


@cost_rule("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer_cost(call: OpCall) -> OpCost:
    """Integer sum of n elements to one.

    Shapes
        data [*D]    reduced [*D without the axes, or 1 in their place]    n = prod(D[axes])
    Formula
        flops = n − 1 per element of the output
    Source
        ONNX Runtime, ContribOperators.
    """
    return reduction_work(call, *_PER_ROW["ReduceSum"])


def reduction_work(call: OpCall, a: int, b: int, c: int, d: int) -> OpCost:
    """Per output element that n are reduced to: flops a·n + b, transcendentals c·n + d."""
    shape = call.shape(0)
    length = math.prod(shape[axis] for axis in reduced_axes(call))
    rows = call.output().elements
    cost = OpCost(flops=rows * (a * length + b), transcendentals=rows * (c * length + d))
    return unless_none(length, cost)


def reduced_axes(call: OpCall) -> tuple[int, ...]:
    """The axes a reduction runs over, as positions; all when none are given.

    Axes are an attribute until opset 12 (ReduceSum) or 17 (the others), then input 1.

    Raises:
        Undetermined: They are computed at run time and are not all axes.
    """
    rank = len(call.shape(0))
    axes = call.ints_attr("axes")
    if axes is None and call.has(1) and not call.node.domain:
        axes = _listed_axes(call, rank)
    if not axes:
        return () if call.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    if not rank:
        return ()
    return normalize_axes(axes, rank)


def _listed_axes(call: OpCall, rank: int) -> tuple[int, ...]:
    """The axes input; how many it lists tells none and all without its value."""
    listed = call.input(1).shape
    if listed == (0,):
        return ()
    value = call.value(1)
    if rank and listed == (rank,) and (value is None or is_bounded(value)):
        return tuple(range(rank))
    return call.exact_ints(1, "the axes")


def reduced_shape(call: OpCall) -> Shape:
    """Shape after the reduction, by `keepdims` (default 1)."""
    return _without(call, call.shape(0), reduced_axes(call))


def _without(call: OpCall, shape: Shape, axes: tuple[int, ...]) -> Shape:
    if call.attr("keepdims", 1):
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _axis(call: OpCall) -> int:
    return normalize_axis(call.attr("axis", 0), len(call.shape(0)) or 1)


# -- values ----------------------------------------------------------------------------------

_FOLDS: Mapping[str, tuple[np.ufunc, Callable[[int, int], int]]] = {
    "ReduceSum": (np.add, lambda a, b: a + b),
    "ReduceProd": (np.multiply, lambda a, b: a * b),
    "ReduceMax": (np.maximum, largest),
    "ReduceMin": (np.minimum, smallest),
}


@value_rule(*_FOLDS)
def fold_value(call: OpCall) -> Sequence[Value | None]:
    """The elements combined, in the input's type; nothing is defined for Max and Min of none."""
    value = call.value(0)
    dtype = call.input(0).dtype
    target = NUMPY_TYPE.get(dtype) if dtype is not None else None
    if value is None or target is None:
        return (None,)
    exact, bounded = _FOLDS[call.op_type]
    axes, shape = reduced_axes(call), reduced_shape(call)
    if exact.identity is None and not math.prod(value.shape[axis] for axis in axes):
        return (None,)
    if is_bounded(value):
        rest = [axis for axis in range(value.ndim) if axis not in axes]
        rows = value.transpose(*rest, *axes).reshape(math.prod(shape), -1).tolist()
        folded = np.empty(len(rows), dtype=object)
        folded[:] = [reduce(bounded, row) for row in rows]
        return (settle(folded.reshape(shape), target),)
    with np.errstate(all="ignore"):
        result = exact.reduce(value, axis=axes, dtype=None if target is np.bool_ else target)
    return (np.asarray(result).reshape(shape).astype(target, copy=False),)


@value_rule("ReduceMean")
def mean_value(call: OpCall) -> Sequence[Value | None]:
    """The mean of floats, in their own type."""
    value = call.value(0)
    if value is None or not np.issubdtype(value.dtype, np.floating) or not value.size:
        return (None,)
    axes = reduced_axes(call)
    count = math.prod(value.shape[axis] for axis in axes)
    mean = np.divide(np.add.reduce(value, axis=axes), np.asarray(count, dtype=value.dtype))
    return (np.asarray(mean, dtype=value.dtype).reshape(reduced_shape(call)),)


@value_rule("ArgMax", "ArgMin")
def arg_value(call: OpCall) -> Sequence[Value | None]:
    """The first position, or the last with select_last_index."""
    value = call.value(0)
    if value is None or not value.size:
        raise Undetermined("there is no position in an empty tensor")
    if is_bounded(value) or not value.ndim:
        return (None,)
    axis = _axis(call)
    find = np.argmax if call.op_type == "ArgMax" else np.argmin
    if call.attr("select_last_index", 0):
        found = value.shape[axis] - 1 - find(np.flip(value, axis), axis=axis)
    else:
        found = find(value, axis=axis)
    return (np.asarray(found, dtype=np.int64).reshape(call.outputs[0].dims),)
