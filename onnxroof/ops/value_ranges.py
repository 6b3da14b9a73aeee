"""Ranges of values: between which two numbers the elements of a result lie, whatever the data are.

Asked for only where a size is computed at run time (`onnxroof.scopes`). A rule sees the ranges of
the inputs beside all else of the call and returns those of the outputs; one it does not return, and
those of an operator without a rule, are what the element type allows. Rules hold for the text of
every opset version, and for tensors of any shape, since a range speaks of all elements at once.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

from onnxroof.bounded import ends, interval, lower, upper
from onnxroof.graph.types import Constant, DType
from onnxroof.ops.arithmetic import divide_interval
from onnxroof.ops.element_types import dtype_attr
from onnxroof.ops.geometry import normalize_axis
from onnxroof.ops.reduction import reduced_axes
from onnxroof.ops.registry import range_rule
from onnxroof.ranges import Range, chosen, combined, make, of_type, rising, roundoff, union

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxroof.ops.call import RangedCall


# -- elements that are moved, chosen or repeated ---------------------------------------------


@range_rule(
    "Compress", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "GlobalMaxPool", "Identity", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split",
    "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
def same_range(call: RangedCall) -> Sequence[Range]:
    """Every output holds elements of the first input."""
    return [call.range(0)] * call.output_count


@range_rule("ReduceMax", "ReduceMin")
def reduced_range(call: RangedCall) -> Sequence[Range]:
    """Elements of the input, if there are any; of nothing the type's own least or greatest."""
    return [call.range(0)] if lower(_terms(call)) > 0 else []


@range_rule("Concat")
def joined_range(call: RangedCall) -> Sequence[Range]:
    """An element of any input."""
    return [union(*call.given_ranges())]


@range_rule("Where")
def chosen_range(call: RangedCall) -> Sequence[Range]:
    """An element of X or Y."""
    return [union(call.range(1), call.range(2))]


@range_rule("Scatter", "ScatterElements", "ScatterND")
def scattered_range(call: RangedCall) -> Sequence[Range]:
    """An element of the data or of the updates, unless they are combined."""
    if call.attr("reduction", "none") not in ("none", "max", "min"):
        return []
    return [union(call.range(0), call.range(2))]


@range_rule("Trilu")
def triangle_range(call: RangedCall) -> Sequence[Range]:
    """An element, or 0."""
    found = call.range(0)
    return [union(found, found.within(0, 0))]


@range_rule("Pad")
def padded_range(call: RangedCall) -> Sequence[Range]:
    """An element, or in mode constant the filler, which is 0 by default."""
    found = call.range(0)
    if call.attr("mode", "constant") != "constant":
        return [found]
    filler = call.attr("value", 0.0)
    return [union(found, call.range(2) if call.has(2) else found.within(filler, filler))]


@range_rule("TopK")
def top_range(call: RangedCall) -> Sequence[Range]:
    """Elements, and their positions along the axis."""
    return [call.range(0), _positions(call, call.attr("axis", -1))]


# -- positions and counts --------------------------------------------------------------------


@range_rule("ArgMax", "ArgMin")
def arg_range(call: RangedCall) -> Sequence[Range]:
    """A position along the axis."""
    return [_positions(call, call.attr("axis", 0))]


def _positions(call: RangedCall, axis: int) -> Range:
    shape = call.shape(0)
    return make(0, max(upper(shape[normalize_axis(axis, len(shape))]) - 1, 0), DType.INT64)


@range_rule("NonZero")
def nonzero_range(call: RangedCall) -> Sequence[Range]:
    """A position along any axis."""
    return [make(0, max((upper(dim) - 1 for dim in call.shape(0)), default=0), DType.INT64)]


@range_rule("Range")
def counted_range(call: RangedCall) -> Sequence[Range]:
    """Between start and limit, whichever is greater; floats may be added up one by one."""
    found = union(call.range(0), call.range(1))
    if found.dtype is not None and found.dtype.is_integer:
        return [found]
    return [_with_room(found, upper(call.output().elements))]


@range_rule("ConstantOfShape")
def filled_range(call: RangedCall) -> Sequence[Range]:
    """The value everywhere; float zero by default."""
    fill = call.attributes.get("value")
    if not isinstance(fill, Constant):
        return [make(0.0, 0.0, DType.FLOAT)]
    if fill.value is None:
        return [of_type(fill.dtype)]
    number = fill.value.ravel()[0].item()
    return [make(number, number, fill.dtype)]


@range_rule("OneHot")
def one_hot_range(call: RangedCall) -> Sequence[Range]:
    """One of the two values."""
    return [call.range(2)]


# -- functions of each element ---------------------------------------------------------------


def _whole(function: Callable[[float], float]) -> Callable[[float], float]:
    """The function to whole numbers, which leaves infinity as it is."""
    return lambda end: function(end) if math.isfinite(end) else end


_RISING: Mapping[str, Callable[[float], float]] = {
    "Ceil": _whole(math.ceil),
    "Floor": _whole(math.floor),
    "Relu": lambda end: max(end, 0),
    "Round": _whole(round),
    "Sign": lambda end: (end > 0) - (end < 0),
}
"""Functions that never fall, with one exact result."""

_RISING_NEARLY: Mapping[str, Callable[[float], float]] = {
    "Exp": math.exp,
    "Sqrt": math.sqrt,
}
"""Functions that never fall, in whose last bits libraries differ."""

_SLACK = 1 / (1 << 20)
"""Room for those last bits, relative."""

_FIXED: Mapping[str, tuple[float, float]] = {
    "Bernoulli": (0, 1),
    "EyeLike": (0, 1),
    "HardSigmoid": (0, 1),
}
"""Functions whose values lie between two numbers whatever they are given."""

_FIXED_NEARLY: Mapping[str, tuple[float, float]] = {
    "Cos": (-1, 1),
    "Erf": (-1, 1),
    "Sigmoid": (0, 1),
    "Sin": (-1, 1),
    "Softmax": (0, 1),
    "Softsign": (-1, 1),
    "Tanh": (-1, 1),
}
"""The same but for the last bits: a runtime's Sigmoid and Tanh may be a little above 1."""

_COMBINED: Mapping[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Sub": lambda a, b: a - b,
    "Sum": lambda a, b: a + b,
}
"""Functions that are monotone in each operand."""


@range_rule(*_RISING)
def rising_range(call: RangedCall) -> Sequence[Range]:
    """The function at both ends."""
    return [rising(_RISING[call.op_type], call.range(0))]


@range_rule(*_RISING_NEARLY)
def nearly_rising_range(call: RangedCall) -> Sequence[Range]:
    """The function at both ends, and some room; no result is negative.

    A root that may be of a negative number may be no number, and so anything as an integer.
    """
    if call.op_type == "Sqrt" and call.range(0).low < 0:
        return []
    found = rising(_RISING_NEARLY[call.op_type], call.range(0))
    return [found.within(found.low * (1 - _SLACK), found.high * (1 + _SLACK))]


@range_rule(*_FIXED)
def fixed_range(call: RangedCall) -> Sequence[Range]:
    """The range of the function itself."""
    dtype = dtype_attr(call, "dtype", call.range(0).dtype)
    return [make(*_FIXED[call.op_type], dtype)]


@range_rule(*_FIXED_NEARLY)
def nearly_fixed_range(call: RangedCall) -> Sequence[Range]:
    """The range of the function itself, and some room at the ends that are not 0."""
    low, high = _FIXED_NEARLY[call.op_type]
    return [call.range(0).within(low * (1 + _SLACK), high * (1 + _SLACK))]


@range_rule("RandomUniform", "RandomUniformLike")
def random_range(call: RangedCall) -> Sequence[Range]:
    """Between the attributes low and high."""
    dtype = dtype_attr(call, "dtype", call.range(0).dtype if call.has(0) else DType.FLOAT)
    return [make(call.attr("low", 0.0), call.attr("high", 1.0), dtype)]


@range_rule(*_COMBINED)
def combined_range(call: RangedCall) -> Sequence[Range]:
    """The function at the ends of all inputs, one after the other."""
    function = _COMBINED[call.op_type]
    return [reduce(lambda one, other: combined(function, one, other), call.given_ranges())]


@range_rule("Max", "Min")
def extreme_range(call: RangedCall) -> Sequence[Range]:
    """The greatest or least of both ends."""
    return [chosen(max if call.op_type == "Max" else min, *call.given_ranges())]


@range_rule("Neg")
def negated_range(call: RangedCall) -> Sequence[Range]:
    """From −high to −low."""
    found = call.range(0)
    return [found.within(-found.high, -found.low)]


@range_rule("Abs")
def absolute_range(call: RangedCall) -> Sequence[Range]:
    """The nearest and the farthest distance from 0."""
    found = call.range(0)
    nearest = max(found.low, -found.high, 0)
    return [found.within(nearest, max(-found.low, found.high))]


@range_rule("Div")
def quotient_range(call: RangedCall) -> Sequence[Range]:
    """At the ends, if the divisor cannot be 0; integers truncate toward 0."""
    one, other = call.range(0), call.range(1)
    if other.low <= 0 <= other.high:
        return []
    if one.dtype is None or not one.dtype.is_integer:
        return [combined(lambda a, b: a / b, one, other)]
    if not (one.is_finite and other.is_finite):
        return []
    found = divide_interval(*(interval(int(each.low), int(each.high)) for each in (one, other)))
    return [] if found is None else [one.within(*ends(found))]


@range_rule("Mod")
def remainder_range(call: RangedCall) -> Sequence[Range]:
    """From 0 to the divisor, where that is positive, and with fmod the dividend not negative."""
    one, other = call.range(0), call.range(1)
    if other.low <= 0 or (call.attr("fmod", 0) and one.low < 0):
        return []
    is_integer = one.dtype is not None and one.dtype.is_integer
    high = other.high - 1 if is_integer else other.high
    return [one.within(0, min(high, one.high) if one.low >= 0 else high)]


@range_rule("Clip")
def clipped_range(call: RangedCall) -> Sequence[Range]:
    """Not below min, then not above max: inputs, or attributes before opset 11."""
    found = call.range(0)
    for position, name, choice in ((1, "min", max), (2, "max", min)):
        if call.has(position):
            found = chosen(choice, found, call.range(position))
        elif name in call.attributes:
            number = call.attr(name, 0.0)
            found = chosen(choice, found, found.within(number, number))
    return [found]


@range_rule("Cast", "CastLike")
def cast_range(call: RangedCall) -> Sequence[Range]:
    """Floats to integers truncate toward 0."""
    found = call.range(0)
    target = dtype_attr(call, "to", call.range(1).dtype if call.has(1) else found.dtype)
    if target is DType.BOOL:
        return [of_type(target)]
    if target is not None and target.is_integer:
        truncate = _whole(math.trunc)
        return [make(truncate(found.low), truncate(found.high), target)]
    return [make(found.low, found.high, target)]


@range_rule("DequantizeLinear")
def dequantized_range(call: RangedCall) -> Sequence[Range]:
    """(x − zero point) · scale."""
    stored, scale = call.range(0), call.range(1)
    shifted = make(stored.low, stored.high, scale.dtype)
    if call.has(2):
        shifted = combined(_COMBINED["Sub"], shifted, call.range(2))
    return [combined(_COMBINED["Mul"], shifted, scale)]


# -- sums ------------------------------------------------------------------------------------


@range_rule("ReduceSum")
def sum_range(call: RangedCall) -> Sequence[Range]:
    """Between as many times low and as many times high as elements are added."""
    return [_summed(call.range(0), *ends(_terms(call)))]


@range_rule("CumSum")
def running_range(call: RangedCall) -> Sequence[Range]:
    """As a sum of any part of the axis."""
    shape = call.shape(0)
    axis = normalize_axis(call.ints(1, "the axis")[0], len(shape))
    return [_summed(call.range(0), 0, upper(shape[axis]))]


def _summed(found: Range, fewest: int, most: int) -> Range:
    """The sum of so many elements, in whatever order they are added."""
    corners = [count * end for count in (fewest, most) for end in (found.low, found.high)]
    if any(map(math.isnan, corners)):
        return of_type(found.dtype)
    return _with_room(found.within(min(corners), max(corners)), most)


@range_rule("ReduceMean")
def mean_range(call: RangedCall) -> Sequence[Range]:
    """The elements' own range."""
    return [_with_room(call.range(0), upper(_terms(call)))]


def _terms(call: RangedCall) -> int:
    """Elements that a reduction makes into one."""
    shape = call.shape(0)
    return math.prod(shape[axis] for axis in reduced_axes(call))


def _with_room(found: Range, additions: int) -> Range:
    """Room for the rounding of a sum of floats: half a unit in the last place an addition."""
    room = additions * roundoff(found.dtype) * max(-found.low, found.high)
    return found.within(found.low - room, found.high + room)
