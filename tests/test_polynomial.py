from __future__ import annotations

from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from onnxroof.polynomial import Polynomial, degree, interpolate, value_at

COEFFICIENTS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=4)


def poly(terms: dict[tuple[int, ...], Fraction | int], *names: str, **more: object) -> Polynomial:
    exact = {exponents: Fraction(value) for exponents, value in terms.items()}
    return Polynomial(names, exact, {}, **more)  # type: ignore[arg-type]


def evaluate(coefficients: list[int], x: int) -> int:
    return sum(coefficient * x**power for power, coefficient in enumerate(coefficients))


@given(COEFFICIENTS, st.lists(st.integers(-50, 50), min_size=6, max_size=8, unique=True))
def test_the_degree_is_found_where_spare_points_confirm_it(
    coefficients: list[int], xs: list[int]
) -> None:
    true = max((power for power, value in enumerate(coefficients) if value), default=0)
    assert degree(xs, [evaluate(coefficients, x) for x in xs]) == true


def test_points_that_need_the_full_degree_confirm_nothing() -> None:
    # Four points of a cubic: no spare one
    assert degree([0, 1, 2, 3], [0, 1, 8, 27]) is None
    assert degree([0, 1, 2, 3, 4], [0, 1, 8, 27, 64]) == 3
    assert degree([1, 2, 3], [7, 7, 7]) == 0


def test_rounding_is_no_polynomial() -> None:
    # ⌈x / 2⌉ for x = 16 … 20
    assert degree([16, 17, 18, 19, 20], [8, 9, 9, 10, 10]) is None


@given(COEFFICIENTS, st.integers(-1000, 1000))
def test_the_polynomial_through_points_is_known_elsewhere(coefficients: list[int], x: int) -> None:
    xs = [3, 5, 9, 10]
    assert value_at(xs, [evaluate(coefficients, p) for p in xs], x) == evaluate(coefficients, x)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(0, 3)), st.fractions(max_denominator=64)
    )
)
def test_coefficients_come_back_exactly_from_a_grid(
    terms: dict[tuple[int, int], Fraction],
) -> None:
    wanted = {exponents: value for exponents, value in terms.items() if value}
    form = poly(wanted, "a", "b")  # type: ignore[arg-type]
    axes = [(16, 17, 18), (2, 7, 9, 30)]
    values = {(a, b): form.at(a=a, b=b) for a, b in product(*axes)}
    assert interpolate(axes, values) == wanted  # type: ignore[arg-type]


def test_a_number_is_a_polynomial_of_no_variables() -> None:
    assert interpolate([], {(): 7}) == {(): 7}
    assert poly({(): 7}).at() == 7
    assert str(poly({(): 7})) == "7"


def test_values_are_exact() -> None:
    # 1/3·n² + n at n = 10⁹: (10¹⁸ + 3·10⁹) / 3
    form = poly({(2,): Fraction(1, 3), (1,): 1}, "n")
    assert form.at(n=10**9) == Fraction(10**18 + 3 * 10**9, 3)


def test_a_variable_may_have_any_name() -> None:
    assert poly({(1,): 2}, "self").at(self=3) == 6
    assert poly({(1,): 2}, "nz.1").at(**{"nz.1": 3}) == 6


def test_it_reads_as_people_write_it() -> None:
    form = poly({(1, 2): 4, (1, 0): -1, (0, 0): Fraction(5, 2)}, "batch", "seq")
    assert str(form) == "4·batch·seq² - batch + 5/2"
    assert str(poly({(10,): 1}, "n")) == "n¹⁰"
    assert str(poly({(1,): -1}, "n")) == "-n"
    assert str(poly({}, "n")) == "0"


def test_it_says_where_it_holds() -> None:
    steps = {"batch": 1, "height": 32, "width": 32}
    limits = {"batch": (None, 147), "width": (16, None)}
    form = Polynomial(("batch", "height", "width"), {}, steps, limits=limits)
    assert form.domain == "height, width multiples of 32; batch up to 147; width from 16"
    assert poly({}, "n").domain == ""
