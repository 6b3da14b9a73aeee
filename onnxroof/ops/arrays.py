"""Known values as numpy arrays: int64, or `object` while a `BoundedInt` is among the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import BoundedInt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from onnxroof.ops.call import Value


_TOO_LARGE = 2.0**63
"""Floating-point values from here on, infinities and NaN are no int64."""


def has_bounds(array: Value) -> bool:
    """Whether an element is only known to lie between bounds."""
    return array.dtype == object and BoundedInt in map(type, array.ravel().tolist())


def int_vector(items: Iterable[int]) -> Value:
    """A vector of sizes: int64 when all are exact, `object` otherwise."""
    listed = list(items)
    return np.array(listed, dtype=object if BoundedInt in map(type, listed) else np.int64)


def int_scalar(item: int) -> Value:
    """A scalar size: int64 when exact, `object` otherwise."""
    return np.array(item, dtype=object if isinstance(item, BoundedInt) else np.int64)


def exact_ints(array: Value) -> NDArray[np.int64] | None:
    """The elements as int64, for use as indices; None where one is only bounded or no number."""
    if has_bounds(array) or (array.dtype.kind == "f" and not (np.abs(array) < _TOO_LARGE).all()):
        return None
    return array.astype(np.int64)


def picked(result: object, source: Value) -> Value:
    """What numpy took out of `source`: an array of its type, exact again if no bounds are left.

    numpy returns a bare element where the result has no axes; its type must not be guessed anew.
    """
    array = np.array(result, dtype=source.dtype)
    if array.dtype == object and not has_bounds(array):
        return array.astype(np.int64)
    return array
