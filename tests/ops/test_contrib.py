from __future__ import annotations

import pytest

from onnxroof.bounded import lower
from onnxroof.cost import Status
from tests.builders import cost_of, shapes_of

CONTRIB = {"com.microsoft": 1}
MS = "com.microsoft."


def graph(inputs: str, body: str, constants: str = "") -> str:
    declared = f"<{constants}>" if constants else ""
    return f"agraph ({inputs}) => (y) {declared} {{ {body} }}"


@pytest.mark.parametrize(
    ("inputs", "call", "shape", "macs", "others"),
    [
        ("float[3,4,2] a, float[4,2] b", "ComplexMul(a, b)", (3, 4, 2), 0, 3 * 24),
        # 2 · 4 pairs of 3 elements: differences, squares, sums
        ("float[2,3] a, float[4,3] b", "CDist(a, b)", (2, 4), 0, 8 * 8),
        ("float[2,3] a, float[4,3] b", 'CDist <metric = "euclidean"> (a, b)', (2, 4), 0, 8 * 9),
        ("float[2,3] a, float[5] b", "IsAllFinite(a, b)", (), 0, 11),
        # 4 rows of 6: 4·n + 2, gate activation and product
        ("float[4,6] a, float[6] s, float[4,6] g", "GatedRMSNorm(a, s, g)", (4, 6), 0,
         4 * 26 + 2 * 24),
        # 4 · 2 branches of 3
        ("float[4,6] a, float[3] s", "BranchwiseRMSNorm <num_branches = 2> (a, s)", (4, 6), 0,
         8 * 14),
        ("float[4,2,3] a", "BranchwiseRMSNorm(a)", (4, 2, 3), 0, 8 * 11),
        ("float[4,6] a, float[4,6] b, float[4,1] g", "GatedAdd(a, b, g)", (4, 6), 0, 48),
        ("float[4,6] a, float[4,6] b, float[4,5] g, float[5,1] w", "GatedAdd(a, b, g, w)",
         (4, 6), 20, 48 + 4),
        ("float[4,2,3] s, float[4,2] m", "HyperConnectionPreMix(s, m)", (4, 3), 0, 12 * 4),
        ("float[4,6] s, float[4,3] b, float[4,2] p, float[4,2,2] m",
         "HyperConnectionPostMix <num_branches = 2> (s, b, p, m)", (4, 6), 24 * 2, 48),
    ],
)  # fmt: skip
def test_small_operators(
    inputs: str, call: str, shape: tuple[int, ...], macs: int, others: int
) -> None:
    text = graph(inputs, f"y = {MS}{call}")
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["y"] == shape
    assert (cost.macs, cost.flops) == (macs, 2 * macs + others)


def test_a_low_rank_mix_has_three_products() -> None:
    text = graph(
        "float[5,6] s, float[6] n, float[6,4] d, float[4,6] u, float[6,2] i",
        f"y, g, t = {MS}HyperConnectionLowRankMix <num_branches = 2> (s, n, d, u, i)",
    )
    found = shapes_of(text, opsets=CONTRIB)
    assert (found["y"], found["g"], found["t"]) == ((5, 3), (5, 2), (5, 6))
    assert cost_of(text, opsets=CONTRIB).macs == 5 * (6 * 4 + 4 * 6 + 6 * 2)


def test_normalization_and_rotation_in_one() -> None:
    text = graph(
        "bfloat16[1,5,2,16] x, float[8] s, int64[1,5] p, float[9,2] c, float[9,2] z",
        f"y = {MS}RMSNormRotary <rotary_embedding_dim = 4, input_width = 8> (x, s, p, c, z)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (1, 5, 16)
    assert cost_of(text, opsets=CONTRIB).flops == 10 * (4 * 8 + 2 + 3 * 4)


def test_a_search_knows_its_shape_but_not_its_work() -> None:
    text = (
        graph(
            "int32[2,7] x",
            f"y, z = {MS}BeamSearch <eos_token_id = 1, pad_token_id = 0, "
            "decoder = body (float[1] a) => (float[1] b) {{ b = Identity(a) }}> (x, m, n, k, r)",
            "int32[1] m = {20}, int32[1] n = {1}, int32[1] k = {4}, int32[1] r = {3}",
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    found, cost = shapes_of(text, opsets=CONTRIB), cost_of(text, opsets=CONTRIB)
    assert (found["y"], found["z"]) == ((2, 3, 20), (2, 3))
    assert cost.status is Status.UNKNOWN
    assert cost.flops is None
    assert "stop token" in cost.note


def test_a_compiled_model_is_unknown_and_says_why() -> None:
    text = graph("float[2] x", f'y = {MS}EPContext <ep_cache_context = "…"> (x)')
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.status is Status.UNKNOWN
    assert "compiled" in cost.note


def test_merged_tokens_are_bounded() -> None:
    text = graph(
        "int64[9] s, int64[4] c, int64 p, int64[5] t",
        f"y, i = {MS}BifurcationDetector(s, c, p, t)",
    )
    shape = shapes_of(text, opsets=CONTRIB)["y"]
    assert shape == (9,)
    assert lower(shape[0]) == 4


def test_selected_keys_bound_sparse_attention() -> None:
    text = graph(
        "float[1,3,32] q, float[1,3,16] k, float[1,3,16] v, float[1,2,12,8] pk, "
        "float[1,2,12,8] pv, int32[3,5] i, int32[3] n, int32[1] s",
        f"y, a, b = {MS}DynamicSparseAttention <num_heads = 4, kv_num_heads = 2> "
        '(q, k, v, pk, pv, "", "", i, n, s, t)',
        "int32[1] t = {15}",
    )
    macs = cost_of(text, opsets=CONTRIB).macs
    assert shapes_of(text, opsets=CONTRIB)["a"] == (1, 2, 15, 8)
    # at most 3 queries · 5 keys in 4 heads of 8
    assert (lower(macs), int(macs)) == (0, 4 * 15 * 16)


def test_hashes_of_n_grams_are_products_and_remainders() -> None:
    text = graph(
        "int64[2,6] x",
        f"y, p = {MS}NGramHashMapping <max_ngram_size = 3, n_head_per_ngram = 2, pad_id = 0> "
        "(x, m, v)",
        "int64[3] m = {3, 5, 7}, int64[4] v = {11, 13, 17, 19}",
    )
    found = shapes_of(text, opsets=CONTRIB)
    assert (found["y"], found["p"]) == ((2, 6, 4), (2, 2))
    assert cost_of(text, opsets=CONTRIB).flops == 12 * (3 + 2 + 4)


def test_packed_embeddings_read_the_rows_they_take() -> None:
    text = graph(
        "uint8[1000,36] t, int64[2,3] i", f"y = {MS}GatherPacked <K = 64, packed_type = 8> (t, i)"
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 64)
    # six rows of 36 bytes and six indices in, 6 · 64 bfloat16 out
    assert (cost.input_bytes, cost.output_bytes) == (6 * 36 + 6 * 8, 6 * 64 * 2)
    assert cost.flops == 6 * 64
