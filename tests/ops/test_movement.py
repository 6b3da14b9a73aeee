"""Operators that copy elements to other places."""

from __future__ import annotations

import pytest

from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1}


def test_transpose_reverses_the_axes_unless_told_otherwise() -> None:
    text = """g (float[2,3,4] x) => (float y) {
        r = Transpose (x)  y = Transpose <perm = [1, 0, 2]> (x) }"""
    shapes = shapes_of(text)
    assert (shapes["r"], shapes["y"]) == ((4, 3, 2), (3, 2, 4))


def test_transpose_reads_and_writes_every_byte_once() -> None:
    cost = cost_of("g (float[2,3] x) => (float y) { y = Transpose (x) }")
    assert (cost.flops, cost.input_bytes, cost.output_bytes) == (0, 2 * 3 * 4, 2 * 3 * 4)


def test_transpose_refuses_a_permutation_of_another_rank() -> None:
    text = "g (float[2,3] x) => (float y) { y = Transpose <perm = [0, 2, 1]> (x) }"
    assert "perm" in problem_of(text)


def test_concat_adds_up_along_its_axis_and_feeds_a_convolution() -> None:
    # 3 + 5 = 8 channels; 1×1 convolution: 2·4·6·10 outputs of 8 products each
    text = """g (float[N,3,H,V] a, float[N,5,H,V] b, float[4,8,1,1] w) => (float y) {
        c = Concat <axis = 1> (a, b)  y = Conv (c, w) }"""
    assert shapes_of(text, N=2, H=6, V=10)["y"] == (2, 4, 6, 10)
    assert cost_of(text, N=2, H=6, V=10).macs == 2 * 4 * 6 * 10 * 8


def test_concat_had_a_default_axis_of_one_before_opset_4() -> None:
    text = "g (float[2,3] a, float[2,5] b) => (float y) { y = Concat (a, b) }"
    assert shapes_of(text, opset=3)["y"] == (2, 8)


@pytest.mark.parametrize("other", ["2,3", "3,4,1"])
def test_concat_refuses_inputs_that_differ_elsewhere(other: str) -> None:
    text = f"g (float[3,4] a, float[{other}] b) => (float y) {{ y = Concat <axis = 1> (a, b) }}"
    assert "differ" in problem_of(text)


def test_negative_axes_count_from_the_back() -> None:
    # [2,3,4,5] twice along axis 1 is [2,6,4,5]; 2 of the 4 rows; 2·6 by 2·5
    text = """g (float[2,3,4,5] x) => (float y) {
        c = Concat <axis = -3> (x, x)  i = Constant <value_ints = [0, 3]> ()
        r = Gather <axis = -2> (c, i)  f = Flatten <axis = -2> (r)
        last = Constant <value_ints = [-1]> ()  y = Unsqueeze (f, last) }"""
    shapes = shapes_of(text)
    assert (shapes["c"], shapes["r"], shapes["y"]) == ((2, 6, 4, 5), (2, 6, 2, 5), (12, 10, 1))


@pytest.mark.parametrize(
    ("target", "expected"),
    [("2,3,4", (2, 3, 4)), ("1", (3, 1)), ("3,4", (3, 4)), ("1,1,1", (1, 3, 1))],
)
def test_expand_broadcasts_both_ways(target: str, expected: tuple[int, ...]) -> None:
    text = f"""g (float[3,1] x) => (float y) {{
        s = Constant <value_ints = [{target}]> ()  y = Expand (x, s) }}"""
    assert shapes_of(text)["y"] == expected


def test_expand_reads_its_input_once_however_often_it_repeats_it() -> None:
    text = """g (float[3,1] x) => (float y) {
        s = Constant <value_ints = [3,1000]> ()  y = Expand (x, s) }"""
    cost = cost_of(text)
    assert (cost.input_bytes, cost.output_bytes) == (3 * 4, 3 * 1000 * 4)


def test_expand_to_a_shape_that_does_not_broadcast_is_a_problem() -> None:
    text = """g (float[3,2] x) => (float y) {
        s = Constant <value_ints = [3,4]> ()  y = Expand (x, s) }"""
    assert "broadcast" in problem_of(text)


def test_tile_multiplies_every_size() -> None:
    text = """g (float[2,3] x) => (float y) {
        r = Constant <value_ints = [3, 2]> ()  y = Tile (x, r) }"""
    assert shapes_of(text)["y"] == (6, 6)
    assert cost_of(text).input_bytes == 2 * 3 * 4


def test_tile_repeated_one_axis_before_opset_6() -> None:
    text = """g (float[2,3] x) => (float y) {
        n = Constant <value = float {4}> ()  a = Constant <value = float {1}> ()
        y = Tile (x, n, a) }"""
    assert shapes_of(text, opset=5)["y"] == (2, 12)


def test_depth_to_space_and_back() -> None:
    text = """g (float[1,8,2,3] x) => (float y) {
        d = DepthToSpace <blocksize = 2> (x)  y = SpaceToDepth <blocksize = 2> (d) }"""
    shapes = shapes_of(text)
    assert (shapes["d"], shapes["y"]) == ((1, 8 // 4, 2 * 2, 3 * 2), (1, 8, 2, 3))


def test_depth_to_space_needs_channels_that_divide() -> None:
    text = "g (float[1,6,2,3] x) => (float y) { y = DepthToSpace <blocksize = 2> (x) }"
    assert "multiple of 4" in problem_of(text)


def test_col2im_adds_every_column_element_to_its_pixel() -> None:
    # [1, 5, 5] columns of 1×5 blocks: 5/5 = 1 channel of a 5×5 image, 25 additions
    text = """g (float[1,5,5] x) => (float y) {
        i = Constant <value_ints = [5, 5]> ()  b = Constant <value_ints = [1, 5]> ()
        y = Col2Im (x, i, b) }"""
    assert shapes_of(text)["y"] == (1, 1, 5, 5)
    assert cost_of(text).flops == 25


def test_unfold_tensor_appends_an_axis_of_its_window() -> None:
    # ⌊(8 − 3) / 2⌋ + 1 = 3 windows
    text = """g (float[2,8,5] x) => (float y) {
        y = com.microsoft.UnfoldTensor <dim = 1, size = 3, step = 2> (x) }"""
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 5, 3)


@pytest.mark.parametrize("op_type", ["Trilu", "com.microsoft.Trilu"])
def test_trilu_keeps_the_shape_and_does_no_arithmetic(op_type: str) -> None:
    text = f"g (float[2,3,4] x) => (float y) {{ y = {op_type} <upper = 0> (x) }}"
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 4)
    assert cost_of(text, opsets=CONTRIB).flops == 0


def test_reverse_sequence_keeps_the_shape() -> None:
    text = """g (float[4,3] x, int64[3] n) => (float y) {
        y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, n) }"""
    assert shapes_of(text)["y"] == (4, 3)


def test_shape_arithmetic_passes_through_movement() -> None:
    # shape [2,3,4] → [4,3,2] by index → twice → [4,3,2,4,3,2] → as 2 rows → transposed
    text = """g (float[2,3,4] x) => (float y) {
        s = Shape (x)  i = Constant <value_ints = [2,1,0]> ()  r = Gather (s, i)
        n = Constant <value_ints = [2]> ()  t = Tile (r, n)
        to = Constant <value_ints = [2,3]> ()  m = Reshape (t, to)  tr = Transpose (m)
        e = Constant <value_ints = [2,3,2]> ()  ex = Expand (tr, e)
        flat = Constant <value_ints = [-1]> ()  f = Reshape (tr, flat)  y = ConstantOfShape (f) }"""
    graph, _ = shaped(text)
    expanded = graph.tensors["ex"].value
    assert expanded is not None
    assert expanded.tolist() == [[[4, 4], [3, 3], [2, 2]]] * 2
    assert graph.tensors["y"].shape == (4, 4, 3, 3, 2, 2)
