"""Axes, steps and counts that are computed from the data: known by bounds, or not known at all.

In every graph n is the number of non-zero elements of x, here of two: 0, 1 or 2.
"""

from __future__ import annotations

import pytest

from onnxroof.bounded import ends
from tests.builders import cost_of, shaped, shapes_of

COUNT = """nz = NonZero (x)  s = Shape <start = 1> (nz)  one = Constant <value_ints = [1]> ()
    n = Min (s, one)  two = Constant <value_ints = [2]> ()  zero = Constant <value_ints = [0]> ()
"""


def graph(body: str, data: str = "5,7") -> str:
    return f"g (float[{data}] d, float[2] x) => (y) {{ {COUNT} {body} }}"


@pytest.mark.parametrize(
    "body",
    [
        "y = ReduceSum (d, n)",
        "y = ReduceMax <keepdims = 0> (d, n)",
        "y = Unsqueeze (d, n)",
        "y = com.microsoft.ExpandDims (d, n)",
        "p = Concat <axis = 0> (two, two)  y = Pad (d, p, , n)",
        "e = Unsqueeze (d, zero)  y = Squeeze (e, n)",
        "y = DFT <axis = 0> (d, , n)",
    ],
)
def test_an_axis_that_is_0_or_1_leaves_the_result_unknown(body: str) -> None:
    _, findings = shaped(graph(body), opsets={"com.microsoft": 1})
    assert not findings.problems
    assert "run time" in findings.unresolved[-1].reason


def test_a_slice_along_an_axis_that_is_0_or_1_leaves_at_most_both_whole() -> None:
    shape = shapes_of(graph("y = Slice (d, zero, two, n)"))["y"]
    assert shape is not None
    assert [ends(size) for size in shape] == [(0, 5), (0, 7)]


def test_all_axes_in_an_order_that_is_not_known_are_all_axes() -> None:
    # n and 1 − n: both axes, one way or the other
    body = "m = Sub (one, n)  a = Concat <axis = 0> (n, m)  y = ReduceSum (d, a)"
    assert shapes_of(graph(body))["y"] == (1, 1)


@pytest.mark.parametrize("step", ["Sub (n, one)", "Sub (zero, n)"])
def test_a_step_that_may_be_0_and_may_not_is_no_problem(step: str) -> None:
    graph_, findings = shaped(graph(f"m = {step}  y = Slice (d, two, zero, zero, m)"))
    assert not findings.problems
    assert ends(graph_.tensors["y"].dims[0]) == (0, 5)


def test_a_range_whose_delta_is_minus_1_or_0_counts_down_by_1() -> None:
    # a delta of 0 is no range, so 5, 4, 3, 2, 1
    body = """f = Constant <value_int = 5> ()  t = Constant <value_int = 0> ()
        m = Sub (n, one)  d1 = Squeeze (m, zero)  y = Range (f, t, d1)"""
    assert shapes_of(graph(body))["y"] == (5,)


def test_a_squeeze_without_axes_of_a_size_that_may_be_1_is_unknown() -> None:
    _, findings = shaped(graph("y = Squeeze (nz)"))
    assert "which sizes are 1" in findings.unresolved[-1].reason


def test_a_running_sum_along_an_axis_that_is_0_or_1_costs_one_operation_per_element() -> None:
    # 5 · 6 or 4 · 7 additions, at most 35
    node = cost_of(graph("a = Squeeze (n, zero)  y = CumSum (d, a)"))
    assert node.flops == 5 * 7


def test_a_triangle_shifted_by_0_or_1_has_no_known_elements() -> None:
    body = """c = Constant <value = int64[2,2] {1,2,3,4}> ()  k = Squeeze (n, zero)
        y = Trilu (c, k)"""
    graph_, _ = shaped(graph(body))
    assert graph_.tensors["y"].value is None
    assert graph_.tensors["y"].shape == (2, 2)


def test_frames_one_step_apart_are_the_most() -> None:
    # a step of 0 is none; with 1 there are (9 − 4) / 1 + 1 frames of 4, of 4 // 2 + 1 bins
    body = """k = Squeeze (n, zero)  f = Constant <value_int = 4> ()
        y = STFT (d, k, , f)"""
    assert shapes_of(graph(body, "1,9,1"))["y"] == (1, 6, 3, 2)
