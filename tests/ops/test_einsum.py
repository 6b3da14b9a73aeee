from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxroof.ops.call import Impossible
from onnxroof.ops.einsum import parse_equation
from tests.builders import cost_of, costs, problem_of, shapes_of


def einsum(equation: str, *shapes: str) -> str:
    inputs = ", ".join(f"float{shape} x{i}" for i, shape in enumerate(shapes))
    names = ", ".join(f"x{i}" for i in range(len(shapes)))
    return f'agraph ({inputs}) => (y) {{ y = Einsum <equation = "{equation}"> ({names}) }}'


@pytest.mark.parametrize(
    ("equation", "shapes", "y", "macs"),
    [
        ("ij,jk->ik", ["[3,4]", "[4,5]"], (3, 5), 3 * 4 * 5),
        ("ij,jk", ["[3,4]", "[4,5]"], (3, 5), 3 * 4 * 5),
        ("bij , bjk -> bik", ["[2,3,4]", "[2,4,5]"], (2, 3, 5), 2 * 3 * 4 * 5),
        ("...ij,...jk->...ik", ["[1,3,4]", "[32,4,5]"], (32, 3, 5), 32 * 3 * 4 * 5),
        ("...ij,...jk", ["[7,1,3,4]", "[1,2,4,5]"], (7, 2, 3, 5), 14 * 3 * 4 * 5),
        ("i...,i...->...", ["[4,5,6]", "[4,5,6]"], (5, 6), 4 * 5 * 6),
        ("ii,i->", ["[4,4]", "[4]"], (), 4),
        ("bhqd,bhkd->bhqk", ["[2,3,5,7]", "[2,3,6,7]"], (2, 3, 5, 6), 6 * 5 * 6 * 7),
        ("Aa,aB", ["[3,4]", "[4,5]"], (3, 5), 3 * 4 * 5),
        ("ij,kj->ki", ["[3,0]", "[5,0]"], (5, 3), 0),
    ],
)
def test_a_summed_label_multiplies_and_accumulates(
    equation: str, shapes: list[str], y: tuple[int, ...], macs: int
) -> None:
    text = einsum(equation, *shapes)
    cost = cost_of(text)
    assert shapes_of(text)["y"] == y
    assert (cost.macs, cost.flops) == (macs, 2 * macs)


@pytest.mark.parametrize(
    ("equation", "shapes", "y", "flops"),
    [
        ("ij->ji", ["[3,4]"], (4, 3), 0),
        ("ii->i", ["[4,4]"], (4,), 0),
        ("...ii->...i", ["[2,4,4]"], (2, 4), 0),
        ("ij->i", ["[3,4]"], (3,), 12 - 3),
        ("ij->", ["[3,4]"], (), 12 - 1),
        ("ii", ["[4,4]"], (), 4 - 1),
        ("ba", ["[3,4]"], (4, 3), 0),
        ("->", [""], (), 0),
        ("i,j->ij", ["[3]", "[4]"], (3, 4), 12),
        ("ij,ij->ij", ["[3,4]", "[3,4]"], (3, 4), 12),
        (",ij->ij", ["", "[3,4]"], (3, 4), 12),
    ],
)
def test_without_one_it_only_adds_or_multiplies(
    equation: str, shapes: list[str], y: tuple[int, ...], flops: int
) -> None:
    text = einsum(equation, *shapes)
    cost = cost_of(text)
    assert shapes_of(text)["y"] == y
    assert (cost.macs, cost.flops) == (0, flops)


def test_a_label_of_one_operand_alone_is_summed_first() -> None:
    # x0 [3, 4, 6] loses its 6 by 12 · 5 additions, then the product is 3 · 4 · 5
    cost = cost_of(einsum("ijl,jk->ik", "[3,4,6]", "[4,5]"))
    assert (cost.macs, cost.flops) == (60, 72 - 12 + 2 * 60)


def test_a_chain_is_contracted_from_its_cheap_end() -> None:
    # (x0·x1) first: 2·100·3 + 2·3·50 = 900; (x1·x2) first: 100·3·50 + 2·100·50 = 25000
    cost = cost_of(einsum("ab,bc,cd->ad", "[2,100]", "[100,3]", "[3,50]"))
    assert cost.macs == 2 * 100 * 3 + 2 * 3 * 50
    assert "((0·1)·2)" in cost.note


def test_a_chain_may_be_cheaper_from_the_right() -> None:
    cost = cost_of(einsum("ab,bc,cd->ad", "[50,3]", "[3,100]", "[100,2]"))
    assert cost.macs == 3 * 100 * 2 + 50 * 3 * 2
    assert "(0·(1·2))" in cost.note


def test_many_operands_are_contracted_greedily() -> None:
    letters = "abcdefghijkl"
    terms = [letters[i : i + 2] for i in range(11)]
    cost = cost_of(einsum(",".join(terms) + "->al", *["[2,2]"] * 11))
    assert cost.macs == 10 * 8  # ten products of 2 × 2 matrices in any order


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [
        ("...,...->...", ["", "[2,3]"], "different ranks"),
        ("ij,jk->ik", ["[3,4]"], "terms"),
        ("ijk->ij", ["[3,4]"], "axes"),
        ("ij->ii", ["[3,3]"], "repeats or invents"),
        ("ij->k", ["[3,3]"], "repeats or invents"),
        ("i1->i", ["[3,3]"], "malformed"),
        ("i..j->i", ["[3,3]"], "malformed"),
        ("...i...->i", ["[3,3]"], "malformed"),
        ("ij->i->j", ["[3,3]"], "malformed"),
        ("ij,jk->ik", ["[3,4]", "[5,6]"], "both 4 and 5"),
        ("ii->i", ["[3,4]"], "both 3 and 4"),
    ],
)
def test_a_malformed_equation_is_a_problem_of_the_node(
    equation: str, shapes: list[str], reason: str
) -> None:
    assert reason in problem_of(einsum(equation, *shapes))
    assert costs(einsum(equation, *shapes)).nodes[0].macs is None


TERMS = st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(terms=TERMS, sizes=st.tuples(*[st.integers(1, 4)] * 4), data=st.data())
def test_shapes_are_those_of_numpy(
    terms: list[str], sizes: tuple[int, ...], data: st.DataObject
) -> None:
    size = dict(zip("abcd", sizes, strict=True))
    used = sorted(set("".join(terms)))
    output = data.draw(st.permutations(used).map(lambda o: "".join(o)[: len(o) // 2 + 1]))
    equation = f"{','.join(terms)}->{output}"
    shapes = [tuple(size[label] for label in term) for term in terms]
    parsed = parse_equation(equation, shapes)
    real = np.einsum(equation, *(np.zeros(shape) for shape in shapes))
    assert tuple(parsed.sizes[label] for label in parsed.output) == real.shape


@settings(max_examples=100, deadline=None)
@given(text=st.text("ab.,-> ij1", max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(Impossible):
        parsed = parse_equation(text, [(2, 2), (2, 2)])
        assert all(parsed.sizes[label] == 2 for label in parsed.output)
