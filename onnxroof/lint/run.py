"""Run rules over a finished analysis and put what they find in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.registry import choose
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding, Rule
    from onnxroof.lint.values import WeightValues


def run_rules(
    analysis: Analysis,
    rules: Sequence[Rule] | None = None,
    values: WeightValues | None = None,
) -> tuple[Finding, ...]:
    """Everything the rules find, errors first, then what saves most.

    Args:
        analysis: The run; times hold for its first device.
        rules: Which rules; None for all.
        values: Values of the weights; without them weight rules find nothing.
    """
    found: list[Finding] = []
    for rule in choose() if rules is None else rules:
        if rule.needs_device and not analysis.rooflines:
            continue
        found.extend(rule.check(analysis))
        if values is not None and isinstance(rule, WeightRule):
            found.extend(rule.check_weights(analysis, values))
    return tuple(sorted(found, key=_place))


def _place(finding: Finding) -> tuple[int, float, int, int, str, tuple[str, ...], tuple[str, ...]]:
    return (
        -int(finding.severity is Severity.ERROR),
        -(finding.saving_seconds or 0.0),
        -finding.severity.rank,
        -(finding.saving_bytes or 0),
        finding.code,
        finding.nodes,
        finding.tensors,
    )
