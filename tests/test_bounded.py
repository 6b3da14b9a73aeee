from __future__ import annotations

import math
import pickle
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxroof.bounded import (
    BoundedInt,
    ends,
    interval,
    is_exact,
    largest,
    lower,
    smallest,
    upper,
)

SMALL = st.integers(-6, 6)


@st.composite
def intervals(draw: st.DrawFn) -> int:
    low, high = sorted((draw(SMALL), draw(SMALL)))
    return interval(low, high)


def inside(value: int) -> range:
    """Every integer the interval may stand for."""
    low, high = ends(value)
    return range(low, high + 1)


def test_a_bounded_int_is_its_upper_bound() -> None:
    size = BoundedInt(12, 3)
    assert size == 12
    assert list(range(20))[size] == 12
    assert (lower(size), upper(size)) == (3, 12)
    assert type(upper(size)) is int


def test_an_exact_int_is_both_of_its_bounds() -> None:
    assert ends(7) == (7, 7)
    assert is_exact(7)
    assert not is_exact(BoundedInt(7, 0))


def test_an_interval_whose_ends_meet_is_exact() -> None:
    assert is_exact(interval(5, 5))
    assert is_exact(BoundedInt(5, 1) * 0)
    assert not is_exact(interval(4, 5))


def test_sums_and_products_carry_both_bounds() -> None:
    # [2, 5] + 10 = [12, 15]; 3·[2, 5] = [6, 15]; 10 − [2, 5] = [5, 8]; −[2, 5] = [−5, −2]
    size = BoundedInt(5, 2)
    assert ends(size + 10) == ends(10 + size) == (12, 15)
    assert ends(3 * size) == ends(size * 3) == (6, 15)
    assert ends(10 - size) == (5, 8)
    assert ends(size - 10) == (-8, -5)
    assert ends(-size) == (-5, -2)
    assert ends(-2 * size) == (-10, -4)


def test_the_built_in_sum_and_product_carry_both_bounds() -> None:
    assert ends(sum([BoundedInt(5, 2), 4, BoundedInt(1, 0)])) == (6, 10)
    assert ends(math.prod([2, BoundedInt(5, 2), 7])) == (28, 70)


def test_division_by_an_interval_that_holds_zero_leaves_zero_out() -> None:
    # 10 // k for k in 1…3 is 10, 5, 3: the divisor nearest to zero gives the largest quotient
    assert ends(10 // BoundedInt(3, 0)) == (3, 10)
    # and for k in −2…3 without 0: −5, −10, 10, 5, 3
    assert ends(10 // BoundedInt(3, -2)) == (-10, 10)


def test_division_by_zero_alone_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        BoundedInt(3, 1) // 0
    with pytest.raises(ZeroDivisionError):
        BoundedInt(3, 1) % 0


def test_a_remainder_is_below_its_divisor() -> None:
    assert ends(BoundedInt(100, 0) % 8) == (0, 7)
    assert ends(10 % BoundedInt(4, 1)) == (0, 3)


def test_min_and_max_of_intervals_take_the_ends_apart() -> None:
    # min of [2, 9] and 5 lies in [2, 5], max in [5, 9]
    assert ends(smallest(BoundedInt(9, 2), 5)) == (2, 5)
    assert ends(largest(BoundedInt(9, 2), 5)) == (5, 9)
    assert is_exact(smallest(BoundedInt(9, 5), 5))


def test_a_name_shows_with_the_bound_and_survives_pickling() -> None:
    size = BoundedInt(12, 1, "nz.1")
    assert str(size) == "nz.1≤12"
    assert str(size + 1) == "?≤13"
    copy = pickle.loads(pickle.dumps(size))
    assert (int(copy), copy.low, copy.name) == (12, 1, "nz.1")


def test_arithmetic_with_something_else_is_refused() -> None:
    with pytest.raises(TypeError):
        BoundedInt(3) + "x"  # type: ignore[operator]
    with pytest.raises(TypeError):
        BoundedInt(3) // "x"  # type: ignore[operator]


@given(intervals(), intervals())
def test_no_possible_result_lies_outside_its_interval(one: int, other: int) -> None:
    for a, b in product(inside(one), inside(other)):
        assert lower(one + other) <= a + b <= upper(one + other)
        assert lower(one - other) <= a - b <= upper(one - other)
        assert lower(one * other) <= a * b <= upper(one * other)
        assert lower(smallest(one, other)) <= min(a, b) <= upper(smallest(one, other))
        assert lower(largest(one, other)) <= max(a, b) <= upper(largest(one, other))
        if b:
            assert lower(one // other) <= a // b <= upper(one // other)
            assert lower(one % other) <= a % b <= upper(one % other)


@given(intervals(), intervals())
def test_sums_and_products_have_the_tightest_bounds(one: int, other: int) -> None:
    pairs = list(product(inside(one), inside(other)))
    assert ends(one + other) == (min(a + b for a, b in pairs), max(a + b for a, b in pairs))
    assert ends(one * other) == (min(a * b for a, b in pairs), max(a * b for a, b in pairs))


def test_a_size_keeps_its_name_where_arithmetic_changes_nothing() -> None:
    size = BoundedInt(12, 3, "kept")
    for same in (1 * size, size * 1, size + 0, 0 + size, size - 0, size // 1, math.prod((size, 1))):
        assert isinstance(same, BoundedInt)
        assert same.name == "kept"
