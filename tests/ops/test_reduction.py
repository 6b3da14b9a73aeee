from __future__ import annotations

import pytest

from onnxroof.bounded import BoundedInt
from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


def ints(name: str, *values: int) -> str:
    listed = ", ".join(map(str, values))
    return f"{name} = Constant <value = int64[{len(values)}] {{{listed}}}> () "


REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
def test_axes_are_an_attribute_in_opset_11_and_an_input_in_opset_18(op: str) -> None:
    old = graph("float[2,3,4] x", f"y = {op} <axes = [1]> (x)")
    new = graph("float[2,3,4] x", ints("a", 1) + f"y = {op}(x, a)")
    assert shapes_of(old, opset=11)["y"] == (2, 1, 4)
    assert shapes_of(new, opset=18)["y"] == (2, 1, 4)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_without_axes_everything_is_reduced(op: str) -> None:
    assert shapes_of(graph("float[2,3,4] x", f"y = {op}(x)"), opset=18)["y"] == (1, 1, 1)
    scalar = graph("float[2,3,4] x", f"y = {op} <keepdims = 0> (x)")
    assert shapes_of(scalar, opset=18)["y"] == ()


@pytest.mark.parametrize("op", REDUCTIONS)
def test_empty_axes_reduce_nothing_only_when_asked(op: str) -> None:
    empty = "a = Constant <value = int64[0] {}> () "
    kept = graph("float[2,3,4] x", empty + f"y = {op} <noop_with_empty_axes = 1> (x, a)")
    reduced = graph("float[2,3,4] x", empty + f"y = {op} <noop_with_empty_axes = 0> (x, a)")
    assert shapes_of(kept, opset=18)["y"] == (2, 3, 4)
    assert shapes_of(reduced, opset=18)["y"] == (1, 1, 1)


def test_negative_axes_count_from_the_end() -> None:
    text = graph("float[2,3,4] x", ints("a", -1, 0) + "y = ReduceSum <keepdims = 0> (x, a)")
    assert shapes_of(text)["y"] == (3,)


def test_an_axis_out_of_range_is_a_problem() -> None:
    text = graph("float[2,3,4] x", ints("a", 3) + "y = ReduceSum(x, a)")
    assert "axis 3 is out of range" in problem_of(text)


def test_an_axes_input_of_as_many_as_there_are_means_all() -> None:
    assert shapes_of(graph("float[2,3] x, int64[2] a", "y = ReduceSum(x, a)"))["y"] == (1, 1)


def test_axes_computed_at_run_time_leave_the_shape_unknown_with_a_reason() -> None:
    graph_, findings = shaped(graph("float[2,3] x, int64[1] a", "y = ReduceSum(x, a)"))
    assert graph_.tensors["y"].shape is None
    assert "axes" in findings.unresolved[0].reason


@pytest.mark.parametrize(
    ("op", "flops", "transcendentals"),
    [
        # 2·4 = 8 outputs of n = 3 elements each
        ("ReduceSum", 8 * 2, 0),
        ("ReduceMax", 8 * 2, 0),
        ("ReduceMin", 8 * 2, 0),
        ("ReduceProd", 8 * 2, 0),
        ("ReduceMean", 8 * 3, 0),  # and a division
        ("ReduceL1", 8 * 5, 0),  # 3 absolute values, 2 sums
        ("ReduceSumSquare", 8 * 5, 0),  # 3 squares, 2 sums
        ("ReduceL2", 8 * 6, 8),  # and a root
        ("ReduceLogSum", 8 * 3, 8),  # 2 sums, a log
        ("ReduceLogSumExp", 8 * 6, 8 * 4),  # 3 exp, 2 sums, a log
    ],
)
def test_each_reduction_counts_its_own_steps(op: str, flops: int, transcendentals: int) -> None:
    cost = cost_of(graph("float[2,3,4] x", f"y = {op} <axes = [1]> (x)"), opset=11)
    assert (cost.flops, cost.transcendentals) == (flops, transcendentals)


def test_a_reduction_of_nothing_costs_nothing() -> None:
    assert cost_of(graph("float[0,3] x", "y = ReduceSum <keepdims = 0> (x)")).flops == 0


def test_axes_are_not_parameters_and_not_traffic() -> None:
    cost = cost_of(graph("float[2,3,4] x", ints("a", 1) + "y = ReduceSum(x, a)"))
    assert cost.parameters == 0
    assert cost.traffic_bytes == (24 + 8) * 4


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions_are_int64_along_axis_0_by_default(op: str) -> None:
    text = graph("float[2,3,4] x", f"y = {op}(x)")
    tensors = shaped(text)[0].tensors
    assert tensors["y"].shape == (1, 3, 4)
    assert tensors["y"].dtype is DType.INT64
    assert cost_of(text).flops == 12 * (2 - 1)


def test_argmax_may_drop_its_axis() -> None:
    text = graph("float[2,3,4] x", "y = ArgMax <axis = -1, keepdims = 0> (x)")
    assert shapes_of(text)["y"] == (2, 3)
    assert cost_of(text).flops == 6 * 3


# -- values ----------------------------------------------------------------------------------


def value_of(body: str, inputs: str = "") -> object:
    value = shaped(graph(inputs, body))[0].tensors["y"].value
    assert value is not None
    return value.tolist()


@pytest.mark.parametrize(
    ("op", "expected"),
    [("ReduceProd", 24), ("ReduceSum", 9), ("ReduceMax", 4), ("ReduceMin", 2), ("ArgMax", 2)],
)
def test_sizes_are_combined_in_the_graph(op: str, expected: int) -> None:
    # the shape of x is [2, 3, 4]
    body = f"s = Shape(x) y = {op} <keepdims = 0> (s)"
    assert value_of(body, "float[2,3,4] x") == expected


def test_a_product_keeps_its_axes() -> None:
    assert value_of("s = Shape(x) y = ReduceProd(s)", "float[2,3,4] x") == [24]


def test_the_product_of_a_bounded_size_is_bounded() -> None:
    # NonZero finds 0 to 6 elements of x [2, 3]; its shape is [2, ≤6], the product at most 12
    body = "n = NonZero(x) s = Shape(n) y = ReduceProd <keepdims = 0> (s)"
    product = value_of(body, "float[2,3] x")
    assert isinstance(product, BoundedInt)
    assert (product.low, int(product)) == (0, 12)
