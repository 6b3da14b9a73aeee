from __future__ import annotations

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1, "com.microsoft.nchwc": 1, "com.ms.internal.nhwc": 22}


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


def contrib(text: str) -> tuple[int, ...] | None:
    return shapes_of(text, opsets=CONTRIB)["y"]


# -- Conv ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [6, 11, 22])
def test_a_window_slides_the_same_in_every_version(opset: int) -> None:
    # ⌊(9 + 1 + 1 − 2·(3 − 1) − 1) / 2⌋ + 1 = 4
    text = graph(
        "float[2,4,9,9] x, float[8,4,3,3] w",
        "y = Conv <strides = [2,2], pads = [1,1,1,1], dilations = [2,2]> (x, w)",
    )
    assert shapes_of(text, opset=opset)["y"] == (2, 8, 4, 4)
    assert cost_of(text, opset=opset).macs == 2 * 8 * 4 * 4 * 4 * 3 * 3


def test_bias_is_one_addition_per_output_element() -> None:
    cost = cost_of(graph("float[1,3,8,8] x, float[5,3,3,3] w, float[5] b", "y = Conv(x, w, b)"))
    macs = 5 * 6 * 6 * 3 * 9
    assert (cost.macs, cost.flops) == (macs, 2 * macs + 5 * 6 * 6)


@pytest.mark.parametrize(
    ("x", "w", "y"),
    [("1,2,30", "4,2,5", (1, 4, 26)), ("1,2,6,7,8", "4,2,3,3,3", (1, 4, 4, 5, 6))],
)
def test_any_number_of_spatial_axes(x: str, w: str, y: tuple[int, ...]) -> None:
    assert shapes_of(graph(f"float[{x}] x, float[{w}] w", "y = Conv(x, w)"))["y"] == y


def test_groups_divide_the_work() -> None:
    text = graph("float[1,32,10,10] x, float[64,8,1,1] w", "y = Conv <group = 4> (x, w)")
    assert cost_of(text).macs == 64 * 100 * (32 // 4)


def test_depthwise_needs_one_input_channel_per_filter() -> None:
    text = graph("float[1,32,10,10] x, float[32,1,3,3] w", "y = Conv <group = 32> (x, w)")
    assert cost_of(text).macs == 32 * 64 * 9


@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("stride", "dilation", "y"), [(1, 1, (7, 5)), (2, 1, (4, 3)), (1, 2, (7, 5)), (3, 2, (3, 2))]
)
def test_same_padding_divides_by_the_stride_alone(
    side: str, stride: int, dilation: int, y: tuple[int, int]
) -> None:
    text = graph(
        "float[1,1,7,5] x, float[1,1,3,3] w",
        f'y = Conv <auto_pad = "{side}", strides = [{stride},{stride}],'
        f" dilations = [{dilation},{dilation}]> (x, w)",
    )
    assert shapes_of(text)["y"] == (1, 1, *y)


def test_valid_padding_is_none() -> None:
    text = graph("float[1,1,7,5] x, float[1,1,3,3] w", 'y = Conv <auto_pad = "VALID"> (x, w)')
    assert shapes_of(text)["y"] == (1, 1, 5, 3)


def test_an_empty_batch_costs_nothing() -> None:
    cost = cost_of(graph("float[0,3,8,8] x, float[5,3,3,3] w, float[5] b", "y = Conv(x, w, b)"))
    assert (cost.macs, cost.flops) == (0, 0)


@pytest.mark.parametrize(
    ("inputs", "attributes", "reason"),
    [
        ("float[1,3,8,8] x, float[4,2,3,3] w", "", "3 channels"),
        ("float[1,4,8,8] x, float[3,2,3,3] w", "<group = 2>", "do not divide"),
        ("float[1,3,8,8] x, float[4,3,3,3] w", "<kernel_shape = [5,5]>", "kernel_shape"),
        ("float[1,3,8,8] x, float[4,3,3] w", "", "axes"),
        ("float[1,3,2,2] x, float[4,3,3,3] w", "", "larger than the padded input"),
        ("float[1,3,8,8] x, float[4,3,3,3] w", "<pads = [1,1]>", "pads"),
    ],
)
def test_a_contradiction_is_a_problem_of_the_node(
    inputs: str, attributes: str, reason: str
) -> None:
    assert reason in problem_of(graph(inputs, f"y = Conv {attributes} (x, w)"))


# -- ConvTranspose ---------------------------------------------------------------------------


def transposed(x: str, w: str, attributes: str = "", bias: str = "") -> str:
    inputs = f"float[{x}] x, float[{w}] w" + (f", float[{bias}] b" if bias else "")
    return graph(inputs, f"y = ConvTranspose {attributes} (x, w{', b' if bias else ''})")


def test_transposed_work_follows_the_input_positions() -> None:
    text = transposed("1,6,5,5", "6,2,3,3", "<strides = [2,2]>", "2")
    cost = cost_of(text)
    # output 2·(5 − 1) + 3 = 11; macs: every input element meets 2·3·3 weights
    assert shapes_of(text)["y"] == (1, 2, 11, 11)
    assert cost.macs == 6 * 5 * 5 * 2 * 9
    assert cost.flops == 2 * cost.macs + 2 * 11 * 11


def test_transposed_groups_enter_once() -> None:
    text = transposed("2,4,8,8", "4,3,3,3", "<group = 2, pads = [1,1,1,1]>")
    assert shapes_of(text)["y"] == (2, 6, 8, 8)
    assert cost_of(text).macs == 2 * 4 * 64 * 3 * 9


@pytest.mark.parametrize(
    ("attributes", "side"),
    [
        # stride·(7 − 1) + output_padding + dilation·(3 − 1) + 1 − pads
        ("strides = [3,3]", 3 * 6 + 3),
        ("strides = [2,2], output_padding = [1,1]", 2 * 6 + 1 + 3),
        ("strides = [2,2], dilations = [2,2], pads = [1,1,1,1]", 2 * 6 + 5 - 2),
        ("strides = [2,2], pads = [0,0,1,1]", 2 * 6 + 3 - 1),
        ('strides = [2,2], auto_pad = "VALID"', 2 * 6 + 3),
        ('strides = [2,2], auto_pad = "SAME_UPPER"', 7 * 2),
        ('strides = [1,1], auto_pad = "SAME_LOWER"', 7),
        ("strides = [2,2], output_shape = [15,15]", 15),
        ("strides = [2,2], output_shape = [1,1,15,15]", 15),
    ],
)
def test_transposed_sizes(attributes: str, side: int) -> None:
    assert shapes_of(transposed("1,1,7,7", "1,1,3,3", f"<{attributes}>"))["y"] == (1, 1, side, side)


def test_same_transposed_padding_narrower_than_the_stride_says_where_runtimes_differ() -> None:
    text = transposed("1,1,5", "1,1,1", '<strides = [2], auto_pad = "SAME_UPPER">')
    shaped_graph, findings = shaped(text)
    assert shaped_graph.tensors["y"].shape == (1, 1, 10)
    assert any("runtimes" in sentence for sentence in findings.assumptions)


def test_pads_that_leave_nothing_are_a_problem() -> None:
    assert "leave no output" in problem_of(transposed("1,1,1", "1,1,1", "<pads = [1,1]>"))


def test_pads_may_be_an_input_in_the_dynamic_form() -> None:
    text = graph(
        "float[1,2,5,5] x, float[2,3,3,3] w",
        "p = Constant <value_ints = [1,1,1,1]> ()"
        " y = com.microsoft.ConvTransposeWithDynamicPads <strides = [2,2]> (x, w, p)",
    )
    assert contrib(text) == (1, 3, 9, 9)
    assert cost_of(text, opsets=CONTRIB).macs == 2 * 25 * 3 * 9


# -- quantized -------------------------------------------------------------------------------

QUANTIZED = (
    "uint8[1,3,8,8] x, float xs, uint8 xz, int8[4,3,3,3] w, float ws, int8 wz, float ys, uint8 yz"
)


def test_integer_convolution_sums_in_32_bits() -> None:
    text = graph("uint8[1,3,8,8] x, int8[4,3,3,3] w, uint8 z", "y = ConvInteger(x, w, z)")
    tensors, _ = shaped(text)
    cost = cost_of(text)
    assert tensors.tensors["y"].dtype is DType.INT32
    assert cost.macs == 4 * 36 * 27
    assert cost.flops == 2 * cost.macs + 3 * 64  # the zero point leaves every element of x
    assert cost.compute_dtype is DType.INT8


def test_quantized_convolution_has_the_type_of_its_output_zero_point() -> None:
    text = graph(QUANTIZED + ", int32[4] b", "y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)")
    tensors, _ = shaped(text)
    cost = cost_of(text)
    assert tensors.tensors["y"].shape == (1, 4, 6, 6)
    assert tensors.tensors["y"].dtype is DType.UINT8
    # zero point per element of x; requantization and bias per element of y
    assert cost.flops == 2 * cost.macs + 3 * 64 + 2 * 4 * 36
    assert cost.compute_dtype is DType.INT8


@pytest.mark.parametrize("op", ["com.microsoft.QLinearConv <channels_last = 1>",
                                "com.ms.internal.nhwc.QLinearConv"])  # fmt: skip
def test_channels_may_be_last_in_a_quantized_convolution(op: str) -> None:
    text = graph(
        QUANTIZED.replace("[1,3,8,8]", "[1,8,8,3]"), f"y = {op} (x, xs, xz, w, ws, wz, ys, yz)"
    )
    assert contrib(text) == (1, 6, 6, 4)
    assert cost_of(text, opsets=CONTRIB).macs == 4 * 36 * 27


# -- deformable, causal ----------------------------------------------------------------------


def test_deformable_convolution_interpolates_every_sample() -> None:
    inputs = "float[1,4,6,6] x, float[8,4,3,3] w, float[1,18,4,4] o, float[8] b, float[1,9,4,4] m"
    cost = cost_of(graph(inputs, "y = DeformConv(x, w, o, b, m)"))
    samples = 4 * 16 * 9
    assert cost.macs == 8 * 16 * 4 * 9
    # 4 products, 3 additions and the mask per sample; an addition per offset and for the bias
    assert cost.flops == 2 * cost.macs + samples * (7 + 1) + 18 * 16 + 8 * 16


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
def test_causal_convolution_keeps_the_last_positions(domain: str) -> None:
    text = (
        "agraph (float[2,6,10] x, float[6,1,4] w, float[6] b) => (y, s)"
        f' {{ y, s = {domain}CausalConvWithState <activation = "silu"> (x, w, b) }}'
    )
    shapes = shapes_of(text, opset=27, opsets=CONTRIB)
    cost = cost_of(text, opset=27, opsets=CONTRIB)
    assert (shapes["y"], shapes["s"]) == ((2, 6, 10), (2, 6, 3))
    assert cost.macs == 2 * 6 * 10 * 4
    assert cost.flops == 2 * cost.macs + 2 * (2 * 6 * 10)
    assert cost.transcendentals == 2 * 6 * 10


@pytest.mark.parametrize(
    ("attributes", "x", "y", "state"),
    [
        ("dilation = 2", "2,6,10", (2, 6, 10), (2, 6, 6)),
        ("channels_last = 1", "2,10,6", (2, 10, 6), (2, 3, 6)),
        ("state_window = 3", "2,6,10", (2, 6, 10), (3, 2, 6, 3)),
        ("channels_last = 1, input_channels = 6", "2,10,16", (2, 10, 6), (2, 3, 6)),
        ("channels_last = 1, state_channels_last = 0", "2,10,6", (2, 10, 6), (2, 6, 3)),
    ],
)
def test_causal_convolution_of_the_contrib_domain(
    attributes: str, x: str, y: tuple[int, ...], state: tuple[int, ...]
) -> None:
    text = (
        f"agraph (float[{x}] x, float[6,1,4] w) => (y, s)"
        f" {{ y, s = com.microsoft.CausalConvWithState <{attributes}> (x, w) }}"
    )
    shapes = shapes_of(text, opsets=CONTRIB)
    assert (shapes["y"], shapes["s"]) == (y, state)


# -- fused and channels-last forms -----------------------------------------------------------


def test_fused_convolution_adds_residual_and_activation() -> None:
    text = graph(
        "float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[1,4,6,6] z",
        'y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b, z)',
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.macs == 4 * 36 * 27
    assert cost.flops == 2 * cost.macs + 3 * 4 * 36
    assert cost.transcendentals == 0


def test_a_fused_sigmoid_is_transcendental() -> None:
    text = graph(
        "float[1,3,8,8] x, float[4,3,3,3] w",
        'y = com.microsoft.FusedConv <activation = "Sigmoid"> (x, w)',
    )
    assert cost_of(text, opsets=CONTRIB).transcendentals == 4 * 36


@pytest.mark.parametrize(
    ("op", "w"),
    [
        ("com.microsoft.NhwcConv", "4,3,3,2"),
        ("com.microsoft.NhwcFusedConv", "4,2,3,3"),
        ("com.ms.internal.nhwc.Conv", "4,2,3,3"),
    ],
)
def test_channels_last_convolutions_by_their_weight_layout(op: str, w: str) -> None:
    text = graph(f"float[1,8,9,2] x, float[{w}] w, float[4] b", f"y = {op} (x, w, b)")
    cost = cost_of(text, opsets=CONTRIB)
    assert contrib(text) == (1, 6, 7, 4)
    assert cost.macs == 4 * 42 * 2 * 9
    assert cost.flops == 2 * cost.macs + 4 * 42


def test_transposed_convolution_with_channels_last() -> None:
    text = graph(
        "float[1,5,5,6] x, float[6,2,3,3] w",
        "y = com.ms.internal.nhwc.ConvTranspose <strides = [2,2]> (x, w)",
    )
    assert contrib(text) == (1, 11, 11, 2)


# -- the blocked layout ----------------------------------------------------------------------


def test_blocked_convolution_takes_the_padded_filters() -> None:
    text = graph(
        "float[1,3,8,8] x, float[16,3,3,3] w, float[16] b, float[1,16,6,6] s",
        'y = com.microsoft.nchwc.Conv <activation = "Relu"> (x, w, b, s)',
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert contrib(text) == (1, 16, 6, 6)
    assert cost.macs == 16 * 36 * 27
    assert cost.flops == 2 * cost.macs + 3 * 16 * 36


@pytest.mark.parametrize(
    ("x", "attributes", "y"),
    [
        ("1,32,5,7", "", (1, 32, 5, 7)),
        ("1,5,7,32", "<channels_last = 1>", (1, 32, 5, 7)),
        ("1,24,5,7", "", (1, 32, 5, 7)),
    ],
)
def test_reordering_pads_channels_to_a_block(x: str, attributes: str, y: tuple[int, ...]) -> None:
    text = graph(f"float[{x}] x", f"y = com.microsoft.nchwc.ReorderInput {attributes} (x)")
    cost = cost_of(text, opsets=CONTRIB)
    assert contrib(text) == y
    assert cost.flops == 0


@pytest.mark.parametrize(
    ("attributes", "y"),
    [("channels = 24", (1, 24, 5, 7)), ("channels = 24, channels_last = 1", (1, 5, 7, 24))],
)
def test_reordering_back_drops_the_padding(attributes: str, y: tuple[int, ...]) -> None:
    text = graph("float[1,32,5,7] x", f"y = com.microsoft.nchwc.ReorderOutput <{attributes}> (x)")
    assert contrib(text) == y


def test_blocked_pooling_is_pooling() -> None:
    text = graph(
        "float[1,16,8,8] x",
        "y = com.microsoft.nchwc.MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)",
    )
    assert contrib(text) == (1, 16, 4, 4)
    assert cost_of(text, opsets=CONTRIB).flops == 16 * 16 * 3
    text = graph("float[1,16,8,8] x", "y = com.microsoft.nchwc.GlobalAveragePool(x)")
    assert contrib(text) == (1, 16, 1, 1)
    assert cost_of(text, opsets=CONTRIB).flops == 16 * 64
