"""An integer known only to lie between two bounds, usable wherever an `int` is.

Data-dependent sizes (the rows NonZero finds, the boxes NonMaxSuppression keeps, the trips of a
Loop) have no exact value before the model runs, but they have bounds. `BoundedInt` *is* its upper
bound, so every formula works on it unchanged, and interval arithmetic carries the lower bound and
the fact that the result is "at most" into sizes, counts and totals.
"""

from __future__ import annotations


class BoundedInt(int):
    """An integer in [low, self]; the int value is the upper bound.

    `name` is how the size is called in reports and bound with `--dim`, and tells that two sizes are
    one and the same. Results of arithmetic are nameless, unless nothing was changed (x·1, x + 0).
    """

    low: int
    name: str

    def __new__(cls, high: int, low: int = 0, name: str = "") -> BoundedInt:
        """Make the interval [low, high]."""
        self = super().__new__(cls, high)
        self.low = low
        self.name = name
        return self

    def __reduce__(self) -> tuple[type[BoundedInt], tuple[int, int, str]]:
        return (BoundedInt, (int(self), self.low, self.name))

    def __str__(self) -> str:
        return f"{self.name or '?'}≤{int(self)}"

    def __add__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        if other == 0 and is_exact(other):
            return self
        return interval(lower(self) + lower(other), upper(self) + upper(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        if other == 0 and is_exact(other):
            return self
        return interval(lower(self) - upper(other), upper(self) - lower(other))

    def __rsub__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        return interval(lower(other) - upper(self), upper(other) - lower(self))

    def __neg__(self) -> int:
        return interval(-upper(self), -lower(self))

    def __mul__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        if is_exact(other):
            if other == 1:
                return self
            one, two = self.low * other, int(self) * other
            return interval(one, two) if other > 0 else interval(two, one)
        corners = [a * b for a in ends(self) for b in ends(other)]
        return interval(min(corners), max(corners))

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        return _divide(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _divide(other, self)

    def __mod__(self, other: int) -> int:
        return _remainder(self, other)

    def __rmod__(self, other: int) -> int:
        return _remainder(other, self)


def _divide(numerator: object, divisor: object) -> int:
    if not (isinstance(numerator, int) and isinstance(divisor, int)):
        return NotImplemented  # type: ignore[no-any-return]
    if divisor == 1 and is_exact(divisor):
        return numerator
    corners = [a // b for a in ends(numerator) for b in _nonzero_ends(divisor)]
    return interval(min(corners), max(corners))


def _remainder(numerator: object, divisor: object) -> int:
    """Between 0 and the divisor, the divisor left out; below 0 for a negative divisor."""
    if not (isinstance(numerator, int) and isinstance(divisor, int)):
        return NotImplemented  # type: ignore[no-any-return]
    divisors = _nonzero_ends(divisor)
    return interval(min(min(divisors) + 1, 0), max(max(divisors) - 1, 0))


def _nonzero_ends(divisor: int) -> list[int]:
    """Where a quotient can be extreme: the ends and, around zero, 1 and -1."""
    low, high = ends(divisor)
    found = [d for d in (low, -1, 1, high) if d and low <= d <= high]
    if not found:
        raise ZeroDivisionError
    return found


def upper(value: int) -> int:
    """The largest value possible, as a plain int."""
    return int(value)


def lower(value: int) -> int:
    """The smallest value possible; the value itself when it is exact."""
    return value.low if isinstance(value, BoundedInt) else value


def ends(value: int) -> tuple[int, int]:
    """(smallest, largest)."""
    return (lower(value), upper(value))


def interval(low: int, high: int) -> int:
    """The interval as an int: exact when the ends meet."""
    return high if low == high else BoundedInt(high, low)


def largest(*values: int) -> int:
    """Like max, with correct bounds."""
    return interval(max(map(lower, values)), max(map(upper, values)))


def smallest(*values: int) -> int:
    """Like min, with correct bounds."""
    return interval(min(map(lower, values)), min(map(upper, values)))


def is_exact(value: int) -> bool:
    """Whether the integer is known exactly."""
    return not isinstance(value, BoundedInt)
