"""Bounds of the elements of a tensor, where the elements themselves are not known.

Sizes that a model computes from its data often pass through a Clip, a Min, a Sigmoid: whatever the
data are, the elements stay between two numbers. A `Range` holds these two, for a tensor of any
shape, and its functions are interval arithmetic in the tensor's own element type: rounding is
monotone, so bounds rounded outward hold for what a runtime computes. NaN has no place in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LARGEST_EXACT = float(1 << 53)
"""Beyond it not every integer is a double; a bound there is as good as none."""

_PRECISION: Mapping[DType, int] = {
    DType.FLOAT: 24,
    DType.DOUBLE: 53,
    DType.FLOAT16: 11,
    DType.BFLOAT16: 8,
}
"""Bits of the significand, the leading one included."""

_LARGEST_HALF = 65504.0
"""The largest number of FLOAT16; those of the other types are beyond `LARGEST_EXACT`."""


@dataclass(frozen=True, slots=True)
class Range:
    """low ≤ element ≤ high for every element of a tensor; infinite where there is no bound.

    `dtype` is the element type in the file; None where it is not known.
    """

    low: float
    high: float
    dtype: DType | None

    @property
    def is_finite(self) -> bool:
        """Whether there are two bounds."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, low: float, high: float, dtype: DType | None = None) -> Range:
        """Bounds of a result in this range's type, or another, rounded as the type demands."""
        return make(low, high, dtype or self.dtype)


def make(low: float, high: float, dtype: DType | None) -> Range:
    """The range with its ends rounded outward to numbers of the type.

    Ends that are no numbers, lie beyond what the type holds or cross leave no bound at all.
    """
    if math.isnan(low) or math.isnan(high) or low > high:
        return of_type(dtype)
    if dtype is not None and (dtype.is_integer or dtype is DType.BOOL):
        smallest, biggest = _limits(dtype)
        if math.isfinite(low):
            low = math.ceil(low)
        if math.isfinite(high):
            high = math.floor(high)
        if low < smallest or high > biggest:  # it wraps, or is undefined
            return of_type(dtype)
    else:
        low, high = -_rounded_up(-low, dtype), _rounded_up(high, dtype)
    return Range(
        low if low >= -LARGEST_EXACT else -math.inf,
        high if high <= LARGEST_EXACT else math.inf,
        dtype,
    )


def of_type(dtype: DType | None) -> Range:
    """What the type alone says: the limits of booleans and of integers of at most 8 bits."""
    if dtype is None or not (dtype.is_integer or dtype is DType.BOOL):
        return Range(-math.inf, math.inf, dtype)
    low, high = _limits(dtype)
    if dtype.bits is None or dtype.bits > 8:
        return Range(0 if low == 0 else -math.inf, math.inf, dtype)
    return Range(low, high, dtype)


def roundoff(dtype: DType | None) -> float:
    """The largest relative error of rounding to the type: 0 for integers."""
    if dtype is None or dtype not in _PRECISION:
        return 0.0 if dtype is not None and dtype.is_integer else math.inf
    return math.ldexp(1.0, -_PRECISION[dtype])


def _limits(dtype: DType) -> tuple[int, int]:
    """(smallest, largest) of an integer type or bool."""
    if dtype is DType.BOOL:
        return (0, 1)
    bits = dtype.bits or 64
    if dtype.label.startswith("uint"):
        return (0, (1 << bits) - 1)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _rounded_up(number: float, dtype: DType | None) -> float:
    """The least number of a type of floats that is not below; infinite for other types."""
    bits = None if dtype is None else _PRECISION.get(dtype)
    if bits is None or (dtype is DType.FLOAT16 and number > _LARGEST_HALF):
        return math.inf
    if not math.isfinite(number):
        return number
    fraction, exponent = math.frexp(number)
    return math.ldexp(math.ceil(math.ldexp(fraction, bits)), exponent - bits)


def union(*ranges: Range) -> Range:
    """What holds for an element of any of them."""
    return Range(
        min(item.low for item in ranges), max(item.high for item in ranges), ranges[0].dtype
    )


def chosen(choice: Callable[..., float], *ranges: Range) -> Range:
    """What holds for the least (`min`) or greatest (`max`) of elements: it is one of them."""
    return Range(
        choice(item.low for item in ranges), choice(item.high for item in ranges), ranges[0].dtype
    )


def rising(function: Callable[[float], float], of: Range) -> Range:
    """The range under a function that never falls."""
    try:
        return of.within(function(of.low), function(of.high))
    except (ArithmeticError, ValueError):
        return of_type(of.dtype)


def combined(function: Callable[[float, float], float], one: Range, other: Range) -> Range:
    """The range under a function that is monotone in either operand: extreme at the corners."""
    try:
        corners = [function(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    except (ArithmeticError, ValueError):
        return of_type(one.dtype)
    if any(map(math.isnan, corners)):
        return of_type(one.dtype)
    return one.within(min(corners), max(corners))
