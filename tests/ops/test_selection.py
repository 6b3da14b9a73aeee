"""Operators whose output size depends on values: bounds, and exact answers from known values."""

from __future__ import annotations

import pytest

import onnxroof
from onnxroof.bounded import ends, is_exact, lower, upper
from onnxroof.errors import SizeOutOfBoundsError
from tests.builders import cost_of, model, problem_of, shaped, shapes_of


def test_non_zero_finds_at_most_every_element_and_ranks_stay_known() -> None:
    text = """g (float[3,4] x) => (float[n] y) {
        nz = NonZero (x)  t = Transpose (nz)  y = GatherND (x, t) }"""
    graph, findings = shaped(text)
    found = graph.tensors["nz"].dims[1]
    assert (lower(found), upper(found)) == (0, 12)
    assert [graph.tensors[name].dims for name in ("nz", "t", "y")] == [(2, 12), (12, 2), (12,)]
    assert findings.data_dependent == ("nz.1",)


def test_the_number_of_non_zeros_can_be_bound() -> None:
    text = "g (float[3,4] x) => (int64[2,n] y) { nz = NonZero (x)  y = Identity (nz) }"
    assert shapes_of(text, **{"nz.1": 5})["y"] == (2, 5)


def test_a_size_that_no_data_give_is_refused() -> None:
    text = "g (float[3,4] x) => (int64[2,n] y) { nz = NonZero (x)  y = Identity (nz) }"
    with pytest.raises(SizeOutOfBoundsError, match=r"'nz\.1' cannot be 13: .* at most 12"):
        shapes_of(text, **{"nz.1": 13})
    assert shapes_of(text, **{"nz.1": 12})["y"] == (2, 12)


def test_a_size_that_is_bound_is_no_longer_taken_at_its_largest() -> None:
    text = """g (float[3,4] x, float[5] z) => (int64[2,n] y, int64[1,m] u) {
        nz = NonZero (x)  y = Identity (nz)  u = NonZero (z) }"""
    assert onnxroof.analyze(model(text), dims={"nz.1": 5}).data_dependent == ("u.1",)


def test_non_zero_of_a_constant_is_exact() -> None:
    text = """g (float[1] x) => (int64[1,2] y) {
        c = Constant <value_ints = [3, 0, 5]> ()  y = NonZero (c) }"""
    graph, findings = shaped(text)
    value = graph.tensors["y"].value
    assert value is not None
    assert value.tolist() == [[0, 2]]
    assert findings.data_dependent == ()


@pytest.mark.parametrize(
    ("axis", "expected"), [("", (6,)), ("<axis = 0>", (3, 4)), ("<axis = -1>", (3, 4))]
)
def test_compress_keeps_at_most_as_many_as_its_condition_is_long(
    axis: str, expected: tuple[int, ...]
) -> None:
    text = f"g (float[3,4] x, bool[6] c) => (float y) {{ y = Compress {axis} (x, c) }}"
    graph, _ = shaped(text)
    assert graph.tensors["y"].dims == expected
    assert not graph.tensors["y"].exact


def test_compress_by_a_known_condition_is_exact() -> None:
    text = """g (float[3,4] x) => (float y) {
        c = Constant <value = bool[3] {1, 0, 1}> ()  y = Compress <axis = 0> (x, c) }"""
    graph, _ = shaped(text)
    assert (graph.tensors["y"].shape, graph.tensors["y"].exact) == ((2, 4), True)
    assert cost_of(text).input_bytes == 2 * 4 * 4


@pytest.mark.parametrize(("size", "expected"), [(30, 30), (500, 100)])
def test_top_k_takes_k_from_shape_arithmetic(size: int, expected: int) -> None:
    text = """g (float[1,N] x) => (float v, int64 i) {
        s = Shape (x)  one = Constant <value_int = 1> ()  n = Gather (s, one)
        ax = Constant <value_ints = [0]> ()  nv = Unsqueeze (n, ax)
        most = Constant <value_ints = [100]> ()  k = Min (nv, most)  v, i = TopK (x, k) }"""
    shapes = shapes_of(text, N=size)
    assert (shapes["v"], shapes["i"]) == ((1, expected), (1, expected))


def test_top_k_took_k_from_an_attribute_before_opset_10() -> None:
    text = "g (float[3,4] x) => (float v, int64 i) { v, i = TopK <k = 2> (x) }"
    assert shapes_of(text, opset=9)["i"] == (3, 2)


def test_top_k_by_a_k_of_run_time_has_at_most_the_whole_axis() -> None:
    text = "g (float[3,4] x, int64[1] k) => (float[a,b] v, int64[a,b] i) { v, i = TopK (x, k) }"
    graph, findings = shaped(text)
    assert graph.tensors["i"].dims == (3, 4)
    assert findings.data_dependent == ("v.1",)
    assert shapes_of(text, **{"v.1": 2})["i"] == (3, 2)


def test_top_k_of_more_than_there_are_is_a_problem() -> None:
    text = """g (float[3,4] x) => (float v, int64 i) {
        k = Constant <value_ints = [5]> ()  v, i = TopK (x, k) }"""
    assert "k = 5" in problem_of(text)


@pytest.mark.parametrize(("is_sorted", "expected"), [(0, 1000 * 4), (1, 1000 * 4 + 10 * 4)])
def test_top_k_counts_comparisons_and_no_macs(is_sorted: int, expected: int) -> None:
    # a heap of 10 has ⌈log2 11⌉ = 4 levels; sorting 10 takes ⌈log2 10⌉ = 4 comparisons each
    text = f"""g (float[2,1000] x) => (float v, int64 i) {{
        k = Constant <value_ints = [10]> ()  v, i = TopK <sorted = {is_sorted}> (x, k) }}"""
    cost = cost_of(text)
    assert (cost.macs, cost.flops) == (0, 2 * expected)


def test_unique_outputs_share_one_size() -> None:
    text = "g (float[3,4] x) => (float[u] y) { y, i, inverse, n = Unique (x) }"
    graph, findings = shaped(text)
    size = graph.tensors["y"].dims[0]
    assert (lower(size), upper(size)) == (1, 12)
    assert [graph.tensors[name].dims for name in ("i", "inverse", "n")] == [(12,), (12,), (12,)]
    assert is_exact(graph.tensors["inverse"].dims[0])
    assert findings.data_dependent == ("y.0",)
    assert shapes_of(text, **{"y.0": 5})["n"] == (5,)


def test_unique_slices_along_an_axis() -> None:
    text = "g (float[3,4] x) => (float[3,u] y) { y, i, inverse = Unique <axis = -1> (x) }"
    graph, _ = shaped(text)
    assert (graph.tensors["y"].dims, graph.tensors["inverse"].dims) == ((3, 4), (4,))
    # 4 slices of 3 elements, ⌈log2 4⌉ = 2 comparisons each
    assert cost_of(text).flops == 4 * 2 * 3


@pytest.mark.parametrize(("is_sorted", "expected"), [(1, [1, 2, 4]), (0, [2, 1, 4])])
def test_unique_of_known_values_is_exact(is_sorted: int, expected: list[int]) -> None:
    text = f"""g (float[1] x) => (int64[u] y) {{
        c = Constant <value_ints = [2, 1, 1, 4]> ()
        y, i, inverse, n = Unique <sorted = {is_sorted}> (c) }}"""
    graph, _ = shaped(text)
    found, counts = graph.tensors["y"].value, graph.tensors["n"].value
    assert found is not None
    assert counts is not None
    assert found.tolist() == expected
    assert counts.sum() == 4


def test_unique_of_the_contrib_domain_has_three_outputs() -> None:
    text = "g (float[6] x) => (float[u] y) { y, inverse, n = com.microsoft.Unique (x) }"
    graph, _ = shaped(text, opsets={"com.microsoft": 1})
    assert [graph.tensors[name].exact for name in ("y", "inverse", "n")] == [False, True, False]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(3, 2 * 5 * 3), (100, 2 * 5 * 40), (0, 0)],
)
def test_suppression_keeps_at_most_the_limit_per_class_and_image(limit: int, expected: int) -> None:
    text = f"""g (float[2,40,4] b, float[2,5,40] s) => (int64[k,3] y) {{
        m = Constant <value_ints = [{limit}]> ()  y = NonMaxSuppression (b, s, m) }}"""
    assert shapes_of(text)["y"] == (expected, 3)


def test_suppression_without_a_limit_keeps_nothing() -> None:
    text = "g (float[1,6,4] b, float[1,2,6] s) => (int64[k,3] y) { y = NonMaxSuppression (b, s) }"
    assert shapes_of(text)["y"] == (0, 3)
    assert cost_of(text).flops == 0


def test_suppression_compares_each_candidate_with_all_kept_before_it() -> None:
    # 4 boxes, 2 kept: 4 scores, 4·⌈log2 4⌉ to sort, 1 + 2·2 overlaps of 19; none kept: 4 scores
    text = """g (float[1,4,4] b, float[1,1,4] s) => (int64[k,3] y) {
        m = Constant <value_ints = [2]> ()  y = NonMaxSuppression (b, s, m) }"""
    assert ends(cost_of(text).flops) == (4, 4 + 4 * 2 + 19 * (1 + 2 * 2))


def test_suppression_costs_what_the_number_of_boxes_allows() -> None:
    # 2 lists of 4 boxes, 3 of them kept in all: 1 and 2, or 0 and 3; a kept one was compared with
    # those kept before it (0 + 1 at least), the others with all (3 · 1 + 2 · 2 + 1 at most)
    text = """g (float[1,4,4] b, float[1,2,4] s) => (int64[k,3] y) {
        m = Constant <value_ints = [4]> ()  y = NonMaxSuppression (b, s, m) }"""
    bindings = {"y.0": 3}
    flops = onnxroof.analyze(model(text), dims=bindings).nodes[-1].flops
    assert ends(flops) == (8 + 19 * 1, 8 + 8 * 2 + 19 * (3 * 1 + 2 * 2 + 1))
    # None kept: nothing overlaps anything
    flops = onnxroof.analyze(model(text), dims={"y.0": 0}).nodes[-1].flops
    assert ends(flops) == (8, 8 + 8 * 2)


def test_a_warping_path_is_as_long_as_the_longer_side_at_least() -> None:
    text = "g (float[4,6] x) => (int32[2,t] y) { y = com.microsoft.DynamicTimeWarping (x) }"
    graph, _ = shaped(text, opsets={"com.microsoft": 1})
    rows, length = graph.tensors["y"].dims
    assert (rows, lower(length), upper(length)) == (2, 6, 4 + 6 - 1)


def test_a_condition_longer_than_the_axis_keeps_no_more_than_there_is() -> None:
    # 1 1 1 0 | 1 1: of 4 elements 3 are kept, as onnxruntime does
    text = """g (float[4] x) => (float[n] y) <int64[6] c = {1, 1, 1, 0, 1, 1}> {
        b = Cast <to = 9> (c)  y = Compress <axis = 0> (x, b) }"""
    assert shapes_of(text)["y"] == (3,)


def test_a_condition_over_a_size_known_by_its_bounds_keeps_what_it_says_of_its_beginning() -> None:
    # n of at most 4 rows: none for n = 0, 1 0 1 1 keeps 3 of 4
    text = """g (float[4] x) => (int64[n,1] y) <int64[5] c = {1, 0, 1, 1, 1}> {
        b = Cast <to = 9> (c)  nz = NonZero (x)  t = Transpose (nz)
        y = Compress <axis = 0> (t, b) }"""
    shape = shapes_of(text)["y"]
    assert shape is not None
    assert ends(shape[0]) == (0, 3)
