"""The fusion sections of a report: what runs as one kernel and why, what does not and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.bounded import lower, upper
from onnxroof.fusion.explain import explain_fusion
from onnxroof.fusion.rules import all_rules
from onnxroof.report.section import Section
from onnxroof.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.explain import FusionHit, FusionReport

_LONGEST_NAME, _LONGEST_OPERATORS = 30, 28


def fusion_sections(analysis: Analysis, top: int = 0) -> Iterator[Section]:
    """Hits, misses and removed nodes of the model, then of the bodies it runs.

    Args:
        analysis: The run.
        top: Kernels of one rule to list, those that save most; 0 for all.
    """
    yield from _sections(explain_fusion(analysis.kernels), "", top)


def _sections(report: FusionReport, of: str, top: int) -> Iterator[Section]:
    by_rule: dict[str, list[FusionHit]] = {}
    for hit in report.hits:
        by_rule.setdefault(hit.rule, []).append(hit)
    yield Section(
        f"fused{of} by the rules of {printable(report.runtime)}",
        tuple(f"{rule}: {_saving(hits)}" for rule, hits in by_rule.items()) or ("nothing",),
    )
    for rule, hits in by_rule.items():
        yield _hits(rule, hits, top)
    misses = [((miss.rule, miss.reason), miss.name) for miss in report.misses]
    yield _grouped(f"not fused{of}", ("rule", "times", "first node", "reason"), misses)
    removed = [((node.op_type, node.reason), node.name) for node in report.removed]
    yield _grouped(f"launch nothing{of}", ("operator", "times", "first node", "reason"), removed)
    for name, body in report.bodies:
        yield from _sections(body, f"{of} in {printable(name)}", top)


def _saving(hits: Sequence[FusionHit]) -> str:
    """How many kernels, and the traffic they save."""
    saved = sum(hit.saved_bytes or 0 for hit in hits)
    at_least = any(hit.saved_bytes is None for hit in hits)
    amount = units.size(lower(saved) if at_least else upper(saved))
    kernels = units.plural(len(hits), "kernel")
    return f"{kernels}, {units.bounded(amount, at_least=at_least)} of traffic saved"


def _hits(rule: str, hits: Sequence[FusionHit], top: int) -> Section:
    listed = sorted(hits, key=lambda hit: -upper(hit.saved_bytes or 0))
    listed = listed[:top] if top else listed
    more = len(hits) - len(listed)
    note = (f"the {len(listed)} that save most; {more} more with --top 0",) if more else ()
    return Section(
        rule,
        lines=(all_rules()[rule].why, *note),
        headers=("kernel", "operators", "saved", "never in memory"),
        rows=tuple(map(_hit, listed)),
        right=(False, False, True, False),
    )


def _hit(hit: FusionHit) -> tuple[str, ...]:
    operators = units.truncate(printable(hit.op_type), _LONGEST_OPERATORS)
    return printable(hit.name), operators, units.size(hit.saved_bytes), _names(hit.elided)


def _names(names: Sequence[str]) -> str:
    return ", ".join(units.shorten_all([printable(name) for name in names], _LONGEST_NAME))


def _grouped(
    title: str, headers: tuple[str, ...], found: Iterable[tuple[tuple[str, str], str]]
) -> Section:
    """One row for all nodes of one kind and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, name in found:
        groups.setdefault(key, []).append(name)
    rows = tuple(
        (printable(kind), str(len(names)), _names(names[:1]), printable(reason))
        for (kind, reason), names in groups.items()
    )
    lines = () if rows else ("none",)
    return Section(title, lines, headers if rows else (), rows, (False, True, False, False))
