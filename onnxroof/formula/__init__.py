"""Closed forms: totals and output shapes as polynomials in the model's free dimensions.

Counts are polynomials in the free dimensions almost everywhere, so they are interpolated from a
handful of concrete runs with exact rationals and verified at points that were not fitted, near and
far. Strides round, so where no polynomial holds for every size one is sought on multiples of 2, 4,
… 64; where another term takes over (a peak moves, a table is read whole) the range is said; where
none holds there either, that is said. Nothing of this is known to the operators.
"""

from __future__ import annotations

from onnxroof.formula.forms import (
    ClosedForms,
    NoFormula,
    closed_forms,
    formulas_of,
    free_dimensions,
    with_inputs_bound,
)
from onnxroof.formula.measure import QUANTITIES

__all__ = [
    "QUANTITIES",
    "ClosedForms",
    "NoFormula",
    "closed_forms",
    "formulas_of",
    "free_dimensions",
    "with_inputs_bound",
]
