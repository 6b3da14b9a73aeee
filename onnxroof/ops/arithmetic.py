"""Arithmetic on the tiny values that steer shapes: ONNX semantics, exact or bounded.

A value is a numpy array. Where an element is only bounded (`BoundedInt`) the array is of Python
objects, and numpy's own functions would quietly compute with the upper bound; such arrays go
through the interval functions here. An interval function answers None where its operands' bounds
do not decide the result; the value is then unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import BoundedInt, ends, interval, lower, upper
from onnxroof.graph.values import NUMPY_TYPE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxroof.graph.types import DType
    from onnxroof.ops.call import Value

ArrayFunction = Callable[..., "NDArray[np.generic] | None"]
IntervalFunction = Callable[..., "int | None"]


def is_bounded(value: Value) -> bool:
    """Whether an element is known only by its bounds."""
    return value.dtype == np.object_


def evaluate(
    exact: ArrayFunction, bounded: IntervalFunction | None, result: DType | None, *values: Value
) -> Value | None:
    """Apply a function elementwise, with broadcasting.

    Args:
        exact: On numpy arrays; None from it means no defined result.
        bounded: On integers that may be bounded; None where the operator has no interval form.
        result: Element type of the result.
        values: The operands.
    """
    target = NUMPY_TYPE.get(result) if result is not None else None
    if target is None:
        return None
    if not any(map(is_bounded, values)):
        with np.errstate(all="ignore"):
            outcome = exact(*values)
            return None if outcome is None else np.asarray(outcome).astype(target, copy=False)
    if bounded is None:
        return None
    return settle(np.array(np.frompyfunc(bounded, len(values), 1)(*values), dtype=object), target)


def settle(objects: NDArray[np.object_], target: type[np.generic]) -> Value | None:
    """The objects as they are while one is bounded, else as a plain array.

    None if one is None, or may lie beyond the type: it would wrap around.
    """
    items = objects.ravel().tolist()
    if any(item is None for item in items):
        return None
    if any(isinstance(item, BoundedInt) for item in items):
        return objects if _all_fit(items, target) else None
    try:
        return objects.astype(target)
    except OverflowError:
        return None


def _all_fit(items: list[int], target: type[np.generic]) -> bool:
    """Whether the type has room for integers, whatever they are within their bounds."""
    if not issubclass(target, np.integer):
        return True
    limits = np.iinfo(target)
    return all(limits.min <= lower(item) and upper(item) <= limits.max for item in items)


def divide(a: Value, b: Value) -> Value | None:
    """Integers truncate toward zero (undefined for a zero divisor), floats divide."""
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(np.true_divide(a, b))
    if not np.all(b):
        return None
    quotient = np.floor_divide(a, b)
    rounded_down = (np.remainder(a, b) != 0) & (np.less(a, 0) != np.less(b, 0))
    return np.asarray(quotient + rounded_down.astype(quotient.dtype))


def divide_interval(a: int, b: int) -> int | None:
    """Truncating division of intervals; None when the divisor may be zero."""
    low, high = ends(b)
    if low <= 0 <= high:
        return None
    corners = [_truncated(x, y) for x in ends(a) for y in (low, high)]
    return interval(min(corners), max(corners))


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def modulo(a: Value, b: Value) -> Value | None:
    """Remainder with the sign of the divisor; undefined for an integer zero divisor."""
    if np.issubdtype(a.dtype, np.integer) and not np.all(b):
        return None
    return np.asarray(np.mod(a, b))


def modulo_interval(a: int, b: int) -> int | None:
    """Remainder of a non-negative interval by a positive one."""
    if lower(a) < 0 or lower(b) <= 0:
        return None
    if not isinstance(a, BoundedInt) and not isinstance(b, BoundedInt):
        return a % b
    return a if upper(a) < lower(b) else interval(0, min(upper(a), upper(b) - 1))


def fmod(a: Value, b: Value) -> Value | None:
    """Remainder with the sign of the dividend; undefined for an integer zero divisor."""
    if np.issubdtype(a.dtype, np.integer) and not np.all(b):
        return None
    return np.asarray(np.fmod(a, b))


def power(a: Value, b: Value) -> Value | None:
    """Power in the base's type; undefined for integers to negative integers."""
    integers = np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer)
    if integers and np.any(np.less(b, 0)):
        return None
    return np.asarray(np.power(a, b))


def absolute_interval(a: int) -> int:
    """|a|, with bounds."""
    if lower(a) >= 0:
        return a
    low = 0 if upper(a) >= 0 else -upper(a)
    return interval(low, max(-lower(a), upper(a)))


def sign_interval(a: int) -> int:
    """-1, 0 or 1, with bounds."""
    low, high = ends(a)
    return interval((low > 0) - (low < 0), (high > 0) - (high < 0))


def equal_interval(a: int, b: int) -> bool | None:
    """Whether equal; None while the bounds overlap."""
    if lower(a) == upper(a) == lower(b) == upper(b):
        return True
    return False if upper(a) < lower(b) or upper(b) < lower(a) else None


def less_interval(a: int, b: int) -> bool | None:
    """Whether a < b; None while the bounds do not tell."""
    if upper(a) < lower(b):
        return True
    return False if lower(a) >= upper(b) else None


def less_or_equal_interval(a: int, b: int) -> bool | None:
    """Whether a ≤ b; None while the bounds do not tell."""
    greater = less_interval(b, a)
    return None if greater is None else not greater


def choose(condition: bool, a: int, b: int) -> int:
    """The element Where takes."""
    return a if condition else b


def nonzero_interval(a: int) -> bool | None:
    """Whether the integer is not zero; None while the bounds do not tell."""
    if lower(a) > 0 or upper(a) < 0:
        return True
    return False if lower(a) == upper(a) == 0 else None
