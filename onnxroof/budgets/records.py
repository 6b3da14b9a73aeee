"""What a budget is, and the three answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.metrics import Metric


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on one metric; `at_least` turns it round (throughput)."""

    metric: Metric
    amount: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one deployment.

    Attributes:
        name: What people call it; the device's name by default.
        hardware: Name or file of a profile; "" for limits that need none.
        limits: At least one.
        dims: Sizes of free dimensions.
        input_shapes: Whole shapes of inputs.
        precision: As for `analyze`.
        runtime: As for `analyze`.
        peak: "vendor" or "sustained".
        threads: As for `analyze`.
    """

    name: str
    hardware: str
    limits: tuple[Limit, ...]
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    precision: str = ""
    runtime: str | None = None
    peak: str = "vendor"
    threads: int | None = None


class Answer(Enum):
    """Whether a limit is kept."""

    WITHIN = "within"
    EXCEEDS = "exceeds"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Culprit:
    """What contributes most: a kernel, node, tensor or weight, in the metric's unit."""

    name: str
    what: str
    amount: float
    share: float


@dataclass(frozen=True, slots=True)
class Check:
    """One limit of one budget, answered.

    Attributes:
        budget: The budget.
        limit: The limit.
        value: What the model has; the bound that gives the answer where only bounds are known;
            None when not at all.
        exactness: "exact", "at least", "at most" or "per trip": what the value is.
        answer: Whether the limit is kept.
        culprits: What contributes most, when the limit is exceeded.
        unknown: What is not known, when nobody can tell.
    """

    budget: Budget
    limit: Limit
    value: float | None
    answer: Answer
    culprits: tuple[Culprit, ...] = ()
    unknown: tuple[str, ...] = ()
    exactness: str = "exact"

    @property
    def excess(self) -> float | None:
        """Part of the limit by which it is missed for sure: 0.25 for a quarter too much."""
        if self.value is None or self.answer is not Answer.EXCEEDS:
            return None
        if self.limit.at_least:
            return 1 - self.value / self.limit.amount
        return self.value / self.limit.amount - 1 if self.limit.amount else float("inf")


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """All limits of all budgets, in order.

    Attributes:
        model: Path of the model.
        checks: One a limit.
        assumptions: Sentences on what was assumed, by the budget's name.
    """

    model: str
    checks: tuple[Check, ...]
    assumptions: Mapping[str, tuple[str, ...]]

    def exit_code(self, *, strict: bool) -> int:
        """0 when all is within; 1 when a limit is exceeded or, if strict, cannot be told."""
        answers = {check.answer for check in self.checks}
        if Answer.EXCEEDS in answers or (strict and Answer.CANNOT_TELL in answers):
            return 1
        return 0
