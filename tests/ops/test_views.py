"""Operators that only look at the same bytes another way."""

from __future__ import annotations

import pytest

from onnxroof.bounded import ends
from tests.builders import cost_of, problem_of, shaped, shapes_of


def reshape(source: str, target: str, *, opset: int = 21, attributes: str = "") -> str:
    return (
        f"g (float[{source}] x) => (float y) {{"
        f" s = Constant <value_ints = [{target}]> () y = Reshape {attributes} (x, s) }}"
    )


def test_reshape_works_out_minus_one_from_the_other_sizes() -> None:
    # N·90·3·1 elements over 1·90·3 leave N
    text = reshape("N,90,3,1", "-1,1,90,3")
    assert shapes_of(text, N=7)["y"] == (7, 1, 90, 3)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("2,3,8,4", "0,0,-1", (2, 3, 8 * 4)),
        ("5,4,6", "0,-1", (5, 4 * 6)),
        ("2,6", "-1", (12,)),
        ("0,4", "0,4", (0, 4)),
        ("0,4", "-1,4", (0, 4)),
    ],
)
def test_reshape_counts_copied_sizes_before_minus_one(
    source: str, target: str, expected: tuple[int, ...]
) -> None:
    assert shapes_of(reshape(source, target))["y"] == expected


def test_reshape_to_no_axes_makes_a_scalar() -> None:
    text = """g (float[1,1] x) => (float y) {
        s = Constant <value_ints: ints = []> () y = Reshape (x, s) }"""
    assert shapes_of(text)["y"] == ()


def test_reshape_with_allowzero_takes_a_zero_literally() -> None:
    assert shapes_of(reshape("0,10", "3,0", attributes="<allowzero = 1>"))["y"] == (3, 0)


def test_reshape_with_allowzero_refuses_zero_beside_minus_one() -> None:
    assert "allowzero" in problem_of(reshape("0,4", "0,-1", attributes="<allowzero = 1>"))


@pytest.mark.parametrize("target", ["5", "-1,5", "-1,-1", "2,2", "0,0,0", "-2,3"])
def test_reshape_that_cannot_hold_the_elements_is_a_problem_of_the_node(target: str) -> None:
    assert "Reshape" in problem_of(reshape("2,3", target))


def test_reshape_took_its_target_from_an_attribute_before_opset_5() -> None:
    text = "g (float[2,3,4] x) => (float y) { y = Reshape <shape = [0,-1]> (x) }"
    assert shapes_of(text, opset=4)["y"] == (2, 12)


def test_reshape_moves_no_bytes_and_does_no_work() -> None:
    cost = cost_of(reshape("2,6", "3,4"))
    assert (cost.macs, cost.flops, cost.input_bytes, cost.output_bytes) == (0, 0, 0, 0)


def test_a_size_only_known_by_its_bound_cancels_in_a_reshape() -> None:
    # nz is [2, K]; t is [K, 2]; Reshape(t, [K, -1]) leaves 2, whatever K is
    text = """g (float[3,4] x) => (float y) {
        nz = NonZero (x)  t = Transpose (nz)  s = Shape <start = 0, end = 1> (t)
        m = Constant <value_ints = [-1]> ()  to = Concat <axis = 0> (s, m)
        y = Reshape (t, to) }"""
    graph, findings = shaped(text)
    assert graph.tensors["y"].shape == (12, 2)
    assert graph.tensors["y"].exact is False
    assert not findings.problems


def test_shape_gather_concat_reshape_keeps_the_batch() -> None:
    # -1 = N·12·64 / (N·12·4) = 16
    text = """g (float[N,12,64] x) => (float y) {
        i = Constant <value_int = 0> ()  ax = Constant <value_ints = [0]> ()
        s = Shape (x)  n = Gather <axis = 0> (s, i)  nv = Unsqueeze (n, ax)
        rest = Constant <value_ints = [12, 4, -1]> ()
        to = Concat <axis = 0> (nv, rest)  y = Reshape (x, to) }"""
    assert shapes_of(text, N=3)["y"] == (3, 12, 4, 16)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [(0, (1, 120)), (1, (2, 60)), (4, (120, 1)), (-1, (24, 5)), (-4, (1, 120))],
)
def test_flatten_multiplies_what_lies_on_either_side(axis: int, expected: tuple[int, int]) -> None:
    text = f"g (float[2,3,4,5] x) => (float y) {{ y = Flatten <axis = {axis}> (x) }}"
    assert shapes_of(text)["y"] == expected


def test_flatten_of_a_scalar_is_one_by_one() -> None:
    assert shapes_of("g (float x) => (float y) { y = Flatten <axis = 0> (x) }")["y"] == (1, 1)


@pytest.mark.parametrize(("batch", "expected"), [(4, (4, 7)), (1, (7,))])
def test_squeeze_without_axes_says_that_its_rank_depends_on_sizes(
    batch: int, expected: tuple[int, ...]
) -> None:
    graph, findings = shaped("g (float[N,1,7,1] x) => (float y) { y = Squeeze (x) }", N=batch)
    assert graph.tensors["y"].shape == expected
    assert any("rank depends on" in note for note in findings.assumptions)


def test_squeeze_of_a_size_other_than_one_is_a_problem() -> None:
    text = "g (float[2,3] x) => (float y) { y = Squeeze <axes = [1]> (x) }"
    assert "squeezed" in problem_of(text, opset=11)


@pytest.mark.parametrize(("axes", "opset"), [("0, 2", 9), ("-3, -1", 11)])
def test_squeeze_and_unsqueeze_took_axes_from_an_attribute(axes: str, opset: int) -> None:
    text = f"""g (float[1,5,1] x) => (float y) {{
        s = Squeeze <axes = [{axes}]> (x)  y = Unsqueeze <axes = [{axes}]> (s) }}"""
    shapes = shapes_of(text, opset=opset)
    assert (shapes["s"], shapes["y"]) == ((5,), (1, 5, 1))


def test_unsqueeze_axes_are_positions_of_the_output_in_any_order() -> None:
    text = """g (float[3,4,5] x) => (float y) {
        a = Constant <value_ints = [4, 0]> ()  y = Unsqueeze (x, a) }"""
    assert shapes_of(text)["y"] == (1, 3, 4, 5, 1)


@pytest.mark.parametrize("axes", ["0, 0", "3", "-4"])
def test_unsqueeze_refuses_axes_repeated_or_out_of_range(axes: str) -> None:
    text = f"""g (float[3,4] x) => (float y) {{
        a = Constant <value_ints = [{axes}]> ()  y = Unsqueeze (x, a) }}"""
    expected = "out of range" if axes != "0, 0" else "twice"
    assert expected in problem_of(text)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", [2, 3, 4]),
        ("<start = 1>", [3, 4]),
        ("<start = -1>", [4]),
        ("<end = -1>", [2, 3]),
        ("<start = 1, end = 2>", [3]),
        ("<start = -9, end = 9>", [2, 3, 4]),
        ("<start = 2, end = 1>", []),
    ],
)
def test_shape_knows_the_sizes_between_start_and_end(attributes: str, expected: list[int]) -> None:
    graph, _ = shaped(f"g (float[2,3,4] x) => (int64[n] y) {{ y = Shape {attributes} (x) }}")
    value = graph.tensors["y"].value
    assert value is not None
    assert value.tolist() == expected


def test_shape_and_size_read_no_element_of_their_input() -> None:
    for op_type in ("Shape", "Size"):
        cost = cost_of(f"g (float[2,3,4] x) => (int64 y) {{ y = {op_type} (x) }}")
        assert cost.traffic_bytes == 0


def test_identity_passes_a_sequence_on() -> None:
    text = """g (float[2,3] x) => (float y) {
        s = SequenceConstruct (x, x)  t = Identity (s)  i = Constant <value_int = 0> ()
        y = SequenceAt (t, i) }"""
    graph, _ = shaped(text)
    assert graph.tensors["t"].kind == "sequence"
    assert graph.tensors["y"].shape == (2, 3)


def test_expand_dims_puts_one_axis_in() -> None:
    text = """g (float[2,3] x) => (float y) {
        a = Constant <value = int32 {-1}> ()  y = com.microsoft.ExpandDims (x, a) }"""
    assert shapes_of(text, opsets={"com.microsoft": 1})["y"] == (2, 3, 1)


def reshape_by_count(source: str, first: str, rest: str = "", attributes: str = "") -> str:
    """`source` under a shape that is `first`, computed from n ≤ 1 elements found, then `rest`."""
    return f"""g (float[{source}] d, float[1] x) => (float y) {{
        nz = NonZero (x)  s = Shape <start = 1> (nz)  one = Constant <value_ints = [1]> ()
        rest = Constant <value_ints = [{rest}]> ()  first = {first}
        t = Concat <axis = 0> (first, rest)  y = Reshape {attributes} (d, t) }}"""


def bounds_of_reshape(text: str) -> list[tuple[int, int]]:
    shape = shapes_of(text)["y"]
    assert shape is not None
    return [ends(size) for size in shape]


def test_a_size_that_may_be_0_at_run_time_may_copy_the_size_of_the_input() -> None:
    # n = 0 copies the 4 of 4×3, n = 1 is a size of 1
    text = reshape_by_count("4,3", "Identity (s)", "3")
    assert bounds_of_reshape(text) == [(1, 4), (3, 3)]


def test_with_allowzero_a_size_that_may_be_0_at_run_time_copies_nothing() -> None:
    text = reshape_by_count("4,3", "Identity (s)", "3", "<allowzero = 1>")
    assert bounds_of_reshape(text) == [(0, 1), (3, 3)]


def test_a_size_that_may_be_minus_1_at_run_time_may_be_what_is_left() -> None:
    # n − 1 is −1 or 0: at −1 the 4 · 3 elements over 6 leave 2, at 0 the 4 is copied
    text = reshape_by_count("4,3", "Sub (s, one)", "6")
    (first, second) = bounds_of_reshape(text)
    assert first[0] <= 2 <= first[1]
    assert first[1] <= 4
    assert second == (6, 6)


def test_a_size_that_copies_itself_where_it_is_0_stays_the_same_size() -> None:
    # [n, 6] as [n, 2, 3]: a 0 copies n, which is then 0
    text = """g (float[9] x) => (float y) {
        nz = NonZero (x)  t = Transpose (nz)  six = Constant <value_ints = [1,6]> ()
        d = Tile (t, six)  n = Shape <end = 1> (d)  rest = Constant <value_ints = [2,3]> ()
        s = Concat <axis = 0> (n, rest)  y = Reshape (d, s) }"""
    graph, _ = shaped(text)
    size = graph.tensors["y"].dims[0]
    assert (str(size), ends(size)) == ("nz.1≤9", (0, 9))


def test_a_0_that_can_copy_nothing_but_0_stays_the_same_size() -> None:
    # [3n, 2] as [n, 6]: copying D gives 2D = 6D elements, so D is 0
    text = """g (float[9] x) => (float y) {
        nz = NonZero (x)  t = Transpose (nz)  repeats = Constant <value_ints = [3,2]> ()
        d = Tile (t, repeats)  n = Shape <end = 1> (t)  rest = Constant <value_ints = [6]> ()
        s = Concat <axis = 0> (n, rest)  y = Reshape (d, s) }"""
    graph, _ = shaped(text)
    size = graph.tensors["y"].dims[0]
    assert (str(size), ends(size)) == ("nz.1≤9", (0, 9))
