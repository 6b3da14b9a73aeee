"""Polynomials with exact rational coefficients, found by interpolation; no computer algebra.

A quantity that is a polynomial of degree d_i in each dimension is fixed by its values on a grid
of (d_1 + 1) · (d_2 + 1) · … points. Newton's divided differences, one dimension at a time, give
the coefficients in exact fractions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Exponents = tuple[int, ...]

Sense = Literal["exactly", "at most", "at least", "per trip"]
"""What a polynomial's value says: the quantity, a bound of it, or the quantity of one loop trip."""

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Σ coefficient · Π variable^exponent.

    Attributes:
        variables: Names, in the order of the exponents.
        terms: Exponents → coefficient, without zeros.
        steps: Multiples on which the form holds, by variable; missing means every size.
        sense: Whether the value is the quantity itself or a bound of it.
        limits: (smallest, largest) size at which it was seen to hold, by variable; None and
            missing mean no limit was found.
    """

    variables: tuple[str, ...]
    terms: Mapping[Exponents, Fraction]
    steps: Mapping[str, int]
    sense: Sense = "exactly"
    limits: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)

    def at(self, /, **sizes: int) -> Fraction:
        """The value at the given sizes (exact)."""
        values = [sizes[name] for name in self.variables]
        total = Fraction(0)
        for exponents, coefficient in self.terms.items():
            term = coefficient
            for value, exponent in zip(values, exponents, strict=True):
                term *= value**exponent
            total += term
        return total

    @property
    def domain(self) -> str:
        """Where the form holds: "height, width multiples of 32; batch up to 147"; "" everywhere."""
        by_place: dict[str, list[str]] = {}
        for name, step in sorted(self.steps.items(), key=lambda item: item[1]):
            if step > 1:
                by_place.setdefault(f"multiples of {step}", []).append(name)
        for name, (low, high) in self.limits.items():
            bounds = (f"from {low}" if low is not None else "", f"up to {high}" if high else "")
            by_place.setdefault(" ".join(filter(None, bounds)), []).append(name)
        parts = [f"{', '.join(names)} {place}" for place, names in by_place.items()]
        return "; ".join(parts)

    def ordered(self) -> list[tuple[Exponents, Fraction]]:
        """The terms, highest degree first."""
        return sorted(self.terms.items(), key=lambda item: (-sum(item[0]), _neg(item[0])))

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for exponents, coefficient in self.ordered():
            sign = "-" if coefficient < 0 else "+"
            piece = _term(self.variables, exponents, abs(coefficient))
            text += f" {sign} {piece}" if text else f"{'-' if sign == '-' else ''}{piece}"
        return text


def _neg(exponents: Exponents) -> Exponents:
    return tuple(-exponent for exponent in exponents)


def _term(variables: Sequence[str], exponents: Exponents, coefficient: Fraction) -> str:
    factors = [
        name if exponent == 1 else name + str(exponent).translate(_SUPERSCRIPTS)
        for name, exponent in zip(variables, exponents, strict=True)
        if exponent
    ]
    number = str(coefficient.numerator)
    if coefficient.denominator != 1:
        number = f"{number}/{coefficient.denominator}"
    if factors and number == "1":
        return "·".join(factors)
    return "·".join([number, *factors])


def degree(xs: Sequence[int], values: Sequence[int]) -> int | None:
    """Degree of the polynomial through the points, which must be confirmed by a spare point.

    None when the points need the full degree, so nothing confirms it.
    """
    coefficients = _newton(xs, [Fraction(value) for value in values])
    significant = [order for order, coefficient in enumerate(coefficients) if coefficient]
    found = significant[-1] if significant else 0
    return found if found < len(xs) - 1 else None


def value_at(xs: Sequence[int], values: Sequence[int], x: int) -> Fraction:
    """The polynomial through the points, at another one."""
    total = Fraction(0)
    factor = Fraction(1)
    for node, coefficient in zip(xs, _newton(xs, [Fraction(v) for v in values]), strict=True):
        total += coefficient * factor
        factor *= x - node
    return total


def interpolate(
    axes: Sequence[Sequence[int]], values: Mapping[tuple[int, ...], int]
) -> dict[Exponents, Fraction]:
    """Coefficients of the polynomial through a full grid.

    Args:
        axes: The grid's positions in each dimension.
        values: The quantity at each grid point.
    """
    table = {
        index: Fraction(values[tuple(axis[i] for axis, i in zip(axes, index, strict=True))])
        for index in product(*(range(len(axis)) for axis in axes))
    }
    for dimension, axis in enumerate(axes):
        rest = [range(len(other)) for d, other in enumerate(axes) if d != dimension]
        for fixed in product(*rest):
            line = [(*fixed[:dimension], i, *fixed[dimension:]) for i in range(len(axis))]
            monomial = _monomials(axis, _newton(axis, [table[index] for index in line]))
            table.update(zip(line, monomial, strict=True))
    return {index: coefficient for index, coefficient in table.items() if coefficient}


def _newton(xs: Sequence[int], values: list[Fraction]) -> list[Fraction]:
    """Divided differences: coefficients of Π (x − x_j)."""
    table = list(values)
    for order in range(1, len(xs)):
        for i in range(len(xs) - 1, order - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (xs[i] - xs[i - order])
    return table


def _monomials(xs: Sequence[int], newton: list[Fraction]) -> list[Fraction]:
    """Coefficients of 1, x, x² … from those of the divided differences."""
    result = [Fraction(0)] * len(xs)
    for x, coefficient in zip(reversed(xs), reversed(newton), strict=True):
        shifted = [Fraction(0), *result[:-1]]
        result = [up - x * same for up, same in zip(shifted, result, strict=True)]
        result[0] += coefficient
    return result
