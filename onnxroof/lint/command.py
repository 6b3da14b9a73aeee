"""The commands `lint` and `explain` as pure functions: options in, text and exit code out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.lint.baseline import apply_baseline, read_baseline
from onnxroof.lint.documentation import explain, listing
from onnxroof.lint.registry import choose, find_rule
from onnxroof.lint.render import LintFormat, render
from onnxroof.lint.result import LintResult
from onnxroof.lint.rule import Severity, WeightRule
from onnxroof.lint.run import run_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.lint.baseline import Accepted
    from onnxroof.lint.rule import Rule
    from onnxroof.lint.values import Progress, WeightValues

CHEAP_BYTES = 64 * 2**20
"""Weights up to this size are read unasked: it takes hundredths of a second."""

FINDINGS = 1
"""Exit code when a finding is as bad as `fail_on`."""


@dataclass(frozen=True, slots=True)
class LintOptions:
    """What to look for and what to write.

    Attributes:
        weights: Read values of weights; None does when they are few (`CHEAP_BYTES`).
        select: Codes, beginnings of codes, or names; none for all rules.
        ignore: The same, to be left out.
        baseline: Path of a file of accepted findings; "" for none.
        fail_on: Severity from which the exit code is 1.
        format_: What to write.
        width: Columns of the terminal.
    """

    weights: bool | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: str = ""
    fail_on: Severity = Severity.ERROR
    format_: LintFormat = LintFormat.TEXT
    width: int = 100


def lint_command(
    analysis: Analysis, options: LintOptions, progress: Progress | None = None
) -> tuple[str, int]:
    """Lint an analysed model file on its first device.

    Args:
        analysis: The run.
        options: What to look for and what to write.
        progress: Called with (bytes read, bytes in all) while values are read.

    Returns:
        The findings as text, and the exit code: 0, or 1 when a finding fails the run.

    Raises:
        UsageError: An option cannot be understood, or the baseline not be read.
    """
    rules = choose(options.select, options.ignore)
    entries = read_baseline(options.baseline) if options.baseline else ()
    result = lint(analysis, rules, weights=options.weights, progress=progress)
    split = apply_baseline(result.findings, entries)
    result = replace(
        result,
        findings=split.remaining,
        accepted=split.accepted,
        unmatched=tuple(entry.code for entry in split.unmatched if _ran(entry, rules)),
    )
    code = FINDINGS if result.fails(options.fail_on) else 0
    return render(result, options.format_, options.width), code


def _ran(entry: Accepted, rules: Sequence[Rule]) -> bool:
    """Whether the entry's rule ran at all; if not, that nothing matches says nothing."""
    return any(rule.code == entry.code for rule in rules)


def lint(
    analysis: Analysis,
    rules: Sequence[Rule] | None = None,
    *,
    weights: bool | None = None,
    content: bytes | None = None,
    progress: Progress | None = None,
) -> LintResult:
    """Run rules over an analysis, on its first device.

    Args:
        analysis: The run.
        rules: Which rules; None for all.
        weights: Read values of weights; None does when they are few (`CHEAP_BYTES`).
        content: The bytes the model was loaded from, when it has no file.
        progress: Called with (bytes read, bytes in all) while values are read.
    """
    from onnxroof.graph.weights import WeightReader
    from onnxroof.lint.values import WeightValues

    chosen = tuple(choose() if rules is None else rules)
    if weights is None:
        weights = analysis.totals.weight_bytes <= CHEAP_BYTES
    if not weights or not any(isinstance(rule, WeightRule) for rule in chosen):
        return _result(analysis, chosen, None)
    with WeightReader(analysis.model.path, content) as reader:
        return _result(analysis, chosen, WeightValues(analysis, reader, progress))


def _result(analysis: Analysis, rules: tuple[Rule, ...], values: WeightValues | None) -> LintResult:
    device = analysis.rooflines[0].hardware.name if analysis.rooflines else ""
    found = analysis.coverage
    return LintResult(
        model=analysis.model.path or analysis.model.graph.name or "model in memory",
        hardware=device,
        runtime=analysis.kernels.runtime,
        findings=run_rules(analysis, rules, values),
        skipped=None if values is None else values.skipped,
        read_bytes=None if values is None else values.read_bytes,
        nodes=found.nodes,
        unknown_nodes=sum(nodes for nodes, _ in found.unknown.values()),
    )


def explain_command(word: str = "") -> str:
    """The documentation of one rule, or the list of all of them.

    Args:
        word: Code or name; "" for the list.

    Raises:
        UsageError: No rule has this code or name.
    """
    return explain(find_rule(word)) if word else listing()
