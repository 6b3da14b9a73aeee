from __future__ import annotations

import pytest

from onnxroof.bounded import BoundedInt, ends, lower
from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1}


def graph(inputs: str, body: str, constants: str = "") -> str:
    declared = f"<{constants}>" if constants else ""
    return f"agraph ({inputs}) => (y) {declared} {{ {body} }}"


def softmax(rows: int, length: int) -> int:
    return rows * (5 * length - 2)


# -- Attention -------------------------------------------------------------------------------


def test_fused_attention_charges_its_projection_as_a_product() -> None:
    text = graph(
        "float[2,5,12] x, float[12,48] w, float[48] b",
        "y = com.microsoft.Attention <num_heads = 4> (x, w, b)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    # projection 2·5 rows · 12 · 48; attention 2·4 heads · 5 · 5 scores · (4 + 4)
    scores = 2 * 4 * 5 * 5
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 5, 16)
    assert cost.macs == 10 * 12 * 48 + scores * 8
    assert cost.flops == 2 * cost.macs + 10 * 48 + scores + softmax(2 * 4 * 5, 5)


def test_fused_attention_may_have_wider_values() -> None:
    text = graph(
        "float[2,5,12] x, float[12,40] w",
        "y = com.microsoft.Attention <num_heads = 2, qkv_hidden_sizes = [8, 8, 24]> (x, w)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 5, 24)
    assert cost_of(text, opsets=CONTRIB).macs == 10 * 12 * 40 + 2 * 2 * 25 * (4 + 12)


def test_fused_attention_appends_to_its_past() -> None:
    text = graph(
        "float[1,3,8] x, float[8,24] w, float[24] b, float[2,1,2,7,4] p",
        'y, z = com.microsoft.Attention <num_heads = 2> (x, w, b, "", p)',
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["z"] == (2, 1, 2, 10, 4)
    assert cost.macs == 3 * 8 * 24 + 2 * 3 * 10 * 8
    # output and the whole present are written
    assert cost.output_bytes == 4 * (3 * 8 + 2 * 2 * 10 * 4)


def test_a_shared_past_buffer_is_appended_to_in_place() -> None:
    text = graph(
        "float[1,1,8] x, float[8,24] w, float[24] b, float[2,1,2,64,4] p",
        "y, z = com.microsoft.Attention <num_heads = 2, past_present_share_buffer = 1> "
        '(x, w, b, "", p, "", n)',
        "int32[1] n = {10}",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["z"] == (2, 1, 2, 64, 4)
    assert cost.macs == 8 * 24 + 2 * 11 * 8
    # one new row of keys and values; ten rows of the past are read
    assert cost.output_bytes == 4 * (8 + 2 * 2 * 4)
    # inputs that may be constants: x, w, b and 10 rows of the past
    assert cost.input_bytes == 4 * (8 + 8 * 24 + 24 + 2 * 2 * 10 * 4)


def test_a_shared_buffer_of_unknown_fill_is_bounded_by_its_capacity() -> None:
    text = graph(
        "float[1,1,8] x, float[8,24] w, float[24] b, float[2,1,2,64,4] p, int32[1] n",
        "y, z = com.microsoft.Attention <num_heads = 2, past_present_share_buffer = 1> "
        '(x, w, b, "", p, "", n)',
    )
    macs = cost_of(text, opsets=CONTRIB).macs
    assert macs == 8 * 24 + 2 * 64 * 8
    assert isinstance(macs, BoundedInt)
    assert lower(macs) == 8 * 24 + 2 * 1 * 8


def test_quantized_attention_multiplies_in_the_type_of_its_input() -> None:
    text = graph(
        "uint8[1,5,8] x, int8[8,24] w, float[24] b, float sx, float sw, uint8 zx, int8 zw",
        'y = com.microsoft.QAttention <num_heads = 2> (x, w, b, sx, sw, "", zx, zw)',
    )
    cost = cost_of(text, opsets=CONTRIB)
    found, _ = shaped(text, opsets=CONTRIB)
    assert found.tensors["y"].dtype is DType.FLOAT
    assert found.tensors["y"].shape == (1, 5, 8)
    assert cost.compute_dtype is DType.UINT8
    assert cost.macs == 5 * 8 * 24 + 2 * 25 * 8
    # bias and rescaling per projected element, the zero point per input element
    assert cost.flops == 2 * cost.macs + 2 * 5 * 24 + 5 * 8 + 2 * 25 + softmax(2 * 5, 5)


def test_weights_that_do_not_fit_the_input_are_a_problem() -> None:
    text = graph(
        "float[2,5,12] x, float[16,48] w", "y = com.microsoft.Attention <num_heads = 4> (x, w)"
    )
    assert "do not fit" in problem_of(text, opsets=CONTRIB)


# -- MultiHeadAttention ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "arguments", "keys", "value_width"),
    [
        ("float[2,5,16] q, float[2,7,16] k, float[2,7,24] v", "q, k, v", 7, 24),
        ("float[2,5,4,3,4] q", "q", 5, 16),
        ("float[2,5,16] q, float[2,7,4,2,4] k", "q, k", 7, 16),
        ("float[2,5,16] q, float[2,4,7,4] k, float[2,4,7,6] v", "q, k, v", 7, 24),
    ],
)
def test_every_way_to_give_keys_and_values_counts_alike(
    inputs: str, arguments: str, keys: int, value_width: int
) -> None:
    text = graph(inputs, f"y = com.microsoft.MultiHeadAttention <num_heads = 4> ({arguments})")
    cost = cost_of(text, opsets=CONTRIB)
    scores = 2 * 4 * 5 * keys
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 5, value_width)
    assert cost.macs == scores * (4 + value_width // 4)
    assert cost.flops == 2 * cost.macs + scores + softmax(2 * 4 * 5, keys)


def test_a_bias_is_added_to_what_is_projected_now() -> None:
    text = graph(
        "float[1,5,8] q, float[1,7,8] k, float[1,7,8] v, float[24] b",
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, b)",
    )
    scores = 2 * 5 * 7
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.flops == 2 * cost.macs + scores + softmax(2 * 5, 7) + 5 * 8 + 7 * 8 + 7 * 8


def test_multi_head_attention_concatenates_past_and_new_keys() -> None:
    text = graph(
        "float[1,1,8] q, float[1,1,8] k, float[1,1,8] v, float[1,2,9,4] pk, float[1,2,9,4] pv",
        "y, nk, nv, qk = com.microsoft.MultiHeadAttention <num_heads = 2> "
        '(q, k, v, "", "", "", pk, pv)',
    )
    found = shapes_of(text, opsets=CONTRIB)
    assert found["nk"] == found["nv"] == (1, 2, 10, 4)
    assert found["qk"] == (1, 2, 1, 10)


def test_one_decoding_step_shares_its_buffer() -> None:
    text = graph(
        "float[1,1,8] q, float[1,1,8] k, float[1,1,8] v, float[1,2,32,4] pk, float[1,2,32,4] pv",
        "y, nk, nv = com.microsoft.DecoderMaskedMultiHeadAttention "
        '<num_heads = 2, past_present_share_buffer = 1> (q, k, v, "", "", pk, pv, n)',
        "int32[1] n = {5}",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["nk"] == (1, 2, 32, 4)
    assert cost.macs == 2 * 6 * 8
    assert cost.output_bytes == 4 * (8 + 2 * 2 * 4)


# -- GroupQueryAttention ---------------------------------------------------------------------


def grouped(total: str, past: int, sequence: int = 1, attributes: str = "") -> str:
    return graph(
        f"float[1,{sequence},32] q, float[1,{sequence},16] k, float[1,{sequence},16] v, "
        f"float[1,2,{past},8] pk, float[1,2,{past},8] pv, int32[1] s"
        + ("" if total else ", int32[1] t"),
        f"y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2"
        f"{attributes}> (q, k, v, pk, pv, s, t)",
        f"int32[1] t = {{{total}}}" if total else "",
    )


def test_a_growing_cache_is_copied() -> None:
    text = grouped("13", past=12)
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["nk"] == (1, 2, 13, 8)
    assert cost.macs == 4 * 13 * (8 + 8)
    assert cost.output_bytes == 4 * (32 + 2 * 2 * 13 * 8)
    assert cost.input_bytes == 4 * (32 + 16 + 16 + 2 * 2 * 12 * 8)


def test_a_cache_with_room_is_one_buffer_and_only_its_rows_in_use_are_read() -> None:
    text = grouped("13", past=64)
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["nk"] == (1, 2, 64, 8)
    assert cost.macs == 4 * 13 * (8 + 8)
    assert cost.output_bytes == 4 * (32 + 2 * 2 * 1 * 8)
    assert cost.input_bytes == 4 * (32 + 16 + 16 + 2 * 2 * 12 * 8)


def test_without_a_known_total_the_cache_is_bounded_and_the_report_says_so() -> None:
    # of 12 rows none to all are in use, so that 1 to 13 keys are attended to; where there is room
    # the new row is written into the 12, else all go to a longer buffer
    text = grouped("", past=12)
    graph_, findings = shaped(text, opsets=CONTRIB)
    rows = graph_.tensors["nk"].shape[2]  # type: ignore[index]
    assert ends(rows) == (12, 13)
    assert graph_.tensors["nk"].shape == (1, 2, 13, 8)
    assert any("total_sequence_length" in sentence for sentence in findings.assumptions)
    cost = cost_of(text, opsets=CONTRIB)
    assert ends(cost.macs) == (4 * 1 * (8 + 8), 4 * 13 * (8 + 8))
    assert ends(cost.input_bytes) == (4 * (32 + 16 + 16), 4 * (32 + 16 + 16 + 2 * 2 * 12 * 8))
    assert ends(cost.output_bytes) == (4 * (32 + 2 * 2 * 1 * 8), 4 * (32 + 2 * 2 * 13 * 8))


@pytest.mark.parametrize("total", range(1, 14))
def test_what_is_bounded_without_a_known_total_holds_for_each(total: int) -> None:
    exact, bounded = (cost_of(grouped(text, past=12), opsets=CONTRIB) for text in (str(total), ""))
    for name in ("macs", "flops", "transcendentals", "input_bytes", "output_bytes"):
        low, high = ends(getattr(bounded, name))
        assert low <= getattr(exact, name) <= high


def test_a_packed_query_holds_keys_and_values_too() -> None:
    # 4 query and 2 + 2 key and value heads of 8
    text = graph(
        "float[1,6,64] q, int32[1] s",
        "y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> "
        '(q, "", "", "", "", s, t)',
        "int32[1] t = {6}",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (1, 6, 32)
    assert cost_of(text, opsets=CONTRIB).macs == 4 * 6 * 6 * 16


def test_rotation_inside_turns_queries_and_new_keys() -> None:
    plain = cost_of(grouped("13", past=12), opsets=CONTRIB)
    text = grouped("13", past=12, attributes=", do_rotary = 1")
    text = text.replace("int32[1] s", "int32[1] s, float[99,4] c, float[99,4] z")
    text = text.replace("s, t)", "s, t, c, z)")
    turned = cost_of(text, opsets=CONTRIB)
    assert turned.flops - plain.flops == 3 * 8 * (4 + 2)
    # one row of each table
    assert turned.input_bytes - plain.input_bytes == 2 * 4 * 4


# -- DecoderAttention ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("static", "cached", "keys", "projected"),
    [(0, 0, 3, 3), (0, 1, 3 + 6, 3), (1, 0, 7, 7), (1, 1, 6, 0)],
)
def test_decoder_attention_projects_what_is_not_cached(
    static: int, cached: int, keys: int, projected: int
) -> None:
    text = graph(
        "float[3,2,8] q, float[7,2,8] k, float[8,8] wq, float[8,16] wk, float[24] b, "
        "float[2,2,6,4] ck, float[2,2,6,4] cv",
        "y, nk, nv = com.microsoft.DecoderAttention <num_heads = 2> "
        '(q, k, wq, wk, b, "", ck, cv, s, p, l, m)',
        f"bool[1] s = {{{static}}}, bool[1] p = {{{cached}}}, bool[1] l = {{1}}, bool[1] m = {{0}}",
    )
    assert shapes_of(text, opsets=CONTRIB)["nk"] == (2, 2, keys, 4)
    assert cost_of(text, opsets=CONTRIB).macs == (
        2 * 3 * 8 * 8 + 2 * projected * 8 * 16 + 2 * 2 * 3 * keys * 8
    )


# -- packed, paged, sparse -------------------------------------------------------------------


def test_packed_attention_sums_the_squares_of_the_lengths() -> None:
    text = graph(
        "float[7,8] x, float[8,24] w, float[24] b, int32[3,4] o",
        "y = com.microsoft.PackedAttention <num_heads = 2> (x, w, b, o, c)",
        "int32[4] c = {0, 1, 3, 7}",
    )
    # sequences of 1, 2 and 4 tokens
    assert shapes_of(text, opsets=CONTRIB)["y"] == (7, 8)
    assert cost_of(text, opsets=CONTRIB).macs == 7 * 8 * 24 + 2 * (1 + 4 + 16) * 8


def test_packed_attention_of_unknown_lengths_is_bounded() -> None:
    text = graph(
        "float[7,8] q, float[7,8] k, float[7,8] v, int32[3,4] o, int32[4] c",
        'y = com.microsoft.PackedMultiHeadAttention <num_heads = 2> (q, k, v, "", o, c)',
    )
    macs = cost_of(text, opsets=CONTRIB).macs
    # at most every token sees 4; at least the lengths are alike: ⌈7² / 3⌉ = 17 pairs
    assert (lower(macs), int(macs)) == (2 * 17 * 8, 2 * 7 * 4 * 8)


def test_removing_padding_bounds_the_tokens_left() -> None:
    text = graph("float[3,4,8] x, int32[3] n", "y, o, c, m = com.microsoft.RemovePadding(x, n)")
    found = shapes_of(text, opsets=CONTRIB)
    assert found["y"] == (12, 8)
    assert lower(found["y"][0]) == 0
    assert (found["o"], found["c"], found["m"]) == ((3, 4), (4,), (1,))


def test_removing_padding_of_known_lengths_is_exact() -> None:
    text = graph(
        "float[3,4,8] x",
        "t, o, c, m = com.microsoft.RemovePadding(x, n) y = com.microsoft.RestorePadding(t, o)",
        "int32[3] n = {1, 2, 4}",
    )
    found = shapes_of(text, opsets=CONTRIB)
    assert (found["t"], found["y"]) == ((7, 8), (3, 4, 8))


def test_paged_attention_writes_only_new_rows_of_its_cache() -> None:
    text = graph(
        "float16[3,32] q, float16[3,16] k, float16[3,16] v, float16[10,16,2,8] ck, "
        "float16[10,16,2,8] cv, int32[3] s, int32[2] p, int32[2,4] t",
        "y, nk, nv = com.microsoft.PagedAttention <num_heads = 4, kv_num_heads = 2> "
        "(q, k, v, ck, cv, s, p, t)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["nk"] == (10, 16, 2, 8)
    assert cost.output_bytes == 2 * (3 * 32 + 2 * 3 * 2 * 8)
    # at most 4 blocks of 16 keys a token, at least itself
    assert (lower(cost.macs), int(cost.macs)) == (4 * 3 * 16, 4 * 3 * 64 * 16)


def test_sparse_attention_is_bounded_by_its_blocks() -> None:
    text = graph(
        "float[1,32,32] q, float[1,32,16] k, float[1,32,16] v, float[1,2,64,8] pk, "
        "float[1,2,64,8] pv, int32[1,5] r, int32[1,3] c, int32[1] t",
        "y, nk, nv = com.microsoft.SparseAttention "
        "<num_heads = 4, kv_num_heads = 2, sparse_block_size = 16> (q, k, v, pk, pv, r, c, n, t)",
        "int32[1] n = {32}",
    )
    macs = cost_of(text, opsets=CONTRIB).macs
    # three blocks of 16 × 16 of the 32 × 32 scores
    assert (lower(macs), int(macs)) == (4 * 32 * 16, 4 * 3 * 256 * 16)


def test_longformer_attends_in_a_window_and_to_constant_global_tokens() -> None:
    text = graph(
        "float[1,8,8] x, float[8,24] w, float[24] b, float[1,8] m, float[8,24] wg, float[24] bg",
        "y = com.microsoft.LongformerAttention <num_heads = 2, window = 2> (x, w, b, m, wg, bg, g)",
        "int32[1,8] g = {1, 0, 0, 0, 0, 0, 0, 0}",
    )
    projections = 8 * 8 * 24 + 1 * 8 * 8 + 8 * 8 * 16
    # 8 tokens see 5 each; all see the global one, which sees all
    assert cost_of(text, opsets=CONTRIB).macs == projections + (8 * 5 + 8 + 8) * 2 * 8


def test_a_relative_position_bias_is_looked_up() -> None:
    text = graph(
        "float[32,4] t",
        "y = com.microsoft.RelativePositionBias <max_distance = 128> (t, q, k)",
        "int64[1] q = {6}, int64[1] k = {9}",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["y"] == (1, 4, 6, 9)
    assert cost.flops == 0


def test_a_gated_position_bias_has_a_product_per_head() -> None:
    text = graph(
        "float[2,5,12] q, float[12] b, float[1,3,5,5] r, float[4,8] w, float[8] c, "
        "float[1,3,1,1] e",
        "y = com.microsoft.GatedRelativePositionBias <num_heads = 3> (q, b, r, w, c, e)",
    )
    rows = 2 * 3 * 5
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 5, 5)
    assert cost.macs == rows * 4 * 8
    assert cost.flops == 2 * rows * 32 + 2 * 5 * 12 + rows * (8 + 6 + 2 + 4) + rows * 5


def test_gated_delta_net_counts_the_recurrence_over_packed_tokens() -> None:
    text = graph(
        "float[6,2,4] q, float[6,2,4] k, float[6,4,3] v, float[6,4] g, float[6,4] b, "
        "float[2,4,3,4] s",
        'y, z = com.microsoft.GatedDeltaNet(q, k, v, "", g, b, s)',
    )
    found = shapes_of(text, opsets=CONTRIB)
    assert (found["y"], found["z"]) == ((6, 4, 3), (2, 4, 3, 4))
    # outer product, retrieval and read-out of four 4 × 3 states a token
    assert cost_of(text, opsets=CONTRIB).macs == 6 * 4 * 12 * 3
