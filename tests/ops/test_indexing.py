"""Gather and Scatter: sizes, and the bytes that are really touched."""

from __future__ import annotations

import pytest

from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1}


def test_gather_replaces_its_axis_by_the_axes_of_the_indices() -> None:
    text = "g (float[5,6,7] x, int64[2,3] i) => (float y) { y = Gather <axis = 1> (x, i) }"
    assert shapes_of(text)["y"] == (5, 2, 3, 7)


def test_an_embedding_reads_the_rows_it_takes_and_not_the_table() -> None:
    # 16 rows of 8 floats out of 30,522; int64 indices
    text = "g (int64[1,L] ids, float[30522,8] w) => (float y) { y = Gather (w, ids) }"
    cost = cost_of(text, L=16)
    assert cost.input_bytes == 16 * 8 * 4 + 16 * 8
    assert (cost.output_bytes, cost.flops) == (16 * 8 * 4, 0)


def test_a_gather_that_repeats_rows_reads_no_more_than_the_table() -> None:
    text = "g (float[2,8] w, int64[100] i) => (float y) { y = Gather (w, i) }"
    assert cost_of(text).input_bytes == 2 * 8 * 4 + 100 * 8


def test_positions_of_a_language_model_need_sizes_and_no_data() -> None:
    # both tables give [1, L, 8]; one addition per element
    text = """g (int64[1,L] ids, float[100,8] wte, float[32,8] wpe) => (float y) {
        s = Shape (ids)  one = Constant <value_int = 1> ()  n = Gather (s, one)
        zero = Constant <value_int = 0> ()  p = Range (zero, n, one)
        ax = Constant <value_ints = [0]> ()  pos = Unsqueeze (p, ax)
        t = Gather (wte, ids)  q = Gather (wpe, pos)  y = Add (t, q) }"""
    assert shapes_of(text, L=16)["y"] == (1, 16, 8)
    assert cost_of(text, L=16).flops == 8 * 16


def test_a_scalar_taken_from_a_shape_stays_a_scalar() -> None:
    text = """g (float[3,4] x) => (int64 y) {
        s = Shape (x)  i = Constant <value_int = -1> ()  y = Gather (s, i) }"""
    graph, _ = shaped(text)
    value = graph.tensors["y"].value
    assert value is not None
    assert (value.shape, value.item()) == ((), 4)


def test_an_index_out_of_range_is_a_problem_of_the_node() -> None:
    text = """g (float[3,4] x) => (int64[1] y) {
        s = Shape (x)  i = Constant <value_ints = [2]> ()  y = Gather (s, i) }"""
    assert "index 2 is out of range" in problem_of(text)


@pytest.mark.parametrize(
    ("data", "indices", "batch_dims", "expected"),
    [
        ("2,2", "2,2", 0, (2,)),
        ("2,2,2", "2,1,1", 0, (2, 1, 2, 2)),
        ("2,3,4", "2,5,1", 1, (2, 5, 4)),
        ("2,3,4", "2,3,1", 2, (2, 3)),
    ],
)
def test_gather_nd_takes_what_the_tuples_leave(
    data: str, indices: str, batch_dims: int, expected: tuple[int, ...]
) -> None:
    text = f"""g (float[{data}] x, int64[{indices}] i) => (float y) {{
        y = GatherND <batch_dims = {batch_dims}> (x, i) }}"""
    assert shapes_of(text)["y"] == expected


def test_a_position_beyond_its_table_is_a_problem_whatever_the_table_holds() -> None:
    # The table is a weight; positions 0, 1, … L - 1 follow from the length of the input
    text = """g (int64[1,L] ids, float[16,4] table) => (float y)
        <int64 zero = {0}, int64 one = {1}> {
        s = Shape(ids) n = Gather(s, one) p = Range(zero, n, one) y = Gather(table, p) }"""
    assert shapes_of(text, L=16)["y"] == (16, 4)
    assert "index 16 is out of range for a size of 16" in problem_of(text, L=17)
    assert shapes_of(text, L=12)["y"] == (12, 4)  # the same call but for what the indices are


@pytest.mark.parametrize(
    ("node", "indices", "worst"),
    [
        ("GatherElements <axis = 1> (x, at)", "int64[1,1] at = {3}", 3),
        ("GatherND (x, at)", "int64[1,2] at = {0, 3}", 3),
        ("GatherND <batch_dims = 1> (x, at)", "int64[2,1] at = {3, 0}", 3),
        ("GatherND (x, at)", "int64[1,2] at = {-3, 0}", -3),
        ("ScatterElements <axis = 1> (x, at, u)", "int64[1,1] at = {-4}", -4),
        ("ScatterND (x, at, u)", "int64[1,2] at = {0, 3}", 3),
    ],
)
def test_known_positions_outside_the_data_are_a_problem(
    node: str, indices: str, worst: int
) -> None:
    # x has 2 rows of 3
    text = f"g (float[2,3] x, float[1,1] u) => (float y) <{indices}> {{ y = {node} }}"
    assert f"index {worst} is out of range" in problem_of(text)


def test_gather_nd_of_the_contrib_domain_is_the_same() -> None:
    text = "g (float[2,3] x, int64[5,1] i) => (float y) { y = com.microsoft.GatherND (x, i) }"
    assert shapes_of(text, opsets=CONTRIB)["y"] == (5, 3)


def test_gather_nd_refuses_tuples_longer_than_the_data_has_axes() -> None:
    text = "g (float[2,3] x, int64[5,3] i) => (float y) { y = GatherND (x, i) }"
    assert "3 axes" in problem_of(text)


def test_gather_elements_has_the_shape_of_its_indices() -> None:
    text = "g (float[9,4] x, int64[2,4] i) => (float y) { y = GatherElements (x, i) }"
    assert shapes_of(text)["y"] == (2, 4)
    assert cost_of(text).input_bytes == 2 * 4 * 4 + 2 * 4 * 8


def test_torch_embedding_appends_the_width_of_its_table() -> None:
    text = "g (float[9,4] w, int64[2,5] i) => (float y) { y = com.microsoft.TorchEmbedding (w, i) }"
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 5, 4)


def test_a_scatter_in_place_writes_what_it_updates() -> None:
    # one row of 64 floats: read from the updates, written into the 1,024 rows
    text = """g (float[1024,64] x, int64[1,1] i, float[1,64] u) => (float y) {
        y = ScatterND (x, i, u) }"""
    cost = cost_of(text)
    assert shapes_of(text)["y"] == (1024, 64)
    assert (cost.input_bytes, cost.output_bytes, cost.flops) == (64 * 4 + 8, 64 * 4, 0)


def test_a_scatter_that_adds_reads_its_destination_and_counts_additions() -> None:
    text = """g (float[1024,64] x, int64[1,1] i, float[1,64] u) => (float y) {
        y = ScatterND <reduction = "add"> (x, i, u) }"""
    cost = cost_of(text)
    assert (cost.flops, cost.input_bytes) == (64, 2 * 64 * 4 + 8)


def test_a_scatter_into_a_constant_copies_it_first() -> None:
    text = """g (int64[1,1] i, float[1,2] u) => (float y) {
        x = Constant <value = float[3,2] {0,0,0,0,0,0}> ()  y = ScatterND (x, i, u) }"""
    cost = cost_of(text)
    assert (cost.weight_read_bytes, cost.output_bytes) == (3 * 2 * 4, 3 * 2 * 4)


@pytest.mark.parametrize(("op_type", "opset"), [("Scatter", 9), ("ScatterElements", 11)])
def test_scatter_keeps_the_shape_of_its_data(op_type: str, opset: int) -> None:
    text = f"""g (float[3,3] x, int64[2,3] i, float[2,3] u) => (float y) {{
        y = {op_type} <axis = 0> (x, i, u) }}"""
    assert shapes_of(text, opset=opset)["y"] == (3, 3)


def test_a_cache_update_touches_one_position() -> None:
    # 2·4·1·64 floats into a cache of 2·4·512·64
    text = """g (float[2,4,512,64] c, float[2,4,1,64] u, int64[2] i) => (float y) {
        y = TensorScatter (c, u, i) }"""
    cost = cost_of(text, opset=24)
    update_bytes = 2 * 4 * 1 * 64 * 4
    assert shapes_of(text, opset=24)["y"] == (2, 4, 512, 64)
    assert (cost.input_bytes, cost.output_bytes) == (update_bytes + 2 * 8, update_bytes)


def test_a_cache_update_longer_than_the_cache_is_a_problem() -> None:
    text = "g (float[2,4,8,3] c, float[2,4,9,3] u) => (float y) { y = TensorScatter (c, u) }"
    assert "does not fit" in problem_of(text, opset=24)


@pytest.mark.parametrize("node", ["ScatterElements <axis = 0> (s, i, u)", "ScatterND (s, nd, u)"])
def test_a_size_replaced_by_a_scatter_is_known(node: str) -> None:
    text = f"""g (float[3,4] x) => (float y) {{
        s = Shape (x)  i = Constant <value_ints = [1]> ()
        nd = Constant <value = int64[1,1] {{1}}> ()  u = Constant <value_ints = [7]> ()
        v = {node}  y = ConstantOfShape (v) }}"""
    assert shapes_of(text)["y"] == (3, 7)
