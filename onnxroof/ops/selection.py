"""Operators that select by value, so that the size of their output is known only by its bounds.

Where the selecting values are known (shape arithmetic, constants) the answer is exact. Sorting and
box overlap are comparisons and a few flops, never MACs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import ends, interval, is_exact, lower, smallest, upper
from onnxroof.graph.types import DType
from onnxroof.ops.arrays import exact_ints, has_bounds, picked
from onnxroof.ops.call import FREE, Impossible, OpCost, TensorInfo, Undetermined
from onnxroof.ops.geometry import normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule, value_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from onnxroof.ops.call import OpCall, Value

declare(
    "NonZero",
    data_dependent=True,
    free="looks at every element and writes positions; no arithmetic",
)
declare("Compress", control=(1,), data_dependent=True, free="copies what it keeps; no arithmetic")
declare("TopK", control=(1,), data_dependent=True)
declare("Unique", data_dependent=True)
declare("Unique", domain=MICROSOFT, data_dependent=True)
declare("NonMaxSuppression", control=(2, 3, 4), data_dependent=True)
declare("DynamicTimeWarping", domain=MICROSOFT, data_dependent=True)


def _sort_comparisons(elements: int) -> int:
    """⌈log2 n⌉ per element: what merge sort needs at most (Knuth, TAOCP 3, 5.2.4)."""
    low, high = (end * max(end - 1, 0).bit_length() for end in ends(elements))
    return interval(low, high)


# -- NonZero, Compress -----------------------------------------------------------------------


@shape_rule("NonZero")
def non_zero_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int64 [rank, K] with K at most the number of elements; exact when the input is known."""
    shape, value = call.shape(0), call.value(0)
    found: int = interval(0, upper(math.prod(shape)))
    known = None if value is None else _exact_elements(value)
    if known is not None:
        found = int(np.count_nonzero(known))
    return [TensorInfo(DType.INT64, (len(shape), found))]


def _exact_elements(value: Value) -> Value | None:
    """The elements where each is known exactly."""
    return exact_ints(value) if value.dtype == object else value


@value_rule("NonZero")
def non_zero_value(call: OpCall) -> Sequence[Value | None]:
    """The positions of the elements that are not zero, one column each."""
    value = call.value(0)
    known = None if value is None else _exact_elements(value)
    if known is None or not known.ndim:
        return [None]
    return [np.array(known.nonzero(), dtype=np.int64)]


@cost_rule("NonZero")
def non_zero_cost(call: OpCall) -> OpCost:  # noqa: ARG001 - every rule takes the call
    """Free of arithmetic: every element is read, positions are written."""
    return FREE


@shape_rule("Compress")
def compress_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The slices along `axis` (of the flat input without one) whose condition holds.

    At most as many as the condition is long; exact when the condition is known.
    """
    shape, axis = call.shape(0), call.attributes.get("axis")
    if axis is None:
        return [call.input(0).like((_kept(call, math.prod(shape)),))]
    at = normalize_axis(call.attr("axis", 0), len(shape))
    return [call.input(0).like((*shape[:at], _kept(call, shape[at]), *shape[at + 1 :]))]


def _kept(call: OpCall, size: int) -> int:
    """How many of so many slices are kept; what the condition says beyond them does not count."""
    condition = call.value(1)
    if condition is None:
        length = call.input(1).shape
        return interval(0, min(upper(length[0]), upper(size)) if length else upper(size))
    listed = [ends(item) for item in condition.ravel().tolist()]
    surely = sum(low > 0 or high < 0 for low, high in listed[: lower(size)])
    return interval(surely, sum(pair != (0, 0) for pair in listed[: upper(size)]))


@value_rule("Compress")
def compress_value(call: OpCall) -> Sequence[Value | None]:
    """The elements kept."""
    value, condition = call.value(0), call.value(1)
    if value is None or condition is None or has_bounds(condition):
        return [None]
    source = value.ravel() if "axis" not in call.attributes else value
    axis = normalize_axis(call.attr("axis", 0), source.ndim)
    kept = condition.ravel()[: source.shape[axis]].nonzero()[0]
    return [picked(source.take(kept, axis), value)]


@cost_rule("Compress")
def compress_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: the condition and the slices kept are read.

    Traffic
        of the data as many bytes as the output has; the condition
    """
    kept, condition = call.output().nbytes, call.input(1).nbytes
    if kept is None or condition is None:
        return FREE
    return OpCost(reads={0: kept, 1: condition})


# -- TopK ------------------------------------------------------------------------------------


@shape_rule("TopK")
def top_k_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Values and int64 indices: the input's shape with k along `axis`.

    k is an attribute before opset 10. One computed at run time is at most the size of the axis.
    """
    data, shape = call.input(0), call.shape(0)
    axis = normalize_axis(call.attr("axis", -1), len(shape))
    count = _requested(call, shape[axis])
    dims = (*shape[:axis], count, *shape[axis + 1 :])
    return [data.like(dims), TensorInfo(DType.INT64, dims)][: max(call.output_count, 1)]


def _requested(call: OpCall, size: int) -> int:
    try:
        given = call.ints_from("k", 1, "k")
    except Undetermined:
        return interval(0, upper(size))
    if given is None or len(given) != 1:
        raise Impossible("k must be one number")
    if lower(given[0]) > upper(size) or upper(given[0]) < 0:
        raise Impossible(f"k = {given[0]} is not between 0 and the size of the axis, {size}")
    if is_exact(given[0]) and is_exact(size):
        return given[0]
    return smallest(given[0], size)


@value_rule("TopK", since=11)
def top_k_value(call: OpCall) -> Sequence[Value | None]:
    """The k largest (smallest) elements and their indices, ties by index."""
    value = call.value(0)
    known = None if value is None else _exact_elements(value)
    if known is None or known.dtype.kind not in "iuf" or not is_exact(call.ints(1, "k")[0]):
        return [None, None]
    axis = normalize_axis(call.attr("axis", -1), known.ndim)
    keys = known.astype(np.float64) if known.dtype.kind == "f" else known.astype(np.int64)
    order = np.argsort(-keys if call.attr("largest", 1) else keys, axis=axis, kind="stable")
    best = order.take(np.arange(call.ints(1, "k")[0]), axis)
    return [np.take_along_axis(known, best, axis), best.astype(np.int64)][: call.output_count]


@cost_rule("TopK")
def top_k_cost(call: OpCall) -> OpCost:
    """The k best of n elements, by a heap of k.

    Formula
        flops per row = n · ⌈log2(k + 1)⌉, plus k · ⌈log2 k⌉ when the result is sorted
    Convention
        Comparisons, an upper bound: each element sinks through the levels of the heap at most
        once. Sorting takes ⌈log2 k⌉ comparisons per element.
    Source
        ONNX operator reference, TopK; heap selection and merge sort in Knuth, TAOCP 3, 5.2.
    """
    shape = call.shape(0)
    axis = normalize_axis(call.attr("axis", -1), len(shape))
    count = call.output().dims[axis]
    levels = interval(lower(count).bit_length(), upper(count).bit_length())
    per_row = shape[axis] * levels
    if call.attr("sorted", 1):
        per_row += _sort_comparisons(count)
    return OpCost(flops=math.prod(shape[:axis]) * math.prod(shape[axis + 1 :]) * per_row)


# -- Unique ----------------------------------------------------------------------------------


@shape_rule("Unique")
def unique_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y, indices [U], inverse [n], counts [U]: U of the n elements, or slices along `axis`.

    1 ≤ U ≤ n; exact when the input is known.
    """
    shape, value = call.shape(0), call.value(0)
    axis = _unique_axis(call, len(shape))
    size = math.prod(shape) if axis is None else shape[axis]
    found = interval(min(lower(size), 1), upper(size))
    known = None if value is None else _exact_elements(value)
    if known is not None:
        found = np.unique(known, axis=axis).shape[axis or 0]
    dims = (found,) if axis is None else (*shape[:axis], found, *shape[axis + 1 :])
    outputs = [call.input(0).like(dims)]
    outputs += [TensorInfo(DType.INT64, (length,)) for length in (found, size, found)]
    return outputs[: max(call.output_count, 1)]


def _unique_axis(call: OpCall, rank: int) -> int | None:
    if "axis" not in call.attributes:
        return None
    return normalize_axis(call.attr("axis", 0), rank)


@value_rule("Unique")
def unique_value(call: OpCall) -> Sequence[Value | None]:
    """Sorted, or with sorted = 0 in order of first occurrence."""
    value = call.value(0)
    known = None if value is None else _exact_elements(value)
    if known is None:
        return []
    axis = _unique_axis(call, known.ndim)
    results = _unique(known, axis, ordered=bool(call.attr("sorted", 1)))
    return list(results[: call.output_count])


def _unique(value: Value, axis: int | None, *, ordered: bool) -> tuple[Value, ...]:
    """Unique elements or slices, first indices, inverse indices, counts."""
    found, first, inverse, counts = np.unique(
        value, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.ravel()
    if not ordered:
        order = np.argsort(first)
        found, first, counts = found.take(order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    as_int: list[NDArray[np.int64]] = [part.astype(np.int64) for part in (first, inverse, counts)]
    return (found, *as_int)


@cost_rule("Unique")
def unique_cost(call: OpCall) -> OpCost:
    """Sorting, after which equal neighbours are dropped.

    Formula
        flops = n · ⌈log2 n⌉ comparisons of elements, or of slices with their elements
    Convention
        Comparisons of a merge sort, an upper bound.
    Source
        ONNX operator reference, Unique; merge sort in Knuth, TAOCP 3, 5.2.4.
    """
    shape = call.shape(0)
    axis = _unique_axis(call, len(shape))
    size = math.prod(shape) if axis is None else shape[axis]
    width = 1 if axis is None else math.prod(shape[:axis]) * math.prod(shape[axis + 1 :])
    return OpCost(flops=_sort_comparisons(size) * width)


cost_rule("Unique", domain=MICROSOFT)(unique_cost)


@shape_rule("Unique", domain=MICROSOFT)
def contrib_unique_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [U], inverse [n] and counts [U] of a vector, in order of first occurrence."""
    outputs = unique_shape(call)[:1]
    found, size = outputs[0].dims[0], call.input(0).elements
    lengths = (found, size, found)
    return [outputs[0], *(TensorInfo(DType.INT64, (n,)) for n in lengths[1:])][
        : max(call.output_count, 1)
    ]


@value_rule("Unique", domain=MICROSOFT)
def contrib_unique_value(call: OpCall) -> Sequence[Value | None]:
    """In order of first occurrence."""
    value = call.value(0)
    known = None if value is None else _exact_elements(value)
    if known is None:
        return []
    found, _, inverse, counts = _unique(known, None, ordered=False)
    return [found, inverse, counts][: call.output_count]


# -- NonMaxSuppression -----------------------------------------------------------------------


def _boxes_kept(call: OpCall, boxes: int) -> int:
    """Boxes one class of one image can keep: max_output_boxes_per_class, 0 when not given."""
    if not call.has(2):
        return 0
    limit = call.value(2)
    if limit is None:
        return interval(0, upper(boxes))
    return smallest(max(call.ints(2, "the number of boxes")[0], 0), boxes)


@shape_rule("NonMaxSuppression")
def nms_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int64 [K, 3] with K ≤ batches · classes · min(max_output_boxes_per_class, boxes)."""
    boxes, scores = call.shape(0), call.shape(1)
    if len(boxes) != 3 or len(scores) != 3:
        raise Impossible(f"boxes {list(boxes)} and scores {list(scores)} must have 3 axes")
    most = upper(scores[0] * scores[1] * _boxes_kept(call, boxes[1]))
    return [TensorInfo(DType.INT64, (interval(0, most), 3))]


@cost_rule("NonMaxSuppression")
def nms_cost(call: OpCall) -> OpCost:
    """Greedy suppression of boxes by overlap.

    Shapes
        boxes [B, N, 4]    scores [B, C, N]    K rows of the output, evenly over the B · C lists
    Formula
        flops per list that keeps k = N (score threshold) + N · ⌈log2 N⌉ (sort)
            + 19 · (k · (k − 1) / 2 + (N − k) · k) overlaps
        plus 6 · B · N when boxes are given by centre and size
    Convention
        At most: every candidate is compared with all boxes kept before it; at least: what is kept
        with what was kept before, and nothing to sort. One overlap is 4 (corners of the
        intersection) + 5 (its area, not negative) + 6 (both areas) + 2 (union) + 1 (division)
        + 1 (threshold).
    Source
        ONNX operator reference, NonMaxSuppression.
    """
    batches, classes, boxes = call.shape(1)
    lists, candidates = batches * classes, upper(boxes)
    if not upper(lists) or not upper(_boxes_kept(call, boxes)):
        return OpCost()
    fewest, most = ends(call.output().dims[0])
    at_least = 19 * _over_lists(lambda kept: kept * (kept - 1) // 2, fewest, upper(lists))
    at_most = upper(lists) * _sort_comparisons(candidates) + 19 * _over_lists(
        lambda kept: kept * (kept - 1) // 2 + (candidates - kept) * kept, most, upper(lists)
    )
    corners = 6 * batches * boxes if call.attr("center_point_box", 0) else 0
    return OpCost(
        flops=lists * boxes + interval(at_least, at_most) + corners,
        note="at most: every candidate overlaps every box kept before it",
    )


def _over_lists(work: Callable[[int], int], kept: int, lists: int) -> int:
    """The work of all lists that keep some boxes together, each as many as the others.

    It is the least where work grows faster than what is kept, the most where it grows slower.
    """
    each, more = divmod(kept, lists)
    return (lists - more) * work(each) + more * work(each + 1)


# -- DynamicTimeWarping ----------------------------------------------------------------------


@shape_rule("DynamicTimeWarping", domain=MICROSOFT)
def time_warping_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int32 [2, T]: a path through an M × N cost matrix, max(M, N) ≤ T ≤ M + N − 1."""
    rows, columns = _cost_matrix(call)
    longest = upper(rows) + upper(columns) - 1
    return [TensorInfo(DType.INT32, (2, interval(max(lower(rows), lower(columns)), longest)))]


def _cost_matrix(call: OpCall) -> tuple[int, int]:
    shape = call.shape(0)
    if len(shape) < 2 or math.prod(shape[:-2]) != 1:
        raise Impossible(f"the cost matrix must be [M, N] or [1, M, N], not {list(shape)}")
    return shape[-2], shape[-1]


@cost_rule("DynamicTimeWarping", domain=MICROSOFT)
def time_warping_cost(call: OpCall) -> OpCost:
    """The cheapest path through an M × N matrix by dynamic programming.

    Formula
        flops = 3 · M · N: 2 comparisons and 1 addition per cell
    Source
        ONNX Runtime contrib operators, DynamicTimeWarping.
    """
    rows, columns = _cost_matrix(call)
    return OpCost(flops=3 * rows * columns)
