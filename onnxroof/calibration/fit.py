"""`onnxroof hw fit`: a few constants of the latency model from a few measured models.

    minimize  Σ h(log(expected / measured) / noise) + θᵀ Σ⁻¹ θ,     θ = log of the speeds

h is Huber's function, the square up to 2 and linear beyond, so that a measurement that went wrong
cannot bend everything (Huber, 1964). θ are the logarithms of how much faster each group of
constants is than in the base profile (`cases.GROUPS`), bounded. The second term holds them near 0
and near each other: Σ has a common part (the device is as a whole faster or slower than its profile
says) and one of each group's own.
With few measurements that shrinks towards the base profile; with many it hardly matters. Whether
the result is any better is decided by leaving out one model at a time: if the models left out are
not predicted better than by the base profile, the base profile stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.calibration.cases import GROUPS
from onnxroof.errors import MeasurementError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from onnxroof.calibration.cases import Case
    from onnxroof.latency.runtime import RuntimeProfile

    Vector = NDArray[np.float64]

COMMON = math.log(2)
"""How far a whole device is usually off: one standard deviation of the common part of θ."""

OWN = 0.35
"""How far a group is off beside that."""

NOISE = 0.1
"""Standard deviation of log(expected / measured) that no constant explains."""

LARGEST = math.log(4)
"""Bound on |θ|: no group becomes more than four times as fast or slow."""

BETTER = 0.98
"""Share of the base's error, models left out, that a fit must stay below to be taken; it must also
be lower by more than half its standard error."""

_HUBER = 2.0

_SUPPORT = 0.1
"""Share of a model's time from which it says something about a group."""

_STEP = 1e-3
_MOST_ITERATIONS = 20
_COARSE_PASSES, _GRID = 2, 13
_SMALL = 1e-4


@dataclass(frozen=True, slots=True)
class FittedRow:
    """One measurement: as measured, as the base profile has it, fitted, and when left out."""

    path: str
    measured_seconds: float
    base_seconds: float
    fitted_seconds: float
    left_out_seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome.

    Attributes:
        speeds: How many times as fast each group is, over the base profile; empty when the base
            stays.
        tied: All groups moved as one, since no group stood out in two models, or there were fewer
            measurements than groups.
        improves: Models left out are predicted better than by the base profile.
        rows: One a measurement.
    """

    speeds: Mapping[str, float]
    tied: bool
    improves: bool
    rows: tuple[FittedRow, ...]

    @property
    def base_error(self) -> float:
        """Mean absolute percentage error of the base profile, as a share."""
        return _mape([row.base_seconds for row in self.rows], self._measured)

    @property
    def fitted_error(self) -> float:
        """The same of the fit, on the measurements it was made from."""
        return _mape([row.fitted_seconds for row in self.rows], self._measured)

    @property
    def left_out_error(self) -> float:
        """The same of fits without the model in question: what to expect of another model."""
        return _mape([row.left_out_seconds for row in self.rows], self._measured)

    @property
    def _measured(self) -> list[float]:
        return [row.measured_seconds for row in self.rows]


def fit(cases: Sequence[Case], runtime: RuntimeProfile, groups: Sequence[str] | None = None) -> Fit:
    """Fit the groups' speeds.

    Args:
        cases: The measurements.
        runtime: What they were made with.
        groups: Which of `GROUPS` to fit, each on its own; None takes those that matter for at least
            two models, or all as one where there are none or more than measurements.

    Raises:
        UsageError: A group that does not exist.
        MeasurementError: More constants than measurements, or fewer than two models.
    """
    _check(cases, groups)
    problem = _Problem(cases, runtime)
    chosen = tuple(groups) if groups is not None else problem.supported()
    tied = groups is None and not 0 < len(chosen) <= len(cases)
    if tied:
        chosen = tuple(GROUPS)
    solver = _Solver(problem, chosen, tied=tied)
    everything = list(range(len(cases)))
    theta = solver.solve(everything)
    left_out = [0.0] * len(cases)
    for path in dict.fromkeys(case.path for case in cases):
        kept = [place for place in everything if cases[place].path != path]
        without = solver.speeds(solver.solve(kept, theta))
        for place in set(everything) - set(kept):
            left_out[place] = problem.predict(place, without)
    speeds = solver.speeds(theta)
    rows = tuple(
        FittedRow(
            case.path, case.seconds, problem.predict(place, {}), problem.predict(place, speeds),
            left_out[place],
        )
        for place, case in enumerate(cases)
    )  # fmt: skip
    if _is_better(rows):
        return Fit(speeds, tied, improves=True, rows=rows)
    return Fit({}, tied, improves=False, rows=rows)


def _is_better(rows: Sequence[FittedRow]) -> bool:
    """Whether models left out are nearer, by more than a little chance."""
    off = [
        (abs(row.base_seconds / row.measured_seconds - 1),
         abs(row.left_out_seconds / row.measured_seconds - 1))
        for row in rows
    ]  # fmt: skip
    gains = np.array([base - left_out for base, left_out in off])
    chance = 0.5 * float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    least = (1 - BETTER) * sum(base for base, _ in off) / len(off)
    return float(np.mean(gains)) > max(chance, least)


def _check(cases: Sequence[Case], groups: Sequence[str] | None) -> None:
    unknown = [group for group in groups or () if group not in GROUPS]
    if unknown:
        raise UsageError(f"constants {unknown[0]!r} is not one of {', '.join(GROUPS)}")
    if groups is not None and len(groups) > len(cases):
        raise MeasurementError(
            "", f"{len(groups)} constants need at least as many measurements; the table has"
            f" {len(cases)}"
        )  # fmt: skip
    models = len({case.path for case in cases})
    if models < 2:
        raise MeasurementError(
            "", "measurements of at least two models are needed: with one, nothing shows whether a"
            " fit helps with another"
        )  # fmt: skip


class _Problem:
    """Predictions by speeds, remembered."""

    def __init__(self, cases: Sequence[Case], runtime: RuntimeProfile) -> None:
        self.cases = cases
        self._runtime = runtime
        self._known: dict[tuple[int, tuple[tuple[str, float], ...]], float] = {}

    def predict(self, place: int, speeds: Mapping[str, float]) -> float:
        key = (place, tuple(sorted(speeds.items())))
        if key not in self._known:
            self._known[key] = self.cases[place].predict(self._runtime, speeds)
        return self._known[key]

    def residual(self, place: int, speeds: Mapping[str, float]) -> float:
        """log(expected / measured)."""
        return math.log(self.predict(place, speeds) / self.cases[place].seconds)

    def supported(self) -> tuple[str, ...]:
        """Groups that take a good part of the time of at least two models.

        What only one model shows, leaving that model out cannot confirm.
        """
        return tuple(group for group in GROUPS if self._second_largest(group) >= _SUPPORT)

    def _second_largest(self, group: str) -> float:
        """The share of time that a group has in all models but the one where it is largest.

        Seen by making it slower: a kernel at its roofline bound gets no faster.
        """
        slower = {group: 1 / math.exp(COMMON)}
        shares: dict[str, float] = {}
        for place, case in enumerate(self.cases):
            share = (self.residual(place, slower) - self.residual(place, {})) / COMMON
            shares[case.path] = max(share, shares.get(case.path, 0.0))
        return sorted(shares.values())[-2]


class _Solver:
    """Gauss-Newton steps on θ, halved until they help, within bounds."""

    def __init__(self, problem: _Problem, groups: Sequence[str], *, tied: bool) -> None:
        self._problem = problem
        self._groups = groups
        self._tied = tied
        size = 1 if tied else len(groups)
        own = 0.0 if tied else OWN
        covariance = COMMON**2 * np.ones((size, size)) + own**2 * np.eye(size)
        self._precision = np.linalg.inv(covariance)
        self._size = size

    def speeds(self, theta: Vector) -> dict[str, float]:
        """The groups' speeds."""
        values = [float(theta[0])] * len(self._groups) if self._tied else theta.tolist()
        return {group: math.exp(value) for group, value in zip(self._groups, values, strict=True)}

    def solve(self, places: Sequence[int], start: Vector | None = None) -> Vector:
        """The best θ for some of the measurements."""
        theta = self._coarse(places) if start is None else start.copy()
        residuals = self._residuals(places, theta)
        cost = self._cost(residuals, theta)
        for _ in range(_MOST_ITERATIONS):
            step = self._step(places, theta, residuals)
            improved = self._descend(places, theta, step, cost)
            if improved is None:
                break
            moved = float(np.max(np.abs(improved[0] - theta)))
            theta, residuals, cost = improved
            if moved < _SMALL:
                break
        return theta

    def _coarse(self, places: Sequence[int]) -> Vector:
        """The best point of a grid, one axis after the other.

        Steps along slopes cannot leave a point where kernels are held at their roofline bound,
        since there the slope is 0; points farther off can.
        """
        theta = np.zeros(self._size)
        for _ in range(_COARSE_PASSES):
            for axis in range(self._size):
                trials = []
                for value in np.linspace(-LARGEST, LARGEST, _GRID):
                    trial = theta.copy()
                    trial[axis] = value
                    trials.append((self._cost(self._residuals(places, trial), trial), trial))
                theta = min(trials, key=lambda pair: pair[0])[1]
        return theta

    def _step(self, places: Sequence[int], theta: Vector, residuals: Vector) -> Vector:
        columns = []
        for axis in range(self._size):
            nudged = theta.copy()
            nudged[axis] += _STEP
            columns.append((self._residuals(places, nudged) - residuals) / _STEP)
        jacobian = np.column_stack(columns)
        weights = np.minimum(1.0, _HUBER * NOISE / np.maximum(np.abs(residuals), 1e-12)) / NOISE**2
        left = jacobian.T @ (weights[:, None] * jacobian) + self._precision
        right = jacobian.T @ (weights * residuals) + self._precision @ theta
        return np.asarray(np.linalg.solve(left, -right), dtype=np.float64)

    def _descend(
        self, places: Sequence[int], theta: Vector, step: Vector, cost: float
    ) -> tuple[Vector, Vector, float] | None:
        """The first of the halved steps that lowers the cost; None when none does."""
        for halvings in range(8):
            trial = np.clip(theta + step / 2**halvings, -LARGEST, LARGEST)
            residuals = self._residuals(places, trial)
            found = self._cost(residuals, trial)
            if found < cost:
                return trial, residuals, found
        return None

    def _residuals(self, places: Sequence[int], theta: Vector) -> Vector:
        speeds = self.speeds(theta)
        return np.array([self._problem.residual(place, speeds) for place in places])

    def _cost(self, residuals: Vector, theta: Vector) -> float:
        off = np.abs(residuals) / NOISE
        huber = np.where(off <= _HUBER, off**2, _HUBER * (2 * off - _HUBER))
        return float(huber.sum() + theta @ self._precision @ theta)


def _mape(predicted: Sequence[float], measured: Sequence[float]) -> float:
    off = [abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    return sum(off) / len(off)
