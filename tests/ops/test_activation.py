from __future__ import annotations

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

MICROSOFT = {"com.microsoft": 1}


def graph(inputs: str, body: str, outputs: str = "y") -> str:
    return f"agraph ({inputs}) => ({outputs}) {{ {body} }}"


@pytest.mark.parametrize(
    "op", ["Relu", "LeakyRelu", "HardSigmoid", "HardSwish", "ThresholdedRelu", "Shrink", "Softsign"]
)
def test_plain_activations_are_one_operation_per_element(op: str) -> None:
    cost = cost_of(graph("float[2,3,4] x", f"y = {op}(x)"))
    assert cost.call.outputs[0].shape == (2, 3, 4)
    assert (cost.flops, cost.transcendentals) == (24, 0)


@pytest.mark.parametrize(
    "op", ["Sigmoid", "Tanh", "Elu", "Selu", "Celu", "Softplus", "Mish", "Gelu", "Swish"]
)
def test_smooth_activations_are_one_evaluation_per_element(op: str) -> None:
    cost = cost_of(graph("float[2,3,4] x", f"y = {op}(x)"), opset=24)
    assert (cost.flops, cost.transcendentals) == (24, 24)


def test_swiglu_is_an_activation_and_a_product() -> None:
    cost = cost_of(graph("float[2,8] a, float[2,8] b", "y = SwiGLU(a, b)"), opset=28)
    assert (cost.flops, cost.transcendentals) == (2 * 16, 16)


def test_swiglu_does_not_add_axes() -> None:
    assert "equal" in problem_of(graph("float[2,8] a, float[8] b", "y = SwiGLU(a, b)"), opset=28)


def test_the_slope_of_prelu_is_a_weight_that_stretches_to_x() -> None:
    slope = "s = Constant <value = float[3,1,1] {0.1, 0.2, 0.3}> () "
    cost = cost_of(graph("float[2,3,4,4] x", slope + "y = PRelu(x, s)"))
    assert cost.flops == 2 * 3 * 16
    assert cost.parameters == 3


def test_before_opset_7_the_slope_of_prelu_lies_along_the_channels() -> None:
    text = graph("float[2,3,4,4] x, float[3] s", "y = PRelu(x, s)")
    assert shapes_of(text, opset=6)["y"] == (2, 3, 4, 4)
    assert "broadcast" in problem_of(text, opset=7)


# -- softmax ---------------------------------------------------------------------------------


def test_softmax_normalizes_along_one_axis_since_opset_13() -> None:
    # 2·3 = 6 rows of 4: 3 comparisons, 4 differences, 4 exp, 3 sums, 4 divisions
    cost = cost_of(graph("float[2,3,4] x", "y = Softmax(x)"), opset=13)
    assert (cost.flops, cost.transcendentals) == (6 * (3 + 4 + 4 + 3 + 4), 6 * 4)


def test_softmax_normalizes_everything_from_its_axis_before_opset_13() -> None:
    # axis 1 by default: 2 rows of 3·4 = 12
    cost = cost_of(graph("float[2,3,4] x", "y = Softmax(x)"), opset=11)
    assert (cost.flops, cost.transcendentals) == (2 * (11 + 12 + 12 + 11 + 12), 2 * 12)


def test_softmax_takes_an_inner_axis() -> None:
    # axis −2 of [2, 3, 4]: 2·4 = 8 rows of 3
    cost = cost_of(graph("float[2,3,4] x", "y = Softmax <axis = -2> (x)"), opset=13)
    assert (cost.flops, cost.transcendentals) == (8 * (5 * 3 - 2), 8 * 3)


def test_log_softmax_adds_one_logarithm_a_row() -> None:
    # 6 rows of 4: 3 comparisons, 4 differences, 4 exp, 3 sums, 1 log, 4 differences
    cost = cost_of(graph("float[2,3,4] x", "y = LogSoftmax(x)"), opset=13)
    assert (cost.flops, cost.transcendentals) == (6 * (3 + 4 + 4 + 3 + 1 + 4), 6 * (4 + 1))


def test_hardmax_compares_each_row_once() -> None:
    cost = cost_of(graph("float[2,3,4] x", "y = Hardmax(x)"), opset=13)
    assert (cost.flops, cost.transcendentals) == (6 * 3, 0)


def test_softmax_over_nothing_costs_nothing() -> None:
    cost = cost_of(graph("float[2,0] x", "y = Softmax(x)"))
    assert (cost.flops, cost.transcendentals) == (0, 0)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_a_softmax_axis_out_of_range_is_a_problem_and_its_cost_unknown(op: str) -> None:
    text = graph("float[2,3] x", f"y = {op} <axis = 5> (x)")
    assert "axis 5 is out of range" in problem_of(text)
    assert cost_of(text).flops is None


# -- dropout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
def test_dropout_in_inference_moves_nothing(opset: int) -> None:
    cost = cost_of(graph("float[2,3] x", "y = Dropout(x)"), opset=opset)
    assert cost.call.outputs[0].shape == (2, 3)
    assert (cost.flops, cost.traffic_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("opset", "expected"), [(7, DType.FLOAT), (10, DType.BOOL), (13, DType.BOOL)]
)
def test_the_dropout_mask_is_boolean_since_opset_10(opset: int, expected: DType) -> None:
    tensors = shaped(graph("float[2,3] x", "y, m = Dropout(x)", "y, m"), opset=opset)[0].tensors
    assert tensors["m"].shape == (2, 3)
    assert tensors["m"].dtype is expected


def test_dropout_in_training_draws_and_scales() -> None:
    constants = "r = Constant <value = float {0.5}> () t = Constant <value = bool {1}> () "
    cost = cost_of(graph("float[2,3] x", constants + "y = Dropout(x, r, t)"), opset=13)
    assert cost.flops == 3 * 6
    assert cost.traffic_bytes == 2 * 6 * 4


def test_a_training_mode_known_only_at_run_time_is_said() -> None:
    text = graph("float[2,3] x, float r, bool t", "y = Dropout(x, r, t)")
    assert cost_of(text, opset=13).flops == 0


# -- com.microsoft ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "flops"),
    [
        ("com.microsoft.Gelu(x)", 1),
        ("com.microsoft.QuickGelu <alpha = 1.0> (x)", 1),
        ("com.microsoft.FastGelu(x)", 1),
        ("com.microsoft.FastGelu(x, b)", 2),
        ("com.microsoft.BiasGelu(x, b)", 2),
    ],
)
def test_fused_gelus_count_their_bias(body: str, flops: int) -> None:
    text = graph("float[2,3,8] x, float[8] b", f"y = {body}")
    cost = cost_of(text, opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (2, 3, 8)
    assert (cost.flops, cost.transcendentals) == (flops * 48, 48)


def test_bias_split_gelu_halves_the_last_axis() -> None:
    # 2·3·8 = 48 bias additions, then 2·3·4 = 24 Gelus and products
    text = graph("float[2,3,8] x, float[8] b", "y = com.microsoft.BiasSplitGelu(x, b)")
    cost = cost_of(text, opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (2, 3, 4)
    assert (cost.flops, cost.transcendentals) == (48 + 2 * 24, 24)


def test_bias_softmax_runs_from_its_axis_to_the_end() -> None:
    # 24 bias additions, then 2·3 = 6 rows of 4
    text = graph(
        "float[2,3,4] x, float[2,1,4] b",
        "y = com.microsoft.BiasSoftmax <axis = 2, is_inner_broadcast = 1> (x, b)",
    )
    cost = cost_of(text, opsets=MICROSOFT)
    assert (cost.flops, cost.transcendentals) == (24 + 6 * 18, 24)


def test_bias_dropout_in_inference_is_two_additions() -> None:
    text = graph("float[2,8] x, float[8] b, float[2,8] r", "y = com.microsoft.BiasDropout(x, b, r)")
    assert cost_of(text, opsets=MICROSOFT).flops == 2 * 16


def test_a_bitmask_packs_32_elements_in_one() -> None:
    text = graph("float[5,7] x", "y, m = com.microsoft.BitmaskDropout(x)", "y, m")
    tensors = shaped(text, opsets=MICROSOFT)[0].tensors
    assert tensors["m"].shape == (2,)  # ⌈35 / 32⌉
    assert tensors["m"].dtype is DType.UINT32


def test_clamped_swiglu_splits_a_packed_gate() -> None:
    # gate and value are halves of 8; Swish, product, sum with beta, two clamps
    body = "y = com.microsoft.SwiGLU <activation_beta = 1.0, limit = 7.0> (x)"
    cost = cost_of(graph("float[3,8] x", body), opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (3, 4)
    assert (cost.flops, cost.transcendentals) == (5 * 12, 12)
