"""What a rule is and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.lint.values import WeightValues

    Fact = int | float | str


class Severity(Enum):
    """How bad a finding is.

    ERROR: the model is wrong or will not run. WARNING: it pays for something it need not pay for.
    INFO: a property of the design that costs on this device; there may be good reason for it.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Larger is worse."""
        return list(Severity).index(self)


class Status(Enum):
    """How settled a rule is. Findings of a preview rule are shown and never fail a run."""

    PREVIEW = "preview"
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a rule found.

    Attributes:
        code: The rule's code.
        name: The rule's name: the problem.
        severity: How bad it is.
        message: One or two sentences with the figures.
        nodes: Labels of the nodes concerned.
        tensors: Names of the tensors concerned, where the finding is about tensors.
        saving_seconds: Time saved on the chosen device; None when it cannot be computed.
        saving_bytes: Bytes saved: of traffic, or of the file for stored tensors.
        facts: Figures of the message under names, for programs; units stand in the names.
        preview: Whether the rule is in preview.
    """

    code: str
    name: str
    severity: Severity
    message: str
    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    saving_seconds: float | None = None
    saving_bytes: int | None = None
    facts: tuple[tuple[str, Fact], ...] = ()
    preview: bool = False


class Rule:
    """Base of all rules.

    A rule reads the `Analysis` it is given and nothing else: no file, no other rule. Its docstring
    is its documentation: the problem in one line, then the sections *Why it costs*, *Flagged* and
    *Clean* with a graph each (both are tests), and *What to do*.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    since: ClassVar[str]
    status: ClassVar[Status] = Status.STABLE
    needs_device: ClassVar[bool] = False
    """Whether it can say something only about a model on a device."""

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        """Everything this rule finds."""
        raise NotImplementedError

    def found(
        self,
        message: str,
        *,
        nodes: Sequence[str] = (),
        tensors: Sequence[str] = (),
        seconds: float | None = None,
        nbytes: float | None = None,
        **facts: Fact,
    ) -> Finding:
        """A finding of this rule."""
        return Finding(
            self.code, self.name, self.severity, message, tuple(nodes), tuple(tensors),
            seconds, None if nbytes is None else int(nbytes), tuple(facts.items()),
            self.status is Status.PREVIEW,
        )  # fmt: skip


class WeightRule(Rule):
    """Base of the rules that look at values of weights."""

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        """Nothing without values."""
        del analysis
        return iter(())

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        """Everything this rule finds in the values."""
        raise NotImplementedError
