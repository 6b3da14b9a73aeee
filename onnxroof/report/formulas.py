"""`ClosedForms` → text for people and data for programs; names from files are made printable."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from onnxroof.formula import QUANTITIES
from onnxroof.units import printable

if TYPE_CHECKING:
    from onnxroof.formula import ClosedForms
    from onnxroof.polynomial import Polynomial

SCHEMA_VERSION = 1

_LABELS = {
    "macs": "MACs",
    "flops": "FLOPs",
    "transcendentals": "transcendentals",
    "parameters": "parameters",
    "weight_bytes": "weight bytes",
    "traffic_bytes": "traffic bytes",
    "fused_traffic_bytes": "traffic bytes, fused",
    "peak_activation_bytes": "peak activation bytes",
}
_OUTPUT = re.compile(r"output (.*)\[(\d+)\]", re.DOTALL)
_SIGNS = {"exactly": "=", "at most": "≤", "at least": "≥", "per trip": "= per trip"}


def formulas_text(forms: ClosedForms) -> str:
    """One line per total and output: its polynomial and, where it does not hold for all, where."""
    lines = totals_lines(forms)
    if not forms.reason:
        rows = [
            (f"output {printable(name)}", text)
            for name, text in _outputs(forms, _common_domain(forms))
        ]
        lines += _columns(rows)
    return "\n".join(lines) + "\n"


def totals_lines(forms: ClosedForms, fusion: str = "") -> list[str]:
    """A heading, and one line per total: its polynomial and, where it has none, why.

    Args:
        forms: The formulas.
        fusion: The fusion set whose kernels they are of, where that must be said.
    """
    labels = {
        **_LABELS,
        **({"fused_traffic_bytes": f"traffic bytes, fused by {fusion}"} if fusion else {}),
    }
    named = ", ".join(map(printable, forms.dimensions))
    common = _common_domain(forms)
    head = f"in {named}" if named else "no free dimensions: every formula is a number"
    lines = [head + (f", for {printable(common)}" if common else "")]
    if forms.largest:
        ends = [f"{printable(n)} {size}, not {size + 1}" for n, size in forms.largest.items()]
        lines[0] += f" (the model takes {'; '.join(ends)})"
    if forms.reason:
        return [*lines[: bool(named)], f"no formula: {printable(forms.reason)}"]
    rows = [
        (labels[key], _right_side(forms, key, common))
        for key in QUANTITIES
        if key in forms.forms or key in forms.missing
    ]
    return lines + _columns(rows)


def _columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(label) for label, _ in rows), default=0)
    return [f"{label:<{width}}  {text}" for label, text in rows]


def _common_domain(forms: ClosedForms) -> str:
    """The place most formulas hold, said once in the first line; the others say their own."""
    domains = Counter(form.domain for form in forms.forms.values())
    return domains.most_common(1)[0][0] if domains else ""


def _right_side(forms: ClosedForms, key: str, common: str) -> str:
    form = forms.forms.get(key)
    if form is None:
        return f"no formula: {printable(forms.missing[key])}"
    return f"{_SIGNS[form.sense]} {printable(str(form))}{_domain_note(form, common)}"


def _domain_note(form: Polynomial, common: str) -> str:
    if form.domain == common:
        return ""
    return f"  ({printable(form.domain)})" if form.domain else "  (every size)"


def _outputs(forms: ClosedForms, common: str) -> list[tuple[str, str]]:
    """(output, its shape) with one polynomial for every size."""
    sizes: dict[str, list[str]] = {}
    notes: dict[str, str] = {}
    for key in sorted({*forms.forms, *forms.missing} - set(QUANTITIES), key=_natural):
        name = _place(key)[0]
        form = forms.forms.get(key)
        sign = _SIGNS[form.sense] if form is not None and form.sense != "exactly" else ""
        sizes.setdefault(name, []).append("?" if form is None else f"{sign}{printable(str(form))}")
        if form is None:
            notes[name] = f"  (no formula: {printable(forms.missing[key])})"
        else:
            notes[name] = notes.get(name) or _domain_note(form, common)
    return [(name, f"= [{', '.join(dims)}]{notes[name]}") for name, dims in sizes.items()]


def _place(key: str) -> tuple[str, int]:
    """(output, axis) of "output y[1]"."""
    found = _OUTPUT.fullmatch(key)
    return (found[1], int(found[2])) if found else (key, 0)


def _natural(key: str) -> tuple[list[tuple[int, str]], int]:
    """Sorts present.2 before present.10."""
    name, axis = _place(key)
    parts = [(int(p) if p.isdecimal() and len(p) < 20 else -1, p) for p in re.split(r"(\d+)", name)]
    return parts, axis


def formulas_data(forms: ClosedForms) -> dict[str, object]:
    """The same for programs: terms with exact coefficients, in a fixed order.

    A coefficient is text, a whole number or a fraction ("2257/2"). `multiples_of` lists the
    dimensions for which the formula holds on multiples only; `limits` those for which it was seen
    to fail, or could not be checked, below `smallest` or above `largest`. `largest_sizes` are those
    which the model takes where it refuses the next one.
    """
    keys = [key for key in QUANTITIES if key in forms.forms]
    keys += sorted(forms.forms.keys() - set(QUANTITIES), key=_natural)
    return {
        "schema_version": SCHEMA_VERSION,
        "dimensions": list(forms.dimensions),
        "largest_sizes": dict(forms.largest),
        "formulas": [_formula_data(key, forms.forms[key]) for key in keys],
        "missing": [
            {"quantity": key, "reason": forms.missing[key]}
            for key in sorted(forms.missing, key=_natural)
        ],
        "reason": forms.reason or None,
    }


def _formula_data(key: str, form: Polynomial) -> dict[str, object]:
    return {
        "quantity": key,
        "formula": str(form),
        "sense": form.sense,
        "terms": [
            {
                "coefficient": str(coefficient),
                "exponents": {
                    name: exponent
                    for name, exponent in zip(form.variables, exponents, strict=True)
                    if exponent
                },
            }
            for exponents, coefficient in form.ordered()
        ],
        "multiples_of": {name: step for name, step in form.steps.items() if step > 1},
        "limits": {
            name: {"smallest": low, "largest": high} for name, (low, high) in form.limits.items()
        },
    }
