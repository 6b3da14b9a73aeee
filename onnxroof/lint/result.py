"""What one lint run has to say, for the renderers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.rule import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.lint.rule import Finding


@dataclass(frozen=True, slots=True)
class LintResult:
    """Findings of one model on one device.

    Attributes:
        model: Path of the model, or its graph's name.
        hardware: The device's name; "" without one.
        runtime: Whose fusions were assumed.
        findings: What was found and not accepted, in order.
        accepted: What a baseline accepts, each with its reason.
        unmatched: Codes of baseline entries that match nothing.
        skipped: Reason → weights whose values could not be looked at.
        read_bytes: Bytes of weights looked at; None when values were not asked for.
        nodes: Nodes of the model, bodies included.
        unknown_nodes: Those of them whose cost is not known, which no rule can judge by it.
    """

    model: str
    hardware: str
    runtime: str
    findings: tuple[Finding, ...]
    accepted: tuple[tuple[Finding, str], ...] = ()
    unmatched: tuple[str, ...] = ()
    skipped: Mapping[str, int] | None = None
    read_bytes: int | None = None
    nodes: int = 0
    unknown_nodes: int = 0

    def counts(self) -> Mapping[str, int]:
        """Severity → number of findings, the worst first; none left out."""
        seen = Counter(finding.severity for finding in self.findings)
        worst_first = sorted(Severity, key=lambda severity: -severity.rank)
        return {severity.value: seen[severity] for severity in worst_first}

    def fails(self, threshold: Severity) -> bool:
        """Whether a finding is at least that bad; findings in preview never fail."""
        return any(
            finding.severity.rank >= threshold.rank and not finding.preview
            for finding in self.findings
        )


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """All findings of one rule."""

    code: str
    name: str
    severity: Severity
    findings: tuple[Finding, ...]

    @property
    def saving(self) -> str:
        """What they would save together, in words; "" when nothing is known."""
        return saving_text(
            _sum([finding.saving_seconds for finding in self.findings]),
            _sum([finding.saving_bytes for finding in self.findings]),
        )


def groups(findings: tuple[Finding, ...]) -> list[RuleGroup]:
    """Findings by rule, in the order of each rule's first finding, the worst severity first."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    made = [
        RuleGroup(code, found[0].name, found[0].severity, tuple(found))
        for code, found in by_code.items()
    ]
    return sorted(
        made,
        key=lambda group: (
            group.severity is not Severity.ERROR,
            -(_sum([finding.saving_seconds for finding in group.findings]) or 0),
        ),
    )


def saving_text(seconds: float | None, nbytes: float | None) -> str:
    """A saving in words: "2.1 µs, 800 kB"; "" when nothing is known or nothing is saved."""
    parts = []
    if seconds:
        parts.append(units.duration(seconds))
    if nbytes:
        parts.append(units.size(nbytes))
    return ", ".join(parts)


def unjudged(result: LintResult) -> str:
    """How many nodes rules about work, traffic and time could not judge."""
    return (
        f"{result.unknown_nodes:,} of {units.plural(result.nodes, 'node')} could not be judged by"
        " cost: what they cost is not known (onnxroof report says why)"
    )


def notes(result: LintResult) -> list[str]:
    """What a reader should know besides the findings."""
    said = [unjudged(result)] if result.unknown_nodes else []
    said += [
        f"{units.plural(count, 'weight')} not looked at: {reason}; value checks skipped"
        for reason, count in (result.skipped or {}).items()
    ]
    if result.read_bytes is None:
        said.append("values of weights were not looked at (--weights looks at them)")
    if not result.hardware:
        said.append("no device was given (--hw): rules about devices and times are left out")
    if any(finding.saving_seconds for finding in result.findings):
        said.append("times saved are of the roofline bound, not of the expected latency")
    if result.accepted:
        said.append(f"{units.plural(len(result.accepted), 'finding')} accepted by the baseline")
    said += [
        f"the baseline's entry for {code} matches nothing any more" for code in result.unmatched
    ]
    return said


def _sum(values: list[float | None] | list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
