from __future__ import annotations

import pytest

from tests.builders import cost_of, problem_of, shapes_of


def graph(inputs: str, body: str, constants: str = "") -> str:
    declared = f"<{constants}>" if constants else ""
    return f"agraph ({inputs}) => (y) {declared} {{ {body} }}"


@pytest.mark.parametrize(
    ("opset", "x", "call", "shape"),
    [
        (17, "[2,16,1]", "DFT(x)", (2, 16, 2)),
        (17, "[2,16,1]", "DFT <onesided = 1> (x)", (2, 9, 2)),
        (17, "[2,16,5,2]", "DFT <axis = 2> (x, n)", (2, 16, 8, 2)),
        (20, "[2,16,5,2]", "DFT(x)", (2, 16, 5, 2)),
        (20, "[2,16,5,1]", 'DFT <onesided = 1> (x, "", a)', (2, 9, 5, 2)),
        (20, "[2,16,5,2]", "DFT(x, n, a)", (2, 8, 5, 2)),
        (20, "[2,9,2]", "DFT <onesided = 1, inverse = 1> (x)", (2, 16, 1)),
        (20, "[2,9,2]", "DFT <onesided = 1, inverse = 1> (x, n)", (2, 8, 1)),
    ],
)
def test_a_transform_sizes_its_axis(opset: int, x: str, call: str, shape: tuple[int, ...]) -> None:
    text = graph(f"float{x} x", f"y = {call}", "int64 n = {8}, int64 a = {1}")
    assert shapes_of(text, opset=opset)["y"] == shape


def test_a_fast_transform_costs_five_n_log_n() -> None:
    # 2 · 5 transforms of 16 = 2⁴
    text = graph("float[2,16,5,2] x", 'y = DFT(x, "", a)', "int64 a = {1}")
    assert cost_of(text, opset=20).flops == 10 * 5 * 16 * 4


def test_a_real_transform_costs_half() -> None:
    text = graph("float[2,16,1] x", "y = DFT <onesided = 1> (x)")
    assert cost_of(text, opset=20).flops == 2 * 5 * 16 * 4 // 2


def test_lengths_between_powers_of_two_round_the_logarithm_up() -> None:
    text = graph("float[1,10,2] x", "y = DFT(x)")
    assert cost_of(text, opset=20).flops == 5 * 10 * 4


def test_an_inverse_divides_every_number() -> None:
    text = graph("float[1,8,2] x", "y = DFT <inverse = 1> (x)")
    assert cost_of(text, opset=20).flops == 5 * 8 * 3 + 16


def test_the_last_axis_cannot_be_transformed() -> None:
    text = graph("float[1,8,2] x", 'y = DFT(x, "", a)', "int64 a = {-1}")
    assert "last axis" in problem_of(text, opset=20)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("STFT(x, s, w)", (2, 15, 9, 2)),
        ('STFT(x, s, "", n)', (2, 15, 9, 2)),
        ("STFT <onesided = 0> (x, s, w, n)", (2, 15, 16, 2)),
    ],
)
def test_frames_step_over_the_signal(call: str, shape: tuple[int, ...]) -> None:
    # (128 − 16) / 8 + 1 = 15 frames
    text = graph("float[2,128,1] x, float[16] w", f"y = {call}", "int64 s = {8}, int64 n = {16}")
    assert shapes_of(text, opset=17)["y"] == shape


def test_every_frame_is_windowed_and_transformed() -> None:
    text = graph("float[2,128,1] x, float[16] w", "y = STFT(x, s, w)", "int64 s = {8}")
    assert cost_of(text, opset=17).flops == 2 * 15 * (16 + 5 * 16 * 4 // 2)


def test_onnx_runtimes_real_transforms() -> None:
    text = graph(
        "float[3,4,16] x",
        "y = com.microsoft.Rfft <normalized = 0, onesided = 1, signal_ndim = 1> (x) "
        "z = com.microsoft.Irfft <normalized = 0, onesided = 1, signal_ndim = 1> (y)",
    )
    opsets = {"com.microsoft": 1}
    found = shapes_of(text, opsets=opsets)
    assert (found["y"], found["z"]) == ((3, 4, 9, 2), (3, 4, 16))
    assert cost_of(text, 0, opsets=opsets).flops == 12 * 5 * 16 * 4 // 2


@pytest.mark.parametrize(("size", "flops"), [(1, 3), (2, 15), (3, 48)])
def test_inversion_by_factors(size: int, flops: int) -> None:
    # (4·n³ − 3·n² + 5·n) / 2
    text = graph(f"float[7,{size},{size}] x", "y = com.microsoft.Inverse(x)")
    assert cost_of(text, opsets={"com.microsoft": 1}).flops == 7 * flops
