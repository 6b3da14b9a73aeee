from __future__ import annotations

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1, "com.ms.internal.nhwc": 22}


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


def pool(op: str, x: str, attributes: str) -> str:
    return graph(f"float[{x}] x", f"y = {op} <{attributes}> (x)")


@pytest.mark.parametrize("opset", [6, 8, 10, 12, 22])
def test_pads_may_be_absent(opset: int) -> None:
    # ⌊(65 − 2) / 2⌋ + 1 = 32
    text = pool("MaxPool", "2,8,65", "kernel_shape = [2], strides = [2]")
    assert shapes_of(text, opset=opset)["y"] == (2, 8, 32)
    assert cost_of(text, opset=opset).flops == 2 * 8 * 32 * (2 - 1)


@pytest.mark.parametrize(
    ("x", "attributes", "y"),
    [
        # ⌈(12 − 1) / 2⌉ + 1 = 7, but window 6 would begin at 12, past the input
        ("1,1,12", "kernel_shape = [1], strides = [2]", (1, 1, 6)),
        # ⌈(2 + 2 − 3) / 3⌉ + 1 = 2, but window 1 would begin at 3, past 2 + 1
        ("1,1,2", "kernel_shape = [3], strides = [3], pads = [1,1]", (1, 1, 1)),
        # ⌈(9 + 4 − 4) / 4⌉ + 1 = 4, but window 3 would begin at 12, past 9 + 2
        ("1,1,9", "kernel_shape = [4], strides = [4], pads = [2,2]", (1, 1, 3)),
        # ⌈(6 − 3) / 2⌉ + 1 = 3: the last window begins inside
        ("1,1,6", "kernel_shape = [3], strides = [2]", (1, 1, 3)),
        # ⌈(7 − 1280) / 1280⌉ + 1 = 1: the only window covers the input and more
        ("1,1,7", "kernel_shape = [1280], strides = [1280]", (1, 1, 1)),
        # dilation 2 makes the window 5: ⌈(8 − 5) / 2⌉ + 1 = 3
        ("1,1,8", "kernel_shape = [3], strides = [2], dilations = [2]", (1, 1, 3)),
    ],
)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_ceil_mode_has_no_window_that_begins_in_the_right_padding(
    op: str, x: str, attributes: str, y: tuple[int, ...]
) -> None:
    assert shapes_of(pool(op, x, f"ceil_mode = 1, {attributes}"), opset=22)["y"] == y


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_same_padding_divides_by_the_stride(op: str) -> None:
    text = pool(op, "1,3,7,5", 'kernel_shape = [3,3], strides = [2,2], auto_pad = "SAME_LOWER"')
    assert shapes_of(text)["y"] == (1, 3, 4, 3)


def test_indices_are_int64_of_the_same_shape() -> None:
    text = "agraph (float[1,3,8,8] x) => (y, i) { y, i = MaxPool <kernel_shape = [2,2]> (x) }"
    tensors, _ = shaped(text)
    assert tensors.tensors["i"].shape == (1, 3, 7, 7)
    assert tensors.tensors["i"].dtype is DType.INT64


def test_a_mean_is_one_operation_per_window_element() -> None:
    text = pool("AveragePool", "1,3,8,8", "kernel_shape = [2,2], strides = [2,2]")
    assert cost_of(text).flops == 3 * 16 * 4


@pytest.mark.parametrize(
    ("p", "each", "transcendentals"), [(1, 2 * 4 - 1, 0), (2, 2 * 4, 1), (3, 3 * 4, 4 + 1)]
)
def test_a_norm_of_a_window_by_its_exponent(p: int, each: int, transcendentals: int) -> None:
    cost = cost_of(pool("LpPool", "1,3,8,8", f"kernel_shape = [2,2], strides = [2,2], p = {p}"))
    assert cost.flops == 3 * 16 * each
    assert cost.transcendentals == 3 * 16 * transcendentals


@pytest.mark.parametrize(
    ("op", "each"),
    [("GlobalAveragePool", 64), ("GlobalMaxPool", 63), ("GlobalLpPool", 2 * 64)],
)
def test_global_pooling_leaves_one_value_per_channel(op: str, each: int) -> None:
    text = graph("float[2,3,8,8] x", f"y = {op}(x)")
    assert shapes_of(text)["y"] == (2, 3, 1, 1)
    assert cost_of(text).flops == 6 * each


@pytest.mark.parametrize(
    ("attributes", "size"),
    # (1 − 2) / 2 rounds toward zero to 0, so there is 1 window; (1 − 3) / 2 = −1: there is none
    [("kernel_shape = [2], strides = [2]", 1), ("kernel_shape = [3], strides = [2]", 0)],
)
def test_a_window_larger_than_the_input_goes_by_the_runtimes_and_says_so(
    attributes: str, size: int
) -> None:
    tensors, findings = shaped(pool("MaxPool", "1,1,1", attributes))
    assert tensors.tensors["y"].shape == (1, 1, size)
    assert "larger than the padded input" in findings.assumptions[0]


def test_a_window_much_larger_than_the_input_is_a_problem() -> None:
    text = pool("MaxPool", "1,1,1", "kernel_shape = [9], strides = [2]")
    assert "larger than the padded input" in problem_of(text)


def test_same_padding_of_a_dilated_window_says_where_runtimes_differ() -> None:
    attributes = 'kernel_shape = [3], dilations = [2], auto_pad = "SAME_UPPER"'
    tensors, findings = shaped(pool("MaxPool", "1,1,8", attributes))
    assert tensors.tensors["y"].shape == (1, 1, 8)
    assert "undilated" in findings.assumptions[0]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_missing_kernel_is_a_problem(op: str) -> None:
    assert "kernel_shape" in problem_of(pool(op, "1,3,8,8", "strides = [2,2]"))


def test_a_kernel_of_another_rank_is_a_problem() -> None:
    assert "axes" in problem_of(pool("MaxPool", "1,3,8,8", "kernel_shape = [2]"))


# -- unpooling, regions ----------------------------------------------------------------------


def test_unpooling_inverts_the_window() -> None:
    text = graph(
        "float[1,3,4,4] x, int64[1,3,4,4] i",
        "y = MaxUnpool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,0,0]> (x, i)",
    )
    # 2·(4 − 1) + 3 − 1 = 8
    assert shapes_of(text)["y"] == (1, 3, 8, 8)
    assert cost_of(text).flops == 0


def test_unpooling_takes_the_size_it_is_given() -> None:
    text = graph(
        "float[1,3,4,4] x, int64[1,3,4,4] i",
        "s = Constant <value_ints = [1,3,9,10]> ()"
        " y = MaxUnpool <kernel_shape = [2,2], strides = [2,2]> (x, i, s)",
    )
    assert shapes_of(text)["y"] == (1, 3, 9, 10)


def test_regions_are_pooled_to_a_fixed_size() -> None:
    text = graph("float[2,3,10,12] x, float[7,5] r", "y = MaxRoiPool <pooled_shape = [2,3]> (x, r)")
    cost = cost_of(text)
    assert shapes_of(text)["y"] == (7, 3, 2, 3)
    # at most the whole map for each region: 12 · 15 elements in bins that share edges
    assert int(cost.flops or 0) == 7 * 3 * ((10 + 2) * (12 + 3) - 2 * 3)


@pytest.mark.parametrize(("mode", "each"), [("avg", 7 * 4 + 4), ("max", 7 * 4 + 3)])
def test_aligned_regions_interpolate_their_samples(mode: str, each: int) -> None:
    text = graph(
        "float[2,3,10,12] x, float[7,4] r, int64[7] i",
        f'y = RoiAlign <output_height = 5, output_width = 6, sampling_ratio = 2, mode = "{mode}">'
        " (x, r, i)",
    )
    assert shapes_of(text)["y"] == (7, 3, 5, 6)
    assert cost_of(text).flops == 7 * 3 * 30 * each


def test_adaptive_samples_are_charged_for_the_whole_map() -> None:
    text = graph(
        "float[2,3,10,12] x, float[7,4] r, int64[7] i",
        "y = RoiAlign <output_height = 5, output_width = 5> (x, r, i)",
    )
    # ⌈10 / 5⌉ · ⌈12 / 5⌉ = 6 samples
    assert int(cost_of(text).flops or 0) == 7 * 3 * 25 * 8 * 6


# -- other layouts and types -----------------------------------------------------------------


@pytest.mark.parametrize("op", ["com.microsoft.NhwcMaxPool", "com.ms.internal.nhwc.MaxPool"])
def test_channels_may_be_last(op: str) -> None:
    kind = "uint8" if "Nhwc" in op else "float"
    text = graph(f"{kind}[1,8,9,3] x", f"y = {op} <kernel_shape = [2,2]> (x)")
    assert shapes_of(text, opsets=CONTRIB)["y"] == (1, 7, 8, 3)


@pytest.mark.parametrize(
    ("last", "x", "y"), [(0, "1,3,8,8", (1, 3, 4, 4)), (1, "1,8,8,3", (1, 4, 4, 3))]
)
def test_a_quantized_mean_is_dequantized_and_quantized(
    last: int, x: str, y: tuple[int, ...]
) -> None:
    text = graph(
        f"uint8[{x}] x, float s, uint8 z, float t, uint8 u",
        "y = com.microsoft.QLinearAveragePool <kernel_shape = [2,2], strides = [2,2],"
        f" channels_last = {last}> (x, s, z, t, u)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == y
    assert cost_of(text, opsets=CONTRIB).flops == 192 + 48 * 4 + 48


@pytest.mark.parametrize(
    ("last", "x", "y"), [(0, "1,3,8,8", (1, 3, 1, 1)), (1, "1,8,8,3", (1, 1, 1, 3))]
)
def test_a_quantized_global_mean(last: int, x: str, y: tuple[int, ...]) -> None:
    text = graph(
        f"uint8[{x}] x, float s, uint8 z, float t, uint8 u",
        f"y = com.microsoft.QLinearGlobalAveragePool <channels_last = {last}> (x, s, z, t, u)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == y
    assert cost_of(text, opsets=CONTRIB).flops == 2 * 192 + 3


def test_a_masked_maximum_is_sized_as_a_maximum() -> None:
    text = graph(
        "float[1,3,8,8] x, int32[1,3,8,8] m",
        "y = com.microsoft.MaxpoolWithMask <kernel_shape = [2,2], strides = [2,2]> (x, m)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (1, 3, 4, 4)
