from __future__ import annotations

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shaped, shapes_of

CONTRIB = {"com.microsoft": 1}


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


# -- MatMul ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "y", "macs"),
    [
        ("[4,5]", "[5,6]", (4, 6), 4 * 6 * 5),
        ("[2,1,5,7]", "[3,7,4]", (2, 3, 5, 4), 2 * 3 * 5 * 4 * 7),
        ("[7]", "[7,4]", (4,), 4 * 7),
        ("[5,7]", "[7]", (5,), 5 * 7),
        ("[7]", "[7]", (), 7),
        ("[7]", "[3,7,4]", (3, 4), 3 * 4 * 7),
        ("[3,5,7]", "[7]", (3, 5), 3 * 5 * 7),
        ("[0,5]", "[5,6]", (0, 6), 0),
        ("[4,0]", "[0,6]", (4, 6), 0),
    ],
)
def test_a_matrix_product_follows_numpy(a: str, b: str, y: tuple[int, ...], macs: int) -> None:
    text = graph(f"float{a} a, float{b} b", "y = MatMul(a, b)")
    cost = cost_of(text)
    assert shapes_of(text)["y"] == y
    assert (cost.macs, cost.flops) == (macs, 2 * macs)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [("[4,5]", "[6,7]", "inner sizes"), ("[2,4,5]", "[3,5,6]", "broadcast"), ("", "[5]", "scalar")],
)
def test_operands_that_do_not_fit_are_a_problem(a: str, b: str, reason: str) -> None:
    assert reason in problem_of(graph(f"float{a} a, float{b} b", "y = MatMul(a, b)"))


# -- Gemm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", ["[6]", "[4,6]", "[1,6]", "[4,1]", "[1]", ""])
def test_an_addend_of_any_size_is_one_addition_per_output_element(c: str) -> None:
    text = graph(f"float[4,5] a, float[5,6] b, float{c} c", "y = Gemm(a, b, c)")
    cost = cost_of(text)
    assert shapes_of(text)["y"] == (4, 6)
    assert (cost.macs, cost.flops) == (4 * 5 * 6, 2 * 4 * 5 * 6 + 4 * 6)


@pytest.mark.parametrize("opset", [6, 7, 9, 11, 13])
@pytest.mark.parametrize(
    ("trans_a", "trans_b", "a", "b"),
    [(0, 0, "4,5", "5,6"), (1, 0, "5,4", "5,6"), (0, 1, "4,5", "6,5"), (1, 1, "5,4", "6,5")],
)
def test_gemm_transposes_either_matrix(
    opset: int, trans_a: int, trans_b: int, a: str, b: str
) -> None:
    text = graph(
        f"float[{a}] a, float[{b}] b, float[6] c",
        f"y = Gemm <transA = {trans_a}, transB = {trans_b}{', broadcast = 1' * (opset < 7)}>"
        " (a, b, c)",
    )
    assert shapes_of(text, opset=opset)["y"] == (4, 6)
    assert cost_of(text, opset=opset).macs == 4 * 5 * 6


def test_scalars_other_than_one_are_products() -> None:
    text = graph(
        "float[4,5] a, float[5,6] b, float[6] c", "y = Gemm <alpha = 0.5, beta = 2.0> (a, b, c)"
    )
    # alpha scales 24 products, beta the 6 elements of c, which is then added 24 times
    assert cost_of(text).flops == 2 * 120 + 24 + 6 + 24


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ("float[4,5] a, float[6,7] b, float[7] c", "inner sizes"),
        ("float[4,5] a, float[5,6] b, float[5] c", "broadcast"),
        ("float[4,5] a, float[5,6] b, float[1,4,6] c", "broadcast"),
        ("float[2,4,5] a, float[5,6] b, float[6] c", "dimensions"),
    ],
)
def test_gemm_that_cannot_be_is_a_problem(inputs: str, reason: str) -> None:
    assert reason in problem_of(graph(inputs, "y = Gemm(a, b, c)"))


# -- fused products --------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["FusedMatMul", "TransposeMatMul"])
def test_fused_products_transpose_the_last_two_axes(op: str) -> None:
    text = graph(
        "float[2,3,5,4] a, float[2,3,6,5] b",
        f"y = com.microsoft.{op} <transA = 1, transB = 1, alpha = 0.125> (a, b)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 4, 6)
    assert cost.macs == 6 * 4 * 6 * 5
    assert cost.flops == 2 * cost.macs + 6 * 4 * 6  # alpha


def test_a_transposed_batch_moves_the_first_axis_before_the_last() -> None:
    # a [4, 2, 3, 5] is multiplied as [2, 3, 4, 5]; b [7, 2, 3, 5] as [2, 3, 5, 7]
    text = graph(
        "float[4,2,3,5] a, float[7,2,3,5] b",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1, transB = 1> (a, b)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 4, 7)


def test_a_fused_activation_is_one_operation_per_element() -> None:
    text = graph(
        "float[4,5] a, float[5,6] b, float[6] c",
        'y = com.microsoft.FusedGemm <activation = "Tanh"> (a, b, c)',
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert (cost.flops, cost.transcendentals) == (240 + 24 + 24, 24)


def test_a_fused_softmax_goes_by_rows() -> None:
    text = graph(
        "float[4,5] a, float[5,6] b",
        'y = com.microsoft.FusedMatMulActivation <activation = "Softmax"> (a, b)',
    )
    assert cost_of(text, opsets=CONTRIB).flops == 240 + 4 * (5 * 6 - 2)


# -- integers --------------------------------------------------------------------------------


def test_an_integer_product_sums_in_32_bits() -> None:
    text = graph(
        "uint8[2,16] a, int8[16,8] b, uint8 az, int8 bz", "y = MatMulInteger(a, b, az, bz)"
    )
    tensors, _ = shaped(text)
    cost = cost_of(text)
    assert tensors.tensors["y"].dtype is DType.INT32
    assert cost.macs == 2 * 8 * 16
    # both operands are made at run time, so both are shifted by their zero points
    assert cost.flops == 2 * 256 + 2 * 16 + 16 * 8
    assert cost.compute_dtype is DType.INT8


def test_a_constant_weight_is_shifted_ahead_of_time() -> None:
    text = (
        "agraph (uint8[2,16] a, uint8 az, int8 bz) => (y) <int8[16,1] b = {"
        + ",".join(["1"] * 16)
        + "}> { y = MatMulInteger(a, b, az, bz) }"
    )
    assert cost_of(text).flops == 2 * 32 + 2 * 16


QUANTIZED = "uint8[2,5] a, float s, uint8 z, int8[5,6] b, float bs, int8 bz, float ys"


def test_a_quantized_product_has_the_type_of_its_output_zero_point() -> None:
    text = graph(QUANTIZED + ", int8 yz", "y = QLinearMatMul(a, s, z, b, bs, bz, ys, yz)")
    tensors, _ = shaped(text)
    assert tensors.tensors["y"].dtype is DType.INT8
    assert cost_of(text).flops == 2 * 60 + 10 + 30 + 12


@pytest.mark.parametrize(
    ("more", "dtype"), [(", c, ys, yz", DType.UINT8), (", c", DType.FLOAT), ("", DType.FLOAT)]
)
def test_quantized_gemm_stays_float_without_an_output_zero_point(more: str, dtype: DType) -> None:
    text = graph(
        QUANTIZED + ", uint8 yz, int32[6] c",
        f"y = com.microsoft.QGemm(a, s, z, b, bs, bz{more})",
    )
    tensors, _ = shaped(text, opsets=CONTRIB)
    assert tensors.tensors["y"].shape == (2, 6)
    assert tensors.tensors["y"].dtype is dtype
    assert cost_of(text, opsets=CONTRIB).macs == 60


def test_integers_scaled_to_float() -> None:
    text = graph(
        "uint8[3,2,5] a, int8[5,6] b, float s, float t, uint8 z, int8 u, float[6] bias",
        "y = com.microsoft.MatMulIntegerToFloat(a, b, s, t, z, u, bias)",
    )
    tensors, _ = shaped(text, opsets=CONTRIB)
    assert tensors.tensors["y"].shape == (3, 2, 6)
    assert tensors.tensors["y"].dtype is DType.FLOAT
    # zero points of 30 and 30 elements, then scale and bias of 36
    assert cost_of(text, opsets=CONTRIB).flops == 2 * 180 + 30 + 30 + 2 * 36


def test_float_quantized_on_the_fly_is_computed_in_8_bits() -> None:
    text = graph(
        "float[2,5] a, int8[5,6] b, float s, int8 z",
        "y = com.microsoft.DynamicQuantizeMatMul(a, b, s, z)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.flops == 2 * 60 + 4 * 10 + 12
    assert cost.compute_dtype is DType.INT8


# -- packed weights --------------------------------------------------------------------------


def test_packed_bits_multiply_in_the_type_of_the_activation() -> None:
    text = graph(
        "float16[2,3,64] a, uint8[10,2,16] b, float16[20] s",
        "y = com.microsoft.MatMulNBits <K = 64, N = 10, bits = 4, block_size = 32> (a, b, s)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 10)
    assert cost.macs == 6 * 10 * 64
    assert cost.flops == 2 * cost.macs + 64 * 10  # each weight is dequantized once
    assert cost.compute_dtype is DType.FLOAT16


def test_packed_bits_with_another_depth_are_a_problem() -> None:
    text = graph(
        "float[2,60] a, uint8[10,2,16] b, float[20] s",
        "y = com.microsoft.MatMulNBits <K = 64, N = 10, bits = 4, block_size = 32> (a, b, s)",
    )
    assert "K" in problem_of(text, opsets=CONTRIB)


@pytest.mark.parametrize(
    ("trans", "a", "y"), [("", "2,64", (2, 10)), ("transB = 0,", "2,10", (2, 64))]
)
def test_four_bit_floats_multiply_either_way(trans: str, a: str, y: tuple[int, int]) -> None:
    text = graph(
        f"float[{a}] a, uint8[320] b, float[10] s",
        f"y = com.microsoft.MatMulBnb4 <{trans} K = 64, N = 10, block_size = 64, quant_type = 1>"
        " (a, b, s)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == y
    assert cost_of(text, opsets=CONTRIB).macs == 2 * 640


def test_a_blob_says_its_shape_in_an_input() -> None:
    text = graph(
        "float[2,64] a, uint8[400] b",
        "s = Constant <value_ints = [64,10]> ()"
        " y = com.microsoft.MatMulFpQ4 <blk_quant_type = 0> (a, b, s)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 10)


# -- experts ---------------------------------------------------------------------------------


def test_each_token_passes_through_k_experts() -> None:
    text = graph(
        "float[2,3,8] x, float[6,4] r, float[4,16,8] w1, float[4,16] b1, float[4,8,16] w2",
        'y = com.microsoft.MoE <k = 2, activation_type = "relu"> (x, r, w1, b1, w2)',
    )
    cost = cost_of(text, opsets=CONTRIB)
    tokens, k = 6, 2
    assert shapes_of(text, opsets=CONTRIB)["y"] == (2, 3, 8)
    assert cost.macs == tokens * k * (16 * 8 + 8 * 16)
    # bias and activation of 16, softmax over 4 experts, two outputs of 8 weighed and added
    assert cost.flops == 2 * cost.macs + tokens * (k * (16 + 16) + (5 * 4 - 2) + 8 * 3)


def test_one_token_reads_its_own_experts_alone() -> None:
    text = (
        "agraph (float[1,8] x, float[1,4] r, float[4,16,8] w1, float[4,8,16] w2) => (y)"
        ' { y = com.microsoft.MoE <k = 1> (x, r, w1, "", w2) }'
    )
    cost = cost_of(text.replace('""', ""), opsets=CONTRIB)
    # x and router, then one of four experts' two 16 × 8 matrices
    assert cost.input_bytes == 4 * (8 + 4 + 2 * 16 * 8)


def test_packed_experts_hold_several_weights_a_byte() -> None:
    text = graph(
        "float[6,8] x, float[6,4] r, uint8[4,16,4] w1, float[4,16] s1, uint8[4,8,8] w2,"
        " float[4,8] s2",
        "y = com.microsoft.QMoE <k = 2, expert_weight_bits = 4> (x, r, w1, s1, , w2, s2)",
    )
    assert cost_of(text, opsets=CONTRIB).macs == 6 * 2 * (16 * 8 + 8 * 16)


def test_a_gate_multiplies_after_its_activation() -> None:
    text = graph(
        "float[6,8] x, float[6,4] r, float[4,32,8] w1, float[4,8,16] w2",
        'y = com.microsoft.MoE <k = 1, activation_type = "swiglu", swiglu_fusion = 1>'
        " (x, r, w1, , w2)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.macs == 6 * (32 * 8 + 8 * 16)
    assert cost.flops == 2 * cost.macs + 6 * (2 * 16 + (5 * 4 - 2) + 8)


def test_experts_packed_in_blocks() -> None:
    text = graph(
        "float[6,8] x, float[6,4] r, uint8[4,16,5] g, uint8[4,16,5] u, uint8[4,8,9] d",
        "y = com.microsoft.MoEPacked <k = 2, gate_type = 2, up_type = 2, down_type = 2>"
        " (x, r, g, u, d)",
    )
    assert shapes_of(text, opsets=CONTRIB)["y"] == (6, 8)
    assert cost_of(text, opsets=CONTRIB).macs == 6 * 2 * 3 * 8 * 16


def test_three_projections_share_one_normalized_input() -> None:
    text = (
        "agraph (float[2,64] a, float[2,64] k, float[64] n, uint8[32,2,16] b, float[64] s,"
        " uint8[16,2,16] c, float[32] t) => (q, kk, v, r) { q, kk, v, r ="
        " com.microsoft.MatMulNBitsQkv <K = 64, Nq = 32, Nkv = 16, bits = 4, block_size = 32>"
        " (a, k, n, b, s, , c, t, , c, t) }"
    )
    shapes = shapes_of(text, opsets=CONTRIB)
    cost = cost_of(text, opsets=CONTRIB)
    assert [shapes[name] for name in ("q", "kk", "v", "r")] == [(2, 32), (2, 16), (2, 16), (2, 64)]
    assert cost.macs == 2 * 64 * 64
    # dequantization, residual, 4n + 2 per row
    assert cost.flops == 2 * cost.macs + 64 * 64 + 128 + 2 * (4 * 64 + 2)


def test_a_gated_projection_multiplies_its_halves() -> None:
    text = graph(
        "float[2,64] a, uint8[32,2,16] b, float[64] s, float[32] d",
        'y = com.microsoft.MatMulNBitsMlp <K = 64, N = 32, activation = "silu", block_size = 32>'
        " (a, , , b, s, d, b, s)",
    )
    cost = cost_of(text, opsets=CONTRIB)
    assert cost.macs == 2 * 2 * 32 * 64
    assert cost.flops == 2 * cost.macs + 2 * 64 * 32 + 3 * 64


@pytest.mark.parametrize(("stored", "rank"), [(8, 8), (0, 0)])
def test_a_low_rank_adapter_may_be_empty(stored: int, rank: int) -> None:
    text = graph(
        f"float[2,64] x, uint8[10,2,16] w, float[20] s, uint8[{stored},2,16] a, float[8,2] t,"
        " uint8[10,1,16] b, float[10,1] u",
        "y = com.microsoft.MatMulNBitsQLoRA <K = 64, N = 10> (x, w, s, a, t, b, u)",
    )
    assert cost_of(text, opsets=CONTRIB).macs == 2 * (640 + rank * (64 + 10))


# -- Det -------------------------------------------------------------------------------------


def test_a_determinant_is_an_elimination() -> None:
    text = graph("float[5,3,3] x", "y = Det(x)")
    # step 2: 2 quotients, 4 products and differences; step 1: 1 and 1; diagonal: 2 products
    assert shapes_of(text)["y"] == (5,)
    assert cost_of(text).flops == 5 * (2 + 2 * 4 + 1 + 2 * 1 + 2)
