from __future__ import annotations

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1}


def graph(inputs: str, body: str, outputs: str = "y") -> str:
    return f"agraph ({inputs}) => ({outputs}) {{ {body} }}"


# -- BatchNormalization ----------------------------------------------------------------------

BATCH = "float[2,3,4,4] x, float[3] s, float[3] b, float[3] m, float[3] v"


@pytest.mark.parametrize("opset", [6, 7, 9, 14, 15])
def test_inference_is_a_scale_and_a_shift(opset: int) -> None:
    text = graph(BATCH, "y = BatchNormalization(x, s, b, m, v)")
    assert shapes_of(text, opset=opset)["y"] == (2, 3, 4, 4)
    assert cost_of(text, opset=opset).flops == 2 * 96


def test_training_returns_running_statistics() -> None:
    text = graph(
        BATCH, "y, rm, rv = BatchNormalization <training_mode = 1> (x, s, b, m, v)", "y, rm, rv"
    )
    shapes = shapes_of(text, opset=15)
    assert (shapes["y"], shapes["rm"], shapes["rv"]) == ((2, 3, 4, 4), (3,), (3,))
    # mean, deviation, square and variance per element, and three for each running statistic
    assert cost_of(text, opset=15).flops == 2 * 96 + 4 * 96 + 6 * 3


@pytest.mark.parametrize("opset", [6, 7, 9])
def test_before_opset_14_five_outputs_mean_training(opset: int) -> None:
    text = graph(
        BATCH, "y, rm, rv, sm, sv = BatchNormalization(x, s, b, m, v)", "y, rm, rv, sm, sv"
    )
    shapes = shapes_of(text, opset=opset)
    assert all(shapes[name] == (3,) for name in ("rm", "rv", "sm", "sv"))
    assert cost_of(text, opset=opset).flops == 6 * 96 + 6 * 3


def test_statistics_per_element_are_allowed_where_spatial_is_0() -> None:
    inputs = "float[2,3,4] x, float[3,4] s, float[3,4] b, float[3,4] m, float[3,4] v"
    text = graph(inputs, "y = BatchNormalization <spatial = 0> (x, s, b, m, v)")
    assert shapes_of(text, opset=7)["y"] == (2, 3, 4)


def test_a_scale_for_other_channels_is_a_problem() -> None:
    text = graph(BATCH.replace("float[3] s", "float[4] s"), "y = BatchNormalization(x, s, b, m, v)")
    assert "channels" in problem_of(text)


# -- per instance, group, layer --------------------------------------------------------------


def test_an_instance_is_normalized_over_its_own_map() -> None:
    text = graph("float[2,3,4,5] x, float[3] s, float[3] b", "y = InstanceNormalization(x, s, b)")
    cost = cost_of(text)
    assert (cost.flops, cost.transcendentals) == (6 * (7 * 20 + 2), 6)


@pytest.mark.parametrize(("opset", "affine"), [(18, 3), (21, 6)])
def test_a_group_is_normalized_over_its_channels(opset: int, affine: int) -> None:
    text = graph(
        f"float[2,6,4,5] x, float[{affine}] s, float[{affine}] b",
        "y = GroupNormalization <num_groups = 3> (x, s, b)",
    )
    cost = cost_of(text, opset=opset)
    assert shapes_of(text, opset=opset)["y"] == (2, 6, 4, 5)
    assert (cost.flops, cost.transcendentals) == (6 * (7 * 40 + 2), 6)


def test_groups_that_do_not_divide_have_no_cost() -> None:
    text = graph(
        "float[2,6,4] x, float[6] s, float[6] b",
        "y = GroupNormalization <num_groups = 4> (x, s, b)",
    )
    assert cost_of(text).flops is None


@pytest.mark.parametrize(
    ("axis", "rows", "each"), [("", 6, 4), ("<axis = 1>", 2, 12), ("<axis = -2>", 2, 12)]
)
@pytest.mark.parametrize("bias", ["", ", b"])
def test_a_layer_is_normalized_from_its_axis_on(axis: str, rows: int, each: int, bias: str) -> None:
    text = graph("float[2,3,4] x, float[4] s, float[4] b",
                 f"y = LayerNormalization {axis} (x, s{bias})")  # fmt: skip
    cost = cost_of(text)
    assert cost.flops == rows * (6 * each + 2 + each * bool(bias))
    assert cost.transcendentals == rows


def test_statistics_of_a_layer_have_the_stash_type() -> None:
    text = graph(
        "float16[2,3,4] x, float16[3,4] s",
        "y, m, i = LayerNormalization <axis = 1> (x, s)",
        "y, m, i",
    )
    tensors, _ = shaped(text)
    assert tensors.tensors["y"].dtype is DType.FLOAT16
    for name in "mi":
        assert tensors.tensors[name].shape == (2, 1, 1)
        assert tensors.tensors[name].dtype is DType.FLOAT


@pytest.mark.parametrize(
    ("op", "opset"), [("RMSNormalization", 23), ("SimplifiedLayerNormalization", 17),
                      ("com.microsoft.SimplifiedLayerNormalization", 17)],
)  # fmt: skip
def test_a_root_mean_square_takes_no_mean_away(op: str, opset: int) -> None:
    text = graph("float[2,3,4] x, float[4] s", f"y = {op}(x, s)")
    cost = cost_of(text, opset=opset, opsets=CONTRIB)
    assert shapes_of(text, opset=opset, opsets=CONTRIB)["y"] == (2, 3, 4)
    assert (cost.flops, cost.transcendentals) == (6 * (4 * 4 + 2), 6)


def test_an_axis_out_of_range_is_a_problem() -> None:
    text = graph("float[2,3] x, float[3] s", "y = LayerNormalization <axis = 2> (x, s)")
    assert "axis 2" in problem_of(text)


def test_empty_rows_cost_nothing() -> None:
    text = graph("float[2,0] x, float[0] s", "y = LayerNormalization(x, s)")
    assert cost_of(text).flops == 0


# -- local and by a norm ---------------------------------------------------------------------


def test_local_response_squares_a_window_of_channels() -> None:
    cost = cost_of(graph("float[1,8,2,2] x", "y = LRN <size = 5> (x)"))
    # 5 squares, 4 additions, alpha/size, bias, power, division
    assert (cost.flops, cost.transcendentals) == (32 * 13, 32)


@pytest.mark.parametrize(("p", "flops", "roots"), [(2, 6 * 3 * 4, 6), (1, 6 * (3 * 4 - 1), 0)])
def test_a_norm_divides_its_row(p: int, flops: int, roots: int) -> None:
    cost = cost_of(graph("float[2,3,4] x", f"y = LpNormalization <p = {p}> (x)"))
    assert (cost.flops, cost.transcendentals) == (flops, roots)


@pytest.mark.parametrize(
    ("axes", "rows", "each"), [("", 3, 2 * 4 * 5), ("<axes = [1,2,3]>", 2, 3 * 4 * 5)]
)
def test_mean_and_variance_over_axes(axes: str, rows: int, each: int) -> None:
    text = graph("float[2,3,4,5] x", f"y = MeanVarianceNormalization {axes} (x)")
    assert cost_of(text, opset=13).flops == rows * (5 * each + 1)


# -- as onnxruntime's optimizers write them --------------------------------------------------


@pytest.mark.parametrize(
    ("op", "operands", "per_row"),
    [
        # skip, 6n + 2, shift, bias
        ("SkipLayerNormalization", "x, k, g", 4 + 6 * 4 + 2),
        ("SkipLayerNormalization", "x, k, g, b", 4 + 6 * 4 + 2 + 4),
        ("SkipLayerNormalization", "x, k, g, b, c", 4 + 6 * 4 + 2 + 4 + 4),
        ("SkipSimplifiedLayerNormalization", "x, k, g", 4 + 4 * 4 + 2),
        ("SkipSimplifiedLayerNormalization", "x, k, g, c", 4 + 4 * 4 + 2 + 4),
    ],
)
def test_a_residual_is_added_before_the_layer(op: str, operands: str, per_row: int) -> None:
    text = graph(
        "float16[2,3,4] x, float16[2,3,4] k, float16[4] g, float16[4] b, float16[4] c",
        f"y, m, i, s = com.microsoft.{op}({operands})",
        "y, m, i, s",
    )
    tensors, _ = shaped(text, opsets=CONTRIB)
    assert tensors.tensors["y"].shape == tensors.tensors["s"].shape == (2, 3, 4)
    assert tensors.tensors["m"].shape == tensors.tensors["i"].shape == (2, 3, 1)
    assert tensors.tensors["m"].dtype is DType.FLOAT
    assert cost_of(text, opsets=CONTRIB).flops == 6 * per_row


def test_embeddings_are_added_and_normalized() -> None:
    text = graph(
        "int32[2,3] i, int32[2,3] g, float[100,8] w, float[50,8] p, float[2,8] s, float[8] a,"
        " float[8] b, int32[2,3] m",
        "y, k, e = com.microsoft.EmbedLayerNormalization(i, g, w, p, s, a, b, m)",
        "y, k, e",
    )
    tensors, _ = shaped(text, opsets=CONTRIB)
    cost = cost_of(text, opsets=CONTRIB)
    assert tensors.tensors["y"].shape == tensors.tensors["e"].shape == (2, 3, 8)
    assert tensors.tensors["k"].shape == (2,)
    assert tensors.tensors["k"].dtype is DType.INT32
    # two additions of tables, the layer, and 2 additions for each of two masks
    assert cost.flops == 6 * (2 * 8 + 7 * 8 + 2) + 2 * 2
    # ids, segments and mask; 6 word rows, 3 position rows, the 2 segment rows; scale and shift
    assert cost.input_bytes == 4 * (3 * 6 + (6 + 3 + 2) * 8 + 2 * 8)


def test_quantized_embeddings_return_the_type_of_their_scale() -> None:
    scalars = ", ".join(f"float s{i}" for i in range(5))
    zeros = ", ".join(f"uint8 z{i}" for i in range(5))
    names = ", ".join([*(f"s{i}" for i in range(5)), *(f"z{i}" for i in range(5))])
    text = graph(
        "int32[2,3] i, int32[2,3] g, uint8[100,8] w, uint8[50,8] p, uint8[2,8] s, uint8[8] a,"
        f" uint8[8] b, int32[2,3] m, {scalars}, {zeros}",
        f"y, k = com.microsoft.QEmbedLayerNormalization(i, g, w, p, s, a, b, m, {names})",
        "y, k",
    )
    tensors, _ = shaped(text, opsets=CONTRIB)
    assert tensors.tensors["y"].shape == (2, 3, 8)
    assert tensors.tensors["y"].dtype is DType.FLOAT


@pytest.mark.parametrize(("last", "x"), [("", "2,4,5,6"), ("channels_last = 0,", "2,6,4,5")])
def test_groups_have_channels_last_by_default(last: str, x: str) -> None:
    text = graph(
        f"float16[{x}] x, float[6] g, float[6] b",
        f"y = com.microsoft.GroupNorm <{last} groups = 3, activation = 1> (x, g, b)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.flops == 6 * (7 * 40 + 2) + 240
    assert cost.transcendentals == 6 + 240


def test_a_residual_group_returns_the_sum() -> None:
    text = graph(
        "float16[2,4,5,6] x, float[6] g, float[6] b, float16[2,6] k, float16[6] c",
        "y, s = com.microsoft.SkipGroupNorm <groups = 3, activation = 0> (x, g, b, k, c)",
        "y, s",
    )
    assert shapes_of(text, opsets=CONTRIB)["s"] == (2, 4, 5, 6)
    assert cost_of(text, opsets=CONTRIB).flops == 6 * (7 * 40 + 2) + 2 * 240


def test_bias_and_residual_are_two_additions() -> None:
    text = graph(
        "float16[2,9,6] x, float16[6] b, float16[2,9,6] k", "y = com.microsoft.BiasAdd(x, b, k)"
    )
    assert cost_of(text, opsets=CONTRIB).flops == 2 * 108
