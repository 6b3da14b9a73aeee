"""The text of options → values."""

from __future__ import annotations

import pytest

from onnxroof.errors import UsageError
from onnxroof.options import parse_dims, parse_input_shapes


def test_a_dimension_is_a_name_and_a_number() -> None:
    assert parse_dims(["batch=8", "past_sequence_length + 1=129"]) == {
        "batch": 8,
        "past_sequence_length + 1": 129,
    }


@pytest.mark.parametrize("option", ["batch", "batch=", "=8", "batch=-1", "batch=1.5", "batch=1e3"])
def test_what_is_no_dimension_is_refused_with_an_example(option: str) -> None:
    with pytest.raises(UsageError, match="for example --dim batch=8"):
        parse_dims([option])


def test_one_dimension_cannot_have_two_sizes() -> None:
    assert parse_dims(["n=2", "n=2"]) == {"n": 2}
    with pytest.raises(UsageError, match="bound to 2 and to 3"):
        parse_dims(["n=2", "n=3"])


@pytest.mark.parametrize("text", ["1x3x640x640", "1×3×640×640", "1,3,640,640"])
def test_a_shape_is_numbers_between_crosses(text: str) -> None:
    assert parse_input_shapes([f"images:0={text}"]) == {"images:0": (1, 3, 640, 640)}


@pytest.mark.parametrize("text", ["batch,3,max,max", "batchx3xhxw"])
def test_a_name_in_a_shape_leaves_a_dimension_open(text: str) -> None:
    first, second, *_ = parse_input_shapes([f"x={text}"])["x"]
    assert (first, second) == ("batch", 3)


def test_commas_part_names_that_have_an_x() -> None:
    assert parse_input_shapes(["x=batch,3,max,max"]) == {"x": ("batch", 3, "max", "max")}
    assert parse_input_shapes(["x=ba×3"]) == {"x": ("ba", 3)}
    assert parse_input_shapes(["x=max,"]) == {"x": ("max",)}
    assert parse_input_shapes(["x=batch, 3"]) == {"x": ("batch", 3)}


def test_an_input_without_sizes_is_a_scalar() -> None:
    assert parse_input_shapes(["x="]) == {"x": ()}


@pytest.mark.parametrize(
    "option", ["x", "x=1xx3", "x=1x-3", "=1x3", "x=1x+3", "x=,", "x=1,,2", "x=3d,1", "x=maxx1"]
)
def test_what_is_no_shape_is_refused_with_an_example(option: str) -> None:
    with pytest.raises(UsageError, match="for example --input x=1x3x640x640"):
        parse_input_shapes([option])


def test_an_input_is_bound_once() -> None:
    with pytest.raises(UsageError, match="given twice"):
        parse_input_shapes(["x=1", "x=1"])
