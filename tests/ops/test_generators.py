from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

if TYPE_CHECKING:
    from onnxroof.ops.call import OpCost


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


def scalar(kind: str, value: float, name: str) -> str:
    return f"{name} = Constant <value = {kind} {{{value}}}> () "


def value_of(text: str, *, opset: int = 21) -> list[object]:
    value = shaped(text, opset=opset)[0].tensors["y"].value
    assert value is not None
    return value.tolist()  # type: ignore[no-any-return]


def work_of(text: str) -> OpCost:
    """The formula's answer, also where the node is folded before the first inference."""
    call = shaped(text)[0].calls[-1]
    assert call.operator is not None
    assert call.operator.cost_rule is not None
    return call.operator.cost_rule(call)


# -- ConstantOfShape -------------------------------------------------------------------------


def test_a_constant_of_shape_is_float_zero_unless_it_says_so() -> None:
    shape = "s = Constant <value = int64[2] {2, 3}> () "
    plain = shaped(graph("", shape + "y = ConstantOfShape(s)"))[0].tensors["y"]
    ones = shaped(graph("", shape + "y = ConstantOfShape <value = int64[1] {1}> (s)"))[0].tensors[
        "y"
    ]
    assert (plain.shape, plain.dtype) == ((2, 3), DType.FLOAT)
    assert (ones.shape, ones.dtype) == ((2, 3), DType.INT64)
    assert ones.value is not None
    assert ones.value.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_constant_of_no_shape_is_a_scalar() -> None:
    text = graph("", "s = Constant <value = int64[0] {}> () y = ConstantOfShape(s)")
    assert shapes_of(text)["y"] == ()


def test_a_negative_size_is_a_problem() -> None:
    text = graph("", "s = Constant <value = int64[1] {-1}> () y = ConstantOfShape(s)")
    assert "negative" in problem_of(text)


def test_a_shape_computed_at_run_time_is_said_to_be_missing() -> None:
    found, findings = shaped(graph("int64[2] s", "y = ConstantOfShape(s)"))
    assert found.tensors["y"].shape is None
    assert "computed at run time" in findings.unresolved[0].reason


# -- Range -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "start", "limit", "delta", "expected"),
    [
        ("int64", 3, 9, 3, [3, 6]),
        ("int64", 10, 4, -2, [10, 8, 6]),
        ("int64", 0, 5, 2, [0, 2, 4]),
        ("int64", 5, 0, 1, []),
        ("float", 1.0, 2.0, 0.25, [1.0, 1.25, 1.5, 1.75]),
    ],
)
def test_a_range_stops_before_its_limit(
    kind: str, start: float, limit: float, delta: float, expected: list[object]
) -> None:
    constants = scalar(kind, start, "a") + scalar(kind, limit, "b") + scalar(kind, delta, "d")
    text = graph("", constants + "y = Range(a, b, d)")
    assert shapes_of(text)["y"] == (len(expected),)
    assert value_of(text) == expected


@pytest.mark.parametrize(
    ("kind", "limit", "delta", "count"),
    [
        # 0.4f − 0.1f is 3 · 0.1f before it is rounded to a float, and 3.0000001 · 0.1f after
        ("float", 0.4, 0.1, 3),
        ("float", 0.4, 0.05, 6),
        ("double", 0.4, 0.1, 4),  # 0.30000000000000004 / 0.1
    ],
)
def test_steps_of_fractions_are_counted_in_double_precision_as_a_run_does(
    kind: str, limit: float, delta: float, count: int
) -> None:
    constants = scalar(kind, 0.1, "a") + scalar(kind, limit, "b") + scalar(kind, delta, "d")
    assert shapes_of(graph("", constants + "y = Range(a, b, d)"))["y"] == (count,)


def test_a_range_of_a_size_counts_positions_without_arithmetic() -> None:
    body = (
        "s = Shape(x)" + scalar("int64", 1, "i") + "n = Gather(s, i)"
        + scalar("int64", 0, "z") + "y = Range(z, n, i)"
    )  # fmt: skip
    text = graph("float[1,16] x", body)
    assert shapes_of(text)["y"] == (16,)
    assert not cost_of(text).flops


def test_a_range_longer_than_any_value_we_keep_still_has_a_size() -> None:
    constants = scalar("int64", 0, "a") + scalar("int64", 10**6, "b") + scalar("int64", 1, "d")
    tensor = shaped(graph("", constants + "y = Range(a, b, d)"))[0].tensors["y"]
    assert tensor.shape == (10**6,)
    assert tensor.value is None


def test_a_range_without_progress_is_a_problem() -> None:
    constants = scalar("int64", 0, "a") + scalar("int64", 5, "b") + scalar("int64", 0, "d")
    assert "delta" in problem_of(graph("", constants + "y = Range(a, b, d)"))


def test_a_range_up_to_a_bounded_size_is_bounded() -> None:
    # NonZero finds at most 6 elements of x [2, 3]
    body = (
        "f = NonZero(x) s = Shape(f)" + scalar("int64", 1, "i") + "n = Gather(s, i)"
        + scalar("int64", 0, "z") + "y = Range(z, n, i)"
    )  # fmt: skip
    (size,) = shapes_of(graph("float[2,3] x", body))["y"] or ()
    assert (getattr(size, "low", None), int(size)) == (0, 6)


# -- others ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "expected"), [(-1, (2, 3, 10)), (0, (10, 2, 3)), (1, (2, 10, 3)), (-2, (2, 10, 3))]
)
def test_one_hot_inserts_its_axis(axis: int, expected: tuple[int, ...]) -> None:
    constants = scalar("int64", 10, "d") + "v = Constant <value = double[2] {0.0, 1.0}> () "
    text = graph("int64[2,3] i", constants + f"y = OneHot <axis = {axis}> (i, d, v)")
    tensor = shaped(text)[0].tensors["y"]
    assert (tensor.shape, tensor.dtype) == (expected, DType.DOUBLE)
    assert cost_of(text).parameters == 0


def test_the_depth_of_one_hot_may_be_a_float() -> None:
    constants = scalar("float", 4.0, "d") + "v = Constant <value = float[2] {0.0, 1.0}> () "
    assert shapes_of(graph("int64[2] i", constants + "y = OneHot(i, d, v)"))["y"] == (2, 4)


def test_eye_like_reads_only_a_shape() -> None:
    cost = cost_of(graph("float[3,4] x", "y = EyeLike <dtype = 7> (x)"))
    assert cost.call.outputs[0].dtype is DType.INT64
    assert (cost.flops, cost.traffic_bytes) == (0, 12 * 8)


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_random_numbers_are_one_operation_each(op: str) -> None:
    cost = cost_of(graph("", f"y = {op} <shape = [2,3], dtype = 10> ()"))
    assert cost.call.outputs[0].shape == (2, 3)
    assert (cost.flops, cost.traffic_bytes) == (6, 6 * 2)


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike"])
def test_random_numbers_like_a_tensor_do_not_read_it(op: str) -> None:
    cost = cost_of(graph("float[2,3] x", f"y = {op}(x)"))
    assert (cost.flops, cost.traffic_bytes) == (6, 6 * 4)


def test_bernoulli_reads_its_probabilities() -> None:
    cost = cost_of(graph("float[2,3] x", "y = Bernoulli <dtype = 9> (x)"))
    assert cost.call.outputs[0].dtype is DType.BOOL
    assert (cost.flops, cost.traffic_bytes) == (6, 6 * 4 + 6)


def test_random_numbers_are_never_folded_away() -> None:
    constants = "p = Constant <value = float[2] {0.5, 0.5}> () "
    assert cost_of(graph("", constants + "y = Bernoulli(p)")).flops == 2


def test_multinomial_draws_samples_for_each_row() -> None:
    # 2 rows of 8 classes: 8 exp + 7 sums each; 2·5 draws of 1 + log₂ 8 comparisons
    cost = cost_of(graph("float[2,8] x", "y = Multinomial <sample_size = 5> (x)"))
    assert cost.call.outputs[0].shape == (2, 5)
    assert cost.call.outputs[0].dtype is DType.INT32
    assert (cost.flops, cost.transcendentals) == (2 * 15 + 10 * 4, 16)


@pytest.mark.parametrize(
    ("op", "flops", "cosines"),
    [("HannWindow", 4, 1), ("HammingWindow", 4, 1), ("BlackmanWindow", 8, 2)],
)
def test_a_window_counts_its_cosines(op: str, flops: int, cosines: int) -> None:
    text = graph("", scalar("int64", 400, "n") + f"y = {op} <output_datatype = 11> (n)")
    tensor = shaped(text)[0].tensors["y"]
    assert (tensor.shape, tensor.dtype) == ((400,), DType.DOUBLE)
    work = work_of(text)
    assert (work.flops, work.transcendentals) == (flops * 400, cosines * 400)


def test_a_mel_matrix_spans_half_the_spectrum() -> None:
    # 2 edges in mel, 80 + 2 band edges, 201·80 elements
    constants = (
        scalar("int64", 80, "m") + scalar("int64", 400, "n") + scalar("int64", 16000, "r")
        + scalar("float", 0.0, "l") + scalar("float", 8000.0, "h")
    )  # fmt: skip
    text = graph("", constants + "y = MelWeightMatrix(m, n, r, l, h)")
    assert shapes_of(text)["y"] == (400 // 2 + 1, 80)
    work = work_of(text)
    assert work.flops == 2 * 4 + 2 + 82 * 6 + 201 * 80
    assert work.transcendentals == 2 + 82
