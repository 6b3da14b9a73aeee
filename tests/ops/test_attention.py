from __future__ import annotations

import pytest

from tests.builders import cost_of, problem_of, shapes_of


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


GROUPED = graph(
    "float[1,8,4,16] q, float[1,2,4,16] k, float[1,2,4,16] v, "
    "float[1,2,12,16] pk, float[1,2,12,16] pv",
    'y, nk, nv = Attention(q, k, v, "", pk, pv)',
)


def test_grouped_attention_multiplies_with_query_heads_against_past_and_new_keys() -> None:
    # 12 + 4 keys; q·kᵀ and p·v each: 8 heads · 4 queries · 16 keys · 16
    cost = cost_of(GROUPED, opset=23)
    scores = 8 * 4 * 16
    assert cost.macs == 2 * scores * 16
    # scale 1 and softmax 5·n − 2 a row
    assert cost.flops == 2 * 2 * scores * 16 + scores + 8 * 4 * (5 * 16 - 2)
    assert cost.transcendentals == scores


def test_present_keys_are_past_and_new_ones() -> None:
    found = shapes_of(GROUPED, opset=23)
    assert found["y"] == (1, 8, 4, 16)
    assert found["nk"] == found["nv"] == (1, 2, 16, 16)


def test_keys_and_values_are_read_with_their_own_heads() -> None:
    # q 1·8·4·16 floats; keys and values 2 · (12 + 4) · 16 · 2 heads
    assert cost_of(GROUPED, opset=23).input_bytes == 4 * (8 * 4 * 16 + 2 * 2 * 16 * 16)


def test_three_dimensional_inputs_split_into_heads_of_different_value_size() -> None:
    text = graph(
        "float[2,5,24] q, float[2,7,24] k, float[2,7,30] v",
        'y, "", "", qk = Attention <q_num_heads = 3, kv_num_heads = 3> (q, k, v)',
    )
    found = shapes_of(text, opset=23)
    assert found["y"] == (2, 5, 30)
    assert found["qk"] == (2, 3, 5, 7)
    assert cost_of(text, opset=23).macs == 2 * 3 * 5 * 7 * (8 + 10)


@pytest.mark.parametrize("opset", [23, 24, 25])
@pytest.mark.parametrize(
    ("attributes", "mask", "extra"),
    [
        ("", "", 0),
        ("<is_causal = 1>", "", 0),
        ("", ", m", 1),
        ("<softcap = 30.0>", "", 3),
        ("<softcap = 30.0, is_causal = 1>", ", m", 4),
        ("<qk_matmul_output_mode = 3>", "", 0),
    ],
)
def test_masks_and_caps_add_operations_per_score_but_no_products(
    opset: int, attributes: str, mask: str, extra: int
) -> None:
    text = graph(
        "float[1,2,3,8] q, float[1,2,6,8] k, float[1,2,6,8] v, float[3,6] m",
        f"y = Attention {attributes} (q, k, v{mask})",
    )
    cost = cost_of(text, opset=opset)
    scores = 2 * 3 * 6
    assert cost.macs == 2 * scores * 8
    assert cost.flops == 2 * 2 * scores * 8 + scores * (1 + extra) + 2 * 3 * (5 * 6 - 2)
    assert cost.transcendentals == scores * (2 if "softcap" in attributes else 1)


def test_attention_to_no_keys_costs_nothing() -> None:
    text = graph("float[1,2,3,8] q, float[1,2,0,8] k, float[1,2,0,8] v", "y = Attention(q, k, v)")
    assert cost_of(text, opset=23).flops == 0


@pytest.mark.parametrize(
    ("inputs", "attributes", "reason"),
    [
        ("float[1,5,24] q, float[1,5,24] k, float[1,5,24] v", "", "q_num_heads"),
        (
            "float[1,5,24] q, float[1,5,24] k, float[1,5,24] v",
            "<q_num_heads = 5, kv_num_heads = 5>",
            "does not split",
        ),
        ("float[1,8,5,24] q, float[1,3,5,24] k, float[1,3,5,24] v", "", "multiple"),
        ("float[1,8,5,24] q, float[1,8,5,16] k, float[1,8,5,16] v", "", "size"),
        ("float[1,8,5,24] q, float[1,5,24] k, float[1,5,24] v", "", "dimensions"),
    ],
)
def test_heads_that_do_not_fit_are_a_problem(inputs: str, attributes: str, reason: str) -> None:
    body = f"y = Attention {attributes} (q, k, v)"
    assert reason in problem_of(graph(inputs, body), opset=23)


# -- rotary embedding ------------------------------------------------------------------------


def test_a_rotation_costs_three_operations_per_rotated_channel() -> None:
    # 2·4·6 head vectors, of which 2 · 2 channels are rotated
    text = graph(
        "float[2,4,6,8] x, float[50,2] c, float[50,2] s, int64[2,6] p",
        "y = RotaryEmbedding <rotary_embedding_dim = 4> (x, c, s, p)",
    )
    cost = cost_of(text, opset=23)
    assert cost.flops == 3 * 2 * 4 * 6 * 4
    # x, 12 rows of both tables, positions
    assert cost.input_bytes == 4 * 2 * 4 * 6 * 8 + 2 * 12 * 2 * 4 + 12 * 8


def test_a_rotation_reads_no_more_rows_than_the_table_has() -> None:
    text = graph(
        "float[2,6,32] x, float[5,4] c, float[5,4] s, int64[2,6] p",
        "y = RotaryEmbedding <num_heads = 4> (x, c, s, p)",
    )
    cost = cost_of(text, opset=23)
    assert cost.flops == 3 * 2 * 6 * 32
    assert cost.input_bytes == 4 * 2 * 6 * 32 + 2 * 5 * 4 * 4 + 12 * 8


@pytest.mark.parametrize(("heads", "flops"), [(0, 3 * 2 * 6 * 32), (4, 3 * 2 * 6 * 4 * 6)])
def test_onnx_runtimes_rotation_takes_its_width_from_the_table(heads: int, flops: int) -> None:
    width = 3 if heads else 4
    rotary = f"num_heads = {heads}, rotary_embedding_dim = {6 if heads else 0}"
    text = graph(
        f"float[2,6,32] x, int64[1] p, float[9,{width}] c, float[9,{width}] s",
        f"y = com.microsoft.RotaryEmbedding <{rotary}> (x, p, c, s)",
    )
    cost = cost_of(text, opsets={"com.microsoft": 1})
    assert cost.flops == flops
    # one offset serves the whole batch: 6 rows of each table
    assert cost.input_bytes == 4 * 2 * 6 * 32 + 8 + 2 * 6 * width * 4


# -- linear attention ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "products", "others", "transcendentals"),
    [
        # per token: outer product and read-out of a 4 × 5 state for each of 2 heads; scale 2·5
        ("linear", 2 * 2 * 20, 10, 0),
        # + exp of 2 decays, decay of 2 states
        ("gated", 2 * 2 * 20, 10 + 2 + 40, 2),
        # + retrieval; v − retrieved and β for 2 · 5
        ("delta", 3 * 2 * 20, 10 + 20, 0),
        ("gated_delta", 3 * 2 * 20, 10 + 2 + 40 + 20, 2),
    ],
)
def test_linear_attention_counts_its_update_rule(
    rule: str, products: int, others: int, transcendentals: int
) -> None:
    text = graph(
        "float[1,7,8] q, float[1,7,8] k, float[1,7,10] v, float[1,2,4,5] s, "
        "float[1,7,2] g, float[1,7,2] b",
        f'y, z = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "{rule}"> '
        "(q, k, v, s, g, b)",
    )
    found, cost = shapes_of(text, opset=27), cost_of(text, opset=27)
    assert (found["y"], found["z"]) == ((1, 7, 10), (1, 2, 4, 5))
    assert cost.macs == 7 * products
    assert cost.flops == 7 * (2 * products + others)
    assert cost.transcendentals == 7 * transcendentals
