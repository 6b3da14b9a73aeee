"""The language patterns are drawn in."""

from __future__ import annotations

import pytest

from onnxroof.fusion.composite import Composite
from onnxroof.fusion.drawing import parse
from onnxroof.fusion.rules import all_rules
from tests.fusion.plans import kinds


def test_a_drawing_knows_its_inputs_and_its_ends() -> None:
    drawing = parse("n = Div(x, s)\n g = Mul(n, #) else n\n y = Add(g, #) else g")
    assert drawing.inputs == ("x", "s")
    assert drawing.entries == ("y", "g", "n")
    assert drawing.needed == (frozenset({"Div"}),)


def test_a_line_knows_what_makes_what_its_name_stands_for() -> None:
    drawing = parse(
        "p = Softmax(x)\n w = Where(c, #, p) else p\n v = Tile(u) else u\n y = MatMul(w, v)"
    )
    assert drawing.lines["w"].makers == {"Where", "Softmax"}
    assert drawing.lines["v"].makers == frozenset()  # u may come from anywhere
    assert drawing.lines["y"].needs == (((0, drawing.lines["w"]),),)


@pytest.mark.parametrize("text", ["y Relu(x)", "y = Relu", "= Relu(x)"])
def test_what_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse(text)


def test_every_shipped_drawing_is_one() -> None:
    for rule in all_rules().values():
        if isinstance(rule, Composite):
            assert all(parse(text).inputs for text in rule.drawings)


def test_operands_match_in_either_order() -> None:
    for body in ("{ s = Sigmoid(x)  y = Mul(x, s) }", "{ s = Sigmoid(x)  y = Mul(s, x) }"):
        assert kinds("g (float[4] x) => (float y) " + body) == ["Sigmoid+Mul"]


def test_one_name_is_one_tensor() -> None:
    text = "g (float[4] x, float[4] z) => (float y) { s = Sigmoid(x)  y = Mul(z, s) }"
    assert kinds(text) == ["Sigmoid", "Mul"]
