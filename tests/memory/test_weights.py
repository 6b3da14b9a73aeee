"""Weights as a run holds them: at the precision asked for, else as stored."""

from __future__ import annotations

import pytest

import onnxroof
from onnxroof.metrics import METRICS
from tests.builders import model

PRODUCT = """agraph (float[2,3] x) => (float y) <float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
    { y = MatMul(x, w) }"""

BODY = """agraph (float[2,3] x, bool c) => (float y) {
    y = If(c) <
        then_branch = g () => (float[2,4] p) <float[3,4] v = {1,2,3,4,5,6,7,8,9,10,11,12}>
            { p = MatMul(x, v) },
        else_branch = h () => (float[2,4] q) <float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
            { q = MatMul(x, w) }> }"""


@pytest.mark.parametrize(("precision", "nbytes"), [("", 4), ("fp16", 2), ("int8", 1)])
@pytest.mark.parametrize(("text", "weights"), [(PRODUCT, 12), (BODY, 24)], ids=["graph", "bodies"])
def test_weights_take_the_bytes_of_the_precision_asked_for(
    text: str, weights: int, precision: str, nbytes: int
) -> None:
    # 3·4 weights, twice in the branches; the file holds four bytes each whatever is asked for
    analysis = onnxroof.analyze(model(text), precision=precision)
    assert analysis.totals.weight_bytes == 4 * weights
    assert analysis.memory.weight_bytes == nbytes * weights
    peak = analysis.memory.peak_activation_bytes
    assert METRICS["peak_memory_bytes"].of(analysis, 0) == peak + nbytes * weights
    row = next(row for row in analysis.memory.table() if row.key == "weights")
    assert (row.nbytes, "precision" in row.rule) == (nbytes * weights, nbytes < 4)


def test_integer_weights_stay_as_they_are_stored() -> None:
    text = """agraph (uint8[2,3] x) => (int32 y) <int8[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
        { y = MatMulInteger(x, w) }"""
    assert onnxroof.analyze(model(text), precision="fp16").memory.weight_bytes == 12
