"""Totals of every model in models/ are what they were; see tests/golden/refresh.py."""

from __future__ import annotations

import json

import pytest

from tests.golden.refresh import TOTALS, golden_totals, model_names

GOLDEN = json.loads(TOTALS.read_text())


def test_every_model_has_golden_totals() -> None:
    assert list(GOLDEN) == model_names()


@pytest.mark.parametrize("name", model_names())
def test_totals_are_unchanged(name: str) -> None:
    assert golden_totals(name) == GOLDEN[name]
