from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxroof.bounded import BoundedInt, ends, is_exact
from onnxroof.graph.types import Node
from onnxroof.ops.call import Impossible, OpCall, Undetermined
from onnxroof.ops.geometry import (
    broadcast,
    broadcast_at,
    ceil_div,
    normalize_axes,
    normalize_axis,
    sliding_window,
)


def call(**attributes: object) -> OpCall:
    return OpCall(Node("", "", "Conv", 21, (), (), tuple(attributes.items())), ())  # type: ignore[arg-type]


def windows(size: int, kernel: int, *, ceil_mode: bool = False, **attributes: object) -> int:
    return sliding_window(call(**attributes), (size,), (kernel,), ceil_mode=ceil_mode)[0]


# -- broadcast -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        ([(2, 3), (2, 3)], (2, 3)),
        ([(2, 3), ()], (2, 3)),
        ([(), ()], ()),
        ([(2, 1, 4), (3, 1)], (2, 3, 4)),
        ([(1,), (5, 1), (1, 7)], (5, 7)),
        ([(0, 3), (1, 3)], (0, 3)),
        ([(0,), (1,)], (0,)),
    ],
)
def test_shapes_align_at_the_last_axis(
    shapes: list[tuple[int, ...]], result: tuple[int, ...]
) -> None:
    assert broadcast(*shapes) == result


@pytest.mark.parametrize("shapes", [[(2,), (3,)], [(2, 3), (3, 2)], [(0,), (2,)], [(4, 1), (3, 5)]])
def test_shapes_that_do_not_fit_are_impossible(shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(Impossible, match="do not broadcast"):
        broadcast(*shapes)


def test_a_bounded_size_gives_way_to_an_exact_one() -> None:
    # A size in [0, 9] that meets 5 must be 5 (or 1); one that meets 1 stays as it is
    size = BoundedInt(9, 0, "nz.1")
    assert is_exact(broadcast((size,), (5,))[0])
    assert broadcast((size,), (5,)) == (5,)
    assert broadcast((5,), (size,)) == (5,)
    assert ends(broadcast((size,), (1,))[0]) == (0, 9)
    assert ends(broadcast((1,), (size,))[0]) == (0, 9)
    assert ends(broadcast((size,), (BoundedInt(4, 0),))[0])[1] == 9


def test_legacy_broadcast_aligns_at_the_axis() -> None:
    # Opset 6: b [3, 4] along axis 1 of a [2, 3, 4, 5]
    assert broadcast_at((2, 3, 4, 5), (3, 4), 1) == (2, 3, 4, 5)
    with pytest.raises(Impossible):
        broadcast_at((2, 3, 4, 5), (3, 4), 2)


# -- axes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "rank", "position"), [(0, 3, 0), (-1, 3, 2), (-3, 3, 0), (0, 0, 0)]
)
def test_a_negative_axis_counts_from_the_end(axis: int, rank: int, position: int) -> None:
    assert normalize_axis(axis, rank) == position


@pytest.mark.parametrize(("axis", "rank"), [(3, 3), (-4, 3), (1, 0), (-1, 0)])
def test_an_axis_out_of_range_is_impossible(axis: int, rank: int) -> None:
    with pytest.raises(Impossible, match="out of range"):
        normalize_axis(axis, rank)


def test_an_axis_named_twice_is_impossible() -> None:
    assert normalize_axes([2, -3], 3) == (2, 0)
    with pytest.raises(Impossible, match="twice"):
        normalize_axes([0, -3], 3)


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**9))
def test_ceil_div_rounds_up_exactly(numerator: int, divisor: int) -> None:
    quotient = ceil_div(numerator, divisor)
    assert (quotient - 1) * divisor < numerator <= quotient * divisor


# -- windows ---------------------------------------------------------------------------------


@given(
    st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip
def test_a_window_slides_as_often_as_it_fits(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    reach = dilation * (kernel - 1) + 1
    fits = [at for at in range(0, size + begin + end, stride) if at + reach <= size + begin + end]
    attributes = {"strides": (stride,), "dilations": (dilation,), "pads": (begin, end)}
    if fits:
        assert windows(size, kernel, **attributes) == len(fits)
    else:
        with pytest.raises(Impossible, match="larger than the padded input"):
            windows(size, kernel, **attributes)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 4), st.data())
def test_ceil_mode_adds_a_window_that_begins_inside(
    size: int, kernel: int, stride: int, data: st.DataObject
) -> None:
    # Counting: a window counts when it begins before the right padding and covers something new
    begin, end = data.draw(st.integers(0, kernel - 1)), data.draw(st.integers(0, kernel - 1))
    room = size + begin + end - kernel
    if room < 0:
        return
    count = math.ceil(room / stride) + 1
    if (count - 1) * stride >= size + begin:
        count -= 1
    assert windows(size, kernel, strides=(stride,), pads=(begin, end), ceil_mode=True) == count


@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_divides_by_the_stride_and_rounds_up(side: str) -> None:
    # ⌈7 / 2⌉ = 4, ⌈6 / 4⌉ = 2, whatever window and dilation
    assert windows(7, 3, auto_pad=side, strides=(2,)) == 4
    assert windows(6, 5, auto_pad=side, strides=(4,), dilations=(3,)) == 2


def test_valid_padding_is_none() -> None:
    assert windows(7, 3, auto_pad="VALID", pads=(1, 1)) == 5


def test_an_empty_axis_gives_an_empty_axis() -> None:
    assert windows(0, 3) == 0


def test_a_bounded_axis_gives_bounds() -> None:
    # ⌊(D − 3) / 2⌋ + 1 for D in [0, 9]: none … 4
    size = BoundedInt(9, 0)
    assert ends(windows(size, 3, strides=(2,))) == (0, 4)
    assert ends(windows(BoundedInt(9, 5), 3, strides=(2,))) == (2, 4)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"strides": (0,)}, "strides must be positive"),
        ({"dilations": (-1,)}, "dilations must be positive"),
        ({"strides": (1, 1)}, "strides has 2 values for 1"),
        ({"pads": (1,)}, "pads has 1 values, 2 are needed"),
    ],
)
def test_attributes_that_do_not_fit_are_impossible(
    attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(Impossible, match=message):
        windows(8, 3, **attributes)


def test_a_window_of_other_rank_is_impossible() -> None:
    with pytest.raises(Impossible, match="window of 2 axes does not fit 1"):
        sliding_window(call(), (8,), (3, 3))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (BoundedInt(3, 0), BoundedInt(5, 1), (0, 5)),  # 0 and 1 give 0
        (BoundedInt(3, 2), BoundedInt(5, 0), (2, 3)),  # the other is 1 or the same
        (1, BoundedInt(1, 0), (0, 1)),
        (BoundedInt(1, 0), 1, (0, 1)),
        (4, BoundedInt(9, 0), (4, 4)),
    ],
)
def test_bounded_sizes_broadcast_to_what_either_allows(
    one: int, other: int, expected: tuple[int, int]
) -> None:
    (size,) = broadcast((one,), (other,))
    assert ends(size) == expected


def test_two_sizes_that_must_agree_have_neither_s_name() -> None:
    # a = 2 and b = 1 give 2, a = 1 and b = 4 give 4: not a
    (size,) = broadcast((BoundedInt(5, 0, "a"),), (BoundedInt(4, 0, "b"),))
    assert not size.name
    (same,) = broadcast((BoundedInt(5, 0, "a"),), (BoundedInt(5, 0, "a"),))
    assert same.name == "a"


def test_an_axis_that_is_only_bounded_is_not_taken_for_its_largest() -> None:
    with pytest.raises(Undetermined, match="computed at run time"):
        normalize_axis(BoundedInt(1, 0), 2)
