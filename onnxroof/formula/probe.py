"""One dimension at a time: on which multiples, of which degree and how far a polynomial holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from onnxroof.formula.measure import RANK, Measure, NoFormError, Sizes
from onnxroof.polynomial import degree, value_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Multiples tried, in this order."""

_NEAR = 5
"""Neighbouring points, enough for degree 3 and one point that confirms it."""

_HIGHER = (29, 67, 131, 241, 491, 1003, 4001, 1_000_003)
"""Distances of points that confirm it further up."""

_ROUNDING = 131
"""A polynomial that fails up to this distance was none: what rounds has moved a step by then.
Failing beyond, it holds on a range."""

_LOWER = (5, 3, 2, 1)
"""Steps at which it is confirmed further down, to the smallest size there is."""

_SMALLEST_SIZE = 16
"""Probing starts here, so that windows fit and sizes of 1, which broadcast, stay apart."""

_MAY_LACK = frozenset({"peak_activation_bytes"})
"""Quantities that may well have no formula: no coarser lattice is sought for their sake alone."""


@dataclass(frozen=True, slots=True)
class Course:
    """How one quantity runs along a dimension.

    Attributes:
        degree: Of its polynomial there.
        low: Smallest size at which it holds though smaller ones are valid; None: no such limit.
        highs: How many of the axis's `highs`, in order, agree with it.
    """

    degree: int
    low: int | None
    highs: int


@dataclass(frozen=True, slots=True)
class Axis:
    """Points along one dimension: neighbours to fit at and, further up, to confirm at.

    Attributes:
        step: All are multiples of it.
        near: Where polynomials are fitted.
        highs: Where they are confirmed.
        lowest: The smallest size looked at that the model takes.
        courses: Quantity → its polynomial along this line.
        lost: Quantities that have none.
        refused: The next higher point, where the model does not take it.
        largest: The size at which the model refuses the next one; None where none is known, or
            where it is another at other sizes of the other dimensions.
    """

    step: int
    near: tuple[int, ...]
    highs: tuple[int, ...]
    lowest: int
    courses: Mapping[str, Course]
    lost: tuple[str, ...]
    refused: int | None
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    step: int
    near: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]
    values: Mapping[int, Mapping[str, int]]
    refused: int | None

    def axis(self) -> Axis:
        """What each quantity does on this line."""
        keys = self.values[self.near[0]]
        found = {key: self._course([self.values[x][key] for x in self.near], key) for key in keys}
        courses = {key: course for key, course in found.items() if course is not None}
        lost = tuple(key for key in found if key not in courses)
        lowest = (self.near[0], *self.lows)[-1]
        return Axis(self.step, self.near, self.highs, lowest, courses, lost, self.refused)

    def _course(self, near_values: Sequence[int], key: str) -> Course | None:
        order = degree(self.near, near_values)
        if order is None:
            return None

        def agrees(x: int) -> bool:
            fit = slice(order + 1)
            return value_at(self.near[fit], near_values[fit], x) == self.values[x][key]

        highs = _leading(self.highs, agrees)
        within = sum(1 for x in self.highs if x - self.near[0] <= _ROUNDING + self.step)
        if highs < max(within, min(2, len(self.highs))):
            return None
        lows = _leading(self.lows, agrees)
        limit = (self.near[0], *self.lows)[lows] if lows < len(self.lows) else None
        return Course(order, limit, highs)


def _leading(points: Sequence[int], holds: Callable[[int], bool]) -> int:
    """How many points at the beginning satisfy the condition."""
    return sum(1 for _ in takewhile(holds, points))


def axis_of(measure: Measure, name: str, sizes: Sizes) -> Axis:
    """The finest step on which most quantities are polynomials of this dimension alone.

    Raises:
        NoFormError: No five neighbouring sizes are valid, or an output's rank depends on it.
    """
    best: Axis | None = None
    reason = ""
    for step in STEPS:
        try:
            line = _line(measure, name, step, sizes)
        except NoFormError as error:
            reason = reason or str(error)
            continue
        _refuse_changing_rank(name, line, measure, sizes)
        axis = line.axis()
        if best is None or len(axis.courses) > len(best.courses):
            best = axis
        if _MAY_LACK.issuperset(axis.lost):
            break
    if best is None:
        raise NoFormError(f"dimension {name} cannot be varied alone: {reason}")
    return replace(best, largest=_largest(best, name, measure, sizes))


def _largest(axis: Axis, name: str, measure: Measure, sizes: Sizes) -> int | None:
    """The size at which sizes end that the model takes, if one above the points was refused."""
    if axis.refused is None:
        return None
    step, good, bad = axis.step, (*axis.near, *axis.highs)[-1], axis.refused
    while bad - good > step:
        middle = good + (bad - good) // step // 2 * step
        if measure.takes({**sizes, name: middle}):
            good = middle
        else:
            bad = middle
    largest = max(x for x in range(good, bad) if x == good or measure.takes({**sizes, name: x}))
    others = [other for other in sizes if other != name]
    for other, moved in [(n, size) for n in others for size in (sizes[n] // 2, 2 * sizes[n])]:
        around = {**sizes, other: moved}
        takes_it = measure.takes({**around, name: largest})
        if not takes_it or measure.takes({**around, name: largest + 1}):
            return None  # it depends on the other one
    return largest


def _line(measure: Measure, name: str, step: int, sizes: Sizes) -> _Line:
    """Quantities along one dimension, from a common start or else around a known size."""
    reason: NoFormError | None = None
    around = max(sizes[name] - sizes[name] % step, step)
    starts = (max(_SMALLEST_SIZE, 2 * step), around, max(around - (_NEAR - 1) * step, step))
    for start in dict.fromkeys(starts):
        try:
            return _line_from(start, measure, name, step, sizes)
        except NoFormError as error:
            reason = error
    raise reason or NoFormError("no valid size was found")


def _line_from(start: int, measure: Measure, name: str, step: int, sizes: Sizes) -> _Line:
    near = tuple(start + step * i for i in range(_NEAR))
    values = {x: measure({**sizes, name: x}) for x in near}

    def accepted(x: int) -> bool:
        return measure.accepts({**sizes, name: x})

    up = dict.fromkeys(start + -(-distance // step) * step for distance in _HIGHER)
    highs = [x for x in up if x > near[-1]]
    lows = [step * low for low in _LOWER if step * low < start]
    taken = _leading(highs, accepted)
    refused = highs[taken] if taken < len(highs) else None
    highs = highs[:taken]
    lows = lows[: _leading(lows, accepted)]
    values |= {x: measure({**sizes, name: x}) for x in (*lows, *highs)}
    return _Line(step, near, tuple(lows), tuple(highs), values, refused)


def _refuse_changing_rank(name: str, line: _Line, measure: Measure, sizes: Sizes) -> None:
    """The rank of an output must not depend on the dimension's size, 1 included."""
    at_one = {**sizes, name: 1}
    points = list(line.values.values())
    if measure.accepts(at_one):
        points.append(measure(at_one))
    for values in points[1:]:
        for key, value in values.items():
            if key.startswith(RANK) and points[0].get(key) != value:
                raise NoFormError(f"the {key} depends on {name}: bind it")
