"""Split, Slice, Crop, Pad and CenterCropPad."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxroof.bounded import interval, lower, upper
from onnxroof.ops.slicing import sliced_size
from tests.builders import cost_of, problem_of, shaped, shapes_of

SMALLEST, LARGEST = -(2**63), 2**63 - 1


def slicing(source: str, **bounds: list[int]) -> str:
    constants = " ".join(
        f"{name} = Constant <value_ints = {values}> ()" for name, values in bounds.items()
    )
    return (
        f"g (float[{source}] x) => (float y) {{ {constants} y = Slice (x, {', '.join(bounds)}) }}"
    )


@pytest.mark.parametrize(
    ("start", "end", "step", "kept"),
    [
        (-1, SMALLEST, -2, 5),  # 9 7 5 3 1
        (0, LARGEST, 1, 10),
        (0, LARGEST, 3, 4),  # 0 3 6 9
        (-3, LARGEST, 1, 3),
        (2, -2, 1, 6),  # 2 … 7
        (8, 2, -1, 6),  # 8 … 3
        (100, 3, -1, 6),  # from 9 down to 4
        (-100, SMALLEST, -1, 1),  # starts clamped to 0
        (5, 5, 1, 0),
        (7, 2, 1, 0),
    ],
)
def test_slice_counts_from_the_end_and_clamps(start: int, end: int, step: int, kept: int) -> None:
    text = slicing("1,3,10", s=[start], e=[end], a=[2], t=[step])
    assert shapes_of(text)["y"] == (1, 3, kept)


def test_a_backward_slice_to_the_largest_integer_goes_on_to_the_first_element() -> None:
    # what runtimes do; by the text the end is clamped to the last element and nothing is kept
    graph, findings = shaped(slicing("7", s=[-1], e=[LARGEST], a=[0], t=[-3]))
    assert graph.tensors["y"].shape == (3,)  # 6 3 0
    assert any("spec and runtimes disagree" in note for note in findings.assumptions)


def test_slice_of_no_given_axes_takes_the_leading_ones() -> None:
    assert shapes_of(slicing("4,5,6", s=[1, 1], e=[3, 9]))["y"] == (2, 4, 6)


def test_slice_refuses_a_step_of_zero_and_an_axis_out_of_range() -> None:
    assert "steps" in problem_of(slicing("4", s=[0], e=[2], a=[0], t=[0]))
    assert "out of range" in problem_of(slicing("4", s=[0], e=[2], a=[3]))


def test_slice_reads_the_part_it_keeps() -> None:
    cost = cost_of(slicing("1000,64", s=[-1], e=[LARGEST], a=[0]))
    assert (cost.input_bytes, cost.output_bytes) == (64 * 4, 64 * 4)


def test_slice_by_bounds_computed_at_run_time_keeps_at_most_everything() -> None:
    text = """g (float[4,6] x, int64[1] e) => (float y) {
        s = Constant <value_ints = [0]> ()  a = Constant <value_ints = [1]> ()
        y = Slice (x, s, e, a) }"""
    graph, findings = shaped(text)
    rows, columns = graph.tensors["y"].dims
    assert (rows, lower(columns), upper(columns)) == (4, 0, 6)
    assert findings.data_dependent == ("y.1",)


def test_the_size_of_a_data_dependent_slice_can_be_bound() -> None:
    text = "g (float[6] x, int64[1] s, int64[1] e) => (float y) { y = Slice (x, s, e) }"
    assert shapes_of(text, **{"y.0": 2})["y"] == (2,)


@given(
    low=st.integers(0, 6), extra=st.integers(0, 5), start=st.integers(-9, 9),
    end=st.integers(-9, 9), spread=st.integers(0, 4), step=st.sampled_from([-3, -2, -1, 1, 2, 3]),
)  # fmt: skip
def test_bounds_of_a_slice_hold_for_every_size_and_bound_inside(
    low: int, extra: int, start: int, end: int, spread: int, step: int
) -> None:
    bounds = sliced_size(
        interval(low, low + extra),
        interval(start, start + spread),
        interval(end, end + spread),
        step,
    )
    counts = [
        sliced_size(size, first, last, step)
        for size, first, last in itertools.product(
            range(low, low + extra + 1),
            range(start, start + spread + 1),
            range(end, end + spread + 1),
        )
    ]
    assert (lower(bounds), upper(bounds)) == (min(counts), max(counts))


def test_attributes_of_opset_9_are_honoured() -> None:
    # [1,3,9,8] → 8 rows → +1 above, +2 right → [1,3,9,10] → an axis more, two less → [3,9,10]
    text = """g (float[1,3,9,8] x) => (float a, float b) {
        s = Slice <starts = [1], ends = [100000], axes = [2]> (x)
        p = Pad <pads = [0,0,1,0,0,0,0,2]> (s)
        u = Unsqueeze <axes = [0]> (p)  q = Squeeze <axes = [0,1]> (u)
        r = ReduceSum <axes = [1], keepdims = 0> (q)
        a, b = Split <axis = 1, split = [4,6]> (r) }"""
    shapes = shapes_of(text, opset=9)
    assert (shapes["s"], shapes["p"], shapes["q"]) == ((1, 3, 8, 8), (1, 3, 9, 10), (3, 9, 10))
    assert (shapes["a"], shapes["b"]) == ((3, 4), (3, 6))


def test_split_takes_its_sizes_from_an_input() -> None:
    text = """g (float[1,49,8,192] x) => (float a, float b, float c) {
        n = Constant <value_ints = [32,32,128]> ()  a, b, c = Split <axis = 3> (x, n) }"""
    shapes = shapes_of(text, opset=15)
    assert [shapes[name] for name in "abc"] == [(1, 49, 8, 32), (1, 49, 8, 32), (1, 49, 8, 128)]


@pytest.mark.parametrize(
    ("size", "count", "parts"),
    [(6, 3, [2, 2, 2]), (7, 4, [2, 2, 2, 1]), (7, 3, [3, 3, 1]), (6, 4, [2, 2, 2, 0])],
)
def test_split_by_number_leaves_the_rest_to_the_last(
    size: int, count: int, parts: list[int]
) -> None:
    names = "abcd"[:count]
    text = f"""g (float[{size},6] x) => (float a) {{
        {", ".join(names)} = Split <axis = 0, num_outputs = {count}> (x) }}"""
    shapes = shapes_of(text, opset=18)
    assert [shapes[name] for name in names] == [(part, 6) for part in parts]


def test_split_of_five_into_four_parts_is_impossible() -> None:
    # ⌈5 / 4⌉ = 2; three parts of 2 leave −1
    text = """g (float[5,6] x) => (float a) {
        a, b, c, d = Split <axis = 0, num_outputs = 4> (x) }"""
    assert "Split" in problem_of(text, opset=18)
    assert "-1" in problem_of(text, opset=18)


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        ("a, b = Split <axis = 0> (x)", 13),
        ("a, b = Split <axis = 0, split = [2, 2]> (x)", 11),
        ("a, b = Split <axis = 0, split = [6, -1]> (x)", 11),
    ],
)
def test_split_that_cannot_divide_names_the_operator(node: str, opset: int) -> None:
    text = f"g (float[5,6] x) => (float a, float b) {{ {node} }}"
    assert "Split" in problem_of(text, opset=opset)


def test_split_by_sizes_computed_at_run_time_has_parts_of_at_most_the_whole() -> None:
    text = "g (float[6] x, int64[2] n) => (float[p] a, float[q] b) { a, b = Split (x, n) }"
    graph, findings = shaped(text)
    assert [graph.tensors[name].dims for name in "ab"] == [(6,), (6,)]
    assert findings.data_dependent == ("a.0", "b.0")


def test_split_reads_and_writes_every_byte_once() -> None:
    cost = cost_of("g (float[6,4] x) => (float a, float b) { a, b = Split <num_outputs = 2> (x) }")
    assert (cost.input_bytes, cost.output_bytes) == (6 * 4 * 4, 6 * 4 * 4)


def test_split_knows_the_values_of_its_parts() -> None:
    text = """g (float[2,3,4,5] x) => (float y) {
        s = Shape (x)  n = Constant <value_ints = [3, 1]> ()  a, b = Split (s, n)
        y = ConstantOfShape (a) }"""
    assert shapes_of(text)["y"] == (2, 3, 4)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_adds_at_both_ends_and_cuts_where_negative(mode: str) -> None:
    # 4 + 1 + 0 and 5 − 2 + 1
    text = f"""g (float[4,5] x) => (float y) {{
        p = Constant <value_ints = [1,-2,0,1]> ()  y = Pad <mode = "{mode}"> (x, p) }}"""
    assert shapes_of(text)["y"] == (5, 4)


def test_pad_of_chosen_axes() -> None:
    text = """g (float[4,5,6] x) => (float y) {
        p = Constant <value_ints = [1,2,3,4]> ()  a = Constant <value_ints = [-1,0]> ()
        y = Pad (x, p, "", a) }"""
    # axis 2: 1 before, 3 after; axis 0: 2 before, 4 after
    assert shapes_of(text)["y"] == (4 + 2 + 4, 5, 6 + 1 + 3)


@pytest.mark.parametrize(("name", "opset"), [("paddings", 1), ("pads", 6)])
def test_pad_took_attributes_before_opset_11(name: str, opset: int) -> None:
    text = f"g (float[4,5] x) => (float y) {{ y = Pad <{name} = [0,1,2,3]> (x) }}"
    assert shapes_of(text, opset=opset)["y"] == (4 + 0 + 2, 5 + 1 + 3)


def test_pads_that_cut_too_much_or_do_not_fit_are_problems() -> None:
    for pads in ("-3,-3", "1,1,1,1"):
        text = f"""g (float[4] x) => (float y) {{
            p = Constant <value_ints = [{pads}]> ()  y = Pad (x, p) }}"""
        assert "pads" in problem_of(text)


def test_pad_of_a_shape_vector_keeps_its_value() -> None:
    text = """g (float[3,4] x) => (float y) {
        s = Shape (x)  p = Constant <value_ints = [2,0]> ()
        c = Constant <value = int64 {7}> ()  v = Pad (s, p, c)  y = ConstantOfShape (v) }"""
    assert shapes_of(text)["y"] == (7, 7, 3, 4)


def test_pad_of_the_contrib_domain_takes_a_row_of_pads() -> None:
    text = """g (float[2,3] x) => (float y) {
        p = Constant <value = int64[1,4] {0,1,2,3}> ()  y = com.microsoft.Pad (x, p) }"""
    assert shapes_of(text, opsets={"com.microsoft": 1})["y"] == (4, 7)


@pytest.mark.parametrize(
    ("target", "axes", "expected"),
    [("10,9,8", "", (10, 9, 8)), ("7", "<axes = [-1]>", (20, 10, 7))],
)
def test_center_crop_pad_gives_the_sizes_asked_for(
    target: str, axes: str, expected: tuple[int, ...]
) -> None:
    text = f"""g (float[20,10,3] x) => (float y) {{
        s = Constant <value_ints = [{target}]> ()  y = CenterCropPad {axes} (x, s) }}"""
    assert shapes_of(text)["y"] == expected


def test_experimental_crop_takes_off_its_border() -> None:
    # left 1, top 2, right 3, bottom 4
    text = "g (float[1,3,20,20] x) => (float y) { y = Crop <border = [1,2,3,4]> (x) }"
    assert shapes_of(text, opset=9)["y"] == (1, 3, 20 - 2 - 4, 20 - 1 - 3)
