"""Resize, Upsample and operators that sample at given positions."""

from __future__ import annotations

import pytest

from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1}


def by_scales(source: str, scales: str, attributes: str = "") -> str:
    return f"""g (float[{source}] x) => (float[a,b,c,d] y) {{
        s = Constant <value_floats = [{scales}]> ()  y = Resize {attributes} (x, "", s) }}"""


def by_sizes(source: str, sizes: str, attributes: str = "") -> str:
    return f"""g (float[{source}] x) => (float[a,b,c,d] y) {{
        n = Constant <value_ints = [{sizes}]> ()  y = Resize {attributes} (x, "", "", n) }}"""


def test_scales_are_taken_as_stored_and_rounding_of_runtimes_is_said() -> None:
    # 0.7 is stored as 0.69999998…: ⌊6.9999998⌋ = 6, and 7 once the product is rounded to float32
    graph, findings = shaped(by_scales("1,3,10,11", "1.0, 1.0, 0.7, 1.7"), opset=13)
    assert graph.tensors["y"].shape == (1, 3, 6, 18)
    assert any("float32 gives 7" in note for note in findings.assumptions)


def test_no_note_where_both_roundings_agree() -> None:
    _, findings = shaped(by_scales("1,3,10,11", "1.0, 1.0, 2.0, 0.5"), opset=13)
    assert findings.assumptions == ()


def test_empty_scales_count_as_absent() -> None:
    text = """g (float[1,3,4,6] x) => (float[a,b,c,d] y) {
        none = Constant <value = float[0] {}> ()  n = Constant <value_ints = [1,3,8,9]> ()
        y = Resize (x, none, none, n) }"""
    assert shapes_of(text, opset=11)["y"] == (1, 3, 8, 9)


def test_a_region_of_interest_is_left_out_of_the_size_as_runtimes_do() -> None:
    # text: ⌊10 · (0.75 − 0.25) · 1.6⌋ = 8; runtimes: ⌊10 · 1.6⌋ = 16
    text = """g (float[1,1,10,10] x) => (float[a,b,c,d] y) {
        r = Constant <value_floats = [0.0,0.0,0.25,0.25,1.0,1.0,0.75,0.75]> ()
        s = Constant <value_floats = [1.0,1.0,1.6,1.6]> ()
        y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">
            (x, r, s) }"""
    graph, findings = shaped(text, opset=13)
    assert graph.tensors["y"].shape == (1, 1, 16, 16)
    assert any("spec and runtimes disagree for roi" in note for note in findings.assumptions)


def test_resize_of_opset_10_has_scales_alone() -> None:
    text = """g (float[1,4,5,7] x) => (float[a,b,c,d] y) {
        s = Constant <value = float[4] {1, 1, 1.5, 1.5}> ()  y = Resize (x, s) }"""
    # ⌊5 · 1.5⌋ = 7 and ⌊7 · 1.5⌋ = 10
    assert shapes_of(text, opset=10)["y"] == (1, 4, 7, 10)


@pytest.mark.parametrize("opset", [9, 10])
def test_upsample_takes_scales_from_a_constant(opset: int) -> None:
    text = """g (float[1,4,5,7] x) => (float[a,b,c,d] y) {
        s = Constant <value = float[4] {1, 1, 1.5, 1.5}> ()  y = Upsample (x, s) }"""
    assert shapes_of(text, opset=opset)["y"] == (1, 4, 7, 10)


@pytest.mark.parametrize(
    ("attributes", "opset"),
    [("scales = [1.0, 1.0, 2.0, 3.0]", 7), ("height_scale = 2.0, width_scale = 3.0", 6)],
)
def test_upsample_took_scales_from_attributes(attributes: str, opset: int) -> None:
    text = f"g (float[1,4,5,7] x) => (float[a,b,c,d] y) {{ y = Upsample <{attributes}> (x) }}"
    assert shapes_of(text, opset=opset)["y"] == (1, 4, 10, 21)


def test_axes_choose_what_scales_refer_to() -> None:
    text = by_scales("1,1,2,4", "0.5, 2.0", "<axes = [3, 2]>")
    assert shapes_of(text)["y"] == (1, 1, 4, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("not_larger", (1, 1, 7, 14)), ("not_smaller", (1, 1, 8, 16)), ("stretch", (1, 1, 7, 16))],
)
def test_one_scale_keeps_the_aspect_ratio(policy: str, expected: tuple[int, ...]) -> None:
    # sizes 7, 16 for 2 × 4: ratios 3.5 and 4
    text = by_sizes("1,1,2,4", "7, 16", f'<axes = [2, 3], keep_aspect_ratio_policy = "{policy}">')
    assert shapes_of(text)["y"] == expected


@pytest.mark.parametrize(
    "node", ["Resize (x)", "Resize (x, '', s, n)", "Resize <axes = [1]> (x, '', s)"]
)
def test_resize_needs_either_scales_or_sizes_that_fit(node: str) -> None:
    inputs = node.replace("'", '"')
    text = f"""g (float[1,1,2,4] x) => (float[a,b,c,d] y) {{
        s = Constant <value_floats = [1.0,1.0,2.0,2.0]> ()
        n = Constant <value_ints = [1,1,4,8]> ()  y = {inputs} }}"""
    problem = problem_of(text)
    assert "scales" in problem
    assert "Resize" in problem


def test_sizes_from_shape_arithmetic_are_known() -> None:
    text = """g (float[1,3,H,V] x, float[1,3,P,Q] like) => (float[a,b,c,d] y) {
        n = Shape (like)  y = Resize (x, "", "", n) }"""
    assert shapes_of(text, H=4, V=4, P=13, Q=17)["y"] == (1, 3, 13, 17)


@pytest.mark.parametrize(
    ("mode", "per_element"),
    [("nearest", 0), ("linear", 2 * 2**2 - 1), ("cubic", 2 * 4**2 - 1)],
)
def test_interpolation_is_a_weighted_sum_of_the_neighbours(mode: str, per_element: int) -> None:
    cost = cost_of(by_sizes("1,3,4,6", "1,3,8,9", f'<mode = "{mode}">'))
    assert (cost.macs, cost.flops) == (0, 3 * 8 * 9 * per_element)


def test_only_axes_that_change_interpolate() -> None:
    cost = cost_of(by_sizes("1,3,4,6", "1,3,4,9", '<mode = "linear">'))
    assert cost.flops == 3 * 4 * 9 * (2 * 2 - 1)


def test_antialiasing_widens_the_filter_by_the_factor_of_shrinking() -> None:
    # 12 → 4: 2·12/4 = 6 points along each of two axes
    cost = cost_of(by_sizes("1,1,12,12", "1,1,4,4", '<mode = "linear", antialias = 1>'))
    assert cost.flops == 4 * 4 * (2 * 6 * 6 - 1)


def test_nearest_reads_no_more_than_it_writes() -> None:
    cost = cost_of(by_sizes("1,1,12,12", "1,1,4,4"))
    assert (cost.input_bytes, cost.output_bytes) == (4 * 4 * 4, 4 * 4 * 4)


@pytest.mark.parametrize(
    ("op_type", "mode", "taps"),
    [
        ("GridSample", "linear", 2), ("GridSample", "bilinear", 2), ("GridSample", "cubic", 4),
        ("com.microsoft.GridSample", "bicubic", 4),
    ],
)  # fmt: skip
def test_grid_sample_interpolates_at_every_position(op_type: str, mode: str, taps: int) -> None:
    # 2·3·6·7 outputs; 2·6·7·2 coordinates of 4 flops
    text = f"""g (float[2,3,4,5] x, float[2,6,7,2] p) => (float[a,b,c,d] y) {{
        y = {op_type} <mode = "{mode}"> (x, p) }}"""
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 6, 7)
    expected = 2 * 3 * 6 * 7 * (2 * taps**2 - 1) + 2 * 6 * 7 * 2 * 4
    assert cost_of(text, opsets=CONTRIB).flops == expected


def test_grid_sample_of_a_volume() -> None:
    text = "g (float[2,3,4,5,6] x, float[2,7,8,9,3] p) => (float y) { y = GridSample (x, p) }"
    assert shapes_of(text)["y"] == (2, 3, 7, 8, 9)


def test_grid_sample_refuses_a_grid_of_another_rank() -> None:
    text = "g (float[2,3,4,5] x, float[2,6,7,3] p) => (float y) { y = GridSample (x, p) }"
    assert "grid" in problem_of(text)


@pytest.mark.parametrize(
    ("theta", "size", "expected"),
    [("2,2,3", "2,3,5,6", (2, 5, 6, 2)), ("2,3,4", "2,3,4,5,6", (2, 4, 5, 6, 3))],
)
def test_affine_grid_has_one_coordinate_per_axis(
    theta: str, size: str, expected: tuple[int, ...]
) -> None:
    text = f"""g (float[{theta}] t) => (float y) {{
        s = Constant <value_ints = [{size}]> ()  y = AffineGrid (t, s) }}"""
    assert shapes_of(text)["y"] == expected


def test_affine_grid_multiplies_and_adds_once_per_axis() -> None:
    # 2·5·6 points of 2 coordinates, each 2 products and 2 additions
    text = """g (float[2,2,3] t) => (float y) {
        s = Constant <value_ints = [2,3,5,6]> ()  y = AffineGrid (t, s) }"""
    assert cost_of(text).flops == 2 * 5 * 6 * 2 * 4


def test_crop_and_resize_gives_one_crop_per_region() -> None:
    text = """g (float[2,3,10,12] x, float[5,4] r, int32[5] b) => (float y) {
        c = Constant <value = int32[2] {4, 6}> ()
        y = com.microsoft.CropAndResize (x, r, b, c) }"""
    assert shapes_of(text, opsets=CONTRIB)["y"] == (5, 3, 4, 6)
    expected = 5 * 3 * 4 * 6 * 7 + 5 * 2 * (4 + 6)
    assert cost_of(text, opsets=CONTRIB).flops == expected


def test_the_blocked_upsample_of_runtimes_has_integer_scales() -> None:
    text = """g (float[1,16,4,5] x) => (float y) {
        y = com.microsoft.nchwc.Upsample <scales = [1, 1, 2, 3]> (x) }"""
    assert shapes_of(text, opsets={"com.microsoft.nchwc": 1})["y"] == (1, 16, 8, 15)


def test_the_size_of_an_encoded_image_is_said_to_be_unknown() -> None:
    _, findings = shaped("g (uint8[100] x) => (uint8[h,w,3] y) { y = ImageDecoder (x) }")
    assert "encoded image" in findings.unresolved[0].reason
