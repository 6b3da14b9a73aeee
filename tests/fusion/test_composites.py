"""Decomposed operators are seen whole, and near misses are not."""

from __future__ import annotations

import pytest

from onnxroof.fusion.plan import plan_for
from onnxroof.fusion.runtimes import EVERYTHING
from tests.fusion.plans import costed, kinds, plan, reasons

X = "g (float[2,4,8] x) => (float y) "

GELU_ERF = (
    "<float r = {1.41421356}, float one = {1.0}, float half = {0.5}> "
    "{ h = Div(x, r)  f = Erf(h)  a = Add(f, one)  m = Mul(x, a)  y = Mul(m, half) }"
)
GELU_TANH = (
    "<float three = {3.0}, float c = {0.044715}, float k = {0.79788456}, float one = {1.0}, "
    "float half = {0.5}> "
    "{ h = Mul(half, x)  p = Pow(x, three)  q = Mul(c, p)  s = Add(x, q)  u = Mul(s, k) "
    "t = Tanh(u)  a = Add(t, one)  y = Mul(h, a) }"
)
SWISH = "{ s = Sigmoid(x)  y = Mul(x, s) }"
HARD_SWISH = (
    "<float three = {3.0}, float zero = {0.0}, float six = {6.0}> "
    "{ a = Add(x, three)  c = Clip(a, zero, six)  m = Mul(x, c)  y = Div(m, six) }"
)
MISH = "{ s = Softplus(x)  t = Tanh(s)  y = Mul(x, t) }"
LAYER_NORM = (
    "<float two = {2.0}, float e = {0.00001}, float[8] g, float[8] b> "
    "{ m = ReduceMean<axes = [-1]>(x)  d = Sub(x, m)  q = Pow(d, two) "
    "v = ReduceMean<axes = [-1]>(q)  w = Add(v, e)  r = Sqrt(w)  n = Div(d, r) "
    "k = Mul(n, g)  y = Add(k, b) }"
)
RMS_NORM = (
    "<float two = {2.0}, float e = {0.00001}, float one = {1.0}, float[8] g> "
    "{ q = Pow(x, two)  v = ReduceMean<axes = [-1]>(q)  w = Add(v, e)  r = Sqrt(w) "
    "i = Div(one, r)  n = Mul(x, i)  y = Mul(g, n) }"
)
SOFTMAX = (
    "{ m = ReduceMax<axes = [-1]>(x)  d = Sub(x, m)  e = Exp(d) "
    "s = ReduceSum(e, ax)  y = Div(e, s) }"
)
L2_NORM = "<float e = {0.00001}> { n = ReduceL2<axes = [-1]>(x)  c = Clip(n, e)  y = Div(x, c) }"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (GELU_ERF, "gelu-erf"),
        (GELU_TANH, "gelu-tanh"),
        (SWISH, "swish"),
        (HARD_SWISH, "hard-swish"),
        (MISH, "mish"),
        (LAYER_NORM, "layer-normalization"),
        (RMS_NORM, "rms-normalization"),
        ("<int64[1] ax = {-1}> " + SOFTMAX, "softmax"),
        (L2_NORM, "l2-normalization"),
    ],
)
def test_one_kernel_that_reads_once_and_writes_once(body: str, rule: str) -> None:
    (kernel,) = plan(X + body, "tensorrt").kernels
    assert kernel.rule == rule
    assert kernel.input_bytes == kernel.output_bytes == 2 * 4 * 8 * 4


def test_other_constants_are_another_function() -> None:
    body = GELU_ERF.replace("1.41421356", "2.0")
    assert "gelu-erf" not in {k.rule for k in plan(X + body, "onnxruntime").kernels}


def test_an_intermediate_that_others_read_keeps_them_apart() -> None:
    text = "g (float[2,4,8] x) => (float y, float f) " + GELU_ERF
    assert len(plan(text).kernels) == 5
    assert reasons(text) == ["its intermediate result is a graph output"]


def test_gelu_behind_a_product_joins_its_kernel() -> None:
    text = "g (float[4,8] z) => (float y) <float[8,8] w, float[8] b, " + GELU_ERF[1:].replace(
        "{ h", "{ p = MatMul(z, w)  x = Add(p, b)  h", 1
    )
    assert kinds(text, "tensorrt") == ["MatMul+Add+Div+Erf+Add+Mul+Mul"]
    assert kinds(text, "onnxruntime") == ["MatMul+Add", "Div+Erf+Add+Mul+Mul"]


def test_the_residual_sum_joins_the_normalization_that_alone_reads_it() -> None:
    head = "g (float[2,8] x, float[2,8] r) => (float y{}) <float[8] g> "
    body = "{ s = Add(x, r)  y = LayerNormalization(s, g) }"
    assert kinds(head.format("") + body) == ["Add+LayerNormalization"]
    assert kinds(head.format(", float s") + body) == ["Add", "LayerNormalization"]


def test_the_sum_may_be_stored_and_normalized_at_once() -> None:
    text = (
        "g (float[2,8] x, float[2,8] r) => (float y, float z) <float[8] g> "
        "{ s = Add(x, r)  y = LayerNormalization(s, g)  z = Exp(s) }"
    )
    first, second = plan(text, "torch-compile").kernels
    assert (first.op_type, second.op_type) == ("Add+LayerNormalization", "Exp")
    # x and r in, s and y out; alone, the normalization would read s once more
    assert (first.input_bytes, first.output_bytes) == (2 * 64, 2 * 64)


def test_group_normalization_is_seen_through_its_reshapes() -> None:
    text = (
        "g (float[1,4,6,6] x) => (float y) <int64[3] s = {0,2,-1}, int64[4] t = {1,4,6,6}, "
        "float[2] one = {1,1}, float[2] zero = {0,0}, float[4,1,1] g, float[4,1,1] b> "
        "{ r = Reshape(x, s)  i = InstanceNormalization(r, one, zero)  u = Reshape(i, t) "
        "k = Mul(u, g)  y = Add(k, b) }"
    )
    (kernel,) = plan(text, "tensorrt").kernels
    assert kernel.op_type == "InstanceNormalization+Mul+Add"


ATTENTION = (
    "g (float[1,2,8,4] q, float[1,2,8,4] k, float[1,2,8,4] v, float[1,1,8,8] mask) => (float y) "
    "<float c = {0.5}> "
    "{ t = Transpose<perm = [0,1,3,2]>(k)  s = MatMul(q, t)  u = Mul(s, c)  m = Add(u, mask) "
    "p = Softmax<axis = -1>(m)  y = MatMul(p, v) }"
)


def test_flash_attention_never_writes_the_scores() -> None:
    (kernel,) = plan(ATTENTION, "tensorrt").kernels
    assert kernel.rule == "flash-attention"
    assert {"s", "u", "m", "p"} <= set(kernel.elided)
    # q, k, v of 64 elements each, a mask of 64, a scale, a result of 64
    assert kernel.traffic_bytes == (3 * 64 + 64 + 1 + 64) * 4
    assert kernel.macs == 2 * (2 * 8 * 8 * 4)


def test_queries_and_keys_that_one_node_scales_are_scaled_once() -> None:
    # x·c on both sides of the product is one Mul of 64 FLOPs; x, v and c are read, y is written
    text = (
        "g (float[1,2,8,4] x, float[1,2,8,4] v) => (float y) <float c = {0.5}> "
        "{ n = Mul(x, c)  t = Transpose<perm = [0,1,3,2]>(n)  s = MatMul(n, t) "
        "p = Softmax<axis = -1>(s)  y = MatMul(p, v) }"
    )
    (kernel,) = plan(text, "tensorrt").kernels
    assert kernel.rule == "flash-attention"
    assert kernel.nodes == (0, 1, 2, 3, 4)
    softmax = costed("g (float[1,2,8,8] x) => (float y) { y = Softmax<axis = -1>(x) }").nodes[0]
    assert kernel.flops == 2 * kernel.macs + 64 + softmax.flops
    assert kernel.traffic_bytes == (64 + 64 + 1 + 64) * 4


def test_a_scale_whose_result_is_also_the_values_stays_outside() -> None:
    # Blocks of V are read again and again: they have to be in memory, so n is
    text = (
        "g (float[1,4,4,4] x) => (float y) <float c = {0.5}> "
        "{ n = Mul(x, c)  s = MatMul(n, n)  p = Softmax<axis = -1>(s)  y = MatMul(p, n) }"
    )
    first, second = plan(text, "tensorrt").kernels
    assert (first.nodes, second.nodes) == ((0,), (1, 2, 3))
    assert second.rule == "flash-attention"


def test_scores_that_are_also_the_values_are_no_attention() -> None:
    text = (
        "g (float[1,4,4,4] q, float[1,4,4,4] k) => (float y) "
        "{ s = MatMul(q, k)  p = Softmax<axis = -1>(s)  y = MatMul(p, s) }"
    )
    assert all(kernel.rule != "flash-attention" for kernel in plan(text, "tensorrt").kernels)


def test_without_it_attention_is_separate_kernels() -> None:
    assert kinds(ATTENTION, "onnxruntime") == ["Transpose+MatMul+Mul", "Add", "Softmax", "MatMul"]


def test_repeated_heads_are_read_once() -> None:
    text = (
        "g (float[1,8,4,4] q, float[1,2,4,4] k, float[1,2,4,4] v) => (float y) "
        "<int64[5] e = {1,2,4,4,4}, int64[4] f = {1,8,4,4}, int64[1] two = {2}> "
        "{ ku = Unsqueeze(k, two)  ke = Expand(ku, e)  kr = Reshape(ke, f) "
        "vu = Unsqueeze(v, two)  ve = Expand(vu, e)  vr = Reshape(ve, f) "
        "t = Transpose<perm = [0,1,3,2]>(kr)  s = MatMul(q, t)  p = Softmax(s)  y = MatMul(p, vr) }"
    )
    (kernel,) = plan(text, "tensorrt").kernels
    assert kernel.rule == "flash-attention"
    # 8 query heads of 16 elements in and out, 2 key and 2 value heads of 16
    assert kernel.traffic_bytes == (128 + 32 + 32 + 128) * 4


def test_a_score_matrix_that_is_an_output_must_be_written() -> None:
    text = ATTENTION.replace("(float y)", "(float y, float p)")
    assert "flash-attention" not in {k.rule for k in plan(text, "tensorrt").kernels}
    assert "its intermediate result is a graph output" in reasons(text, "tensorrt")


def test_rotary_embedding_is_one_kernel() -> None:
    text = (
        "g (float[1,2,4,8] x, float[1,1,4,8] cos, float[1,1,4,8] sin) => (float y) "
        "<int64[1] zero = {0}, int64[1] four = {4}, int64[1] eight = {8}, int64[1] ax = {3}> "
        "{ a = Mul(x, cos)  s = Slice(x, zero, four, ax)  t = Slice(x, four, eight, ax) "
        "n = Neg(t)  r = Concat<axis = -1>(n, s)  b = Mul(r, sin)  y = Add(a, b) }"
    )
    (kernel,) = plan(text, "tensorrt").kernels
    assert kernel.rule == "rotary-embedding"
    # x and y of 64 elements, cos and sin of 32
    assert kernel.traffic_bytes == (64 + 32 + 32 + 64) * 4


def test_squeeze_and_excite_is_recognized_whole() -> None:
    text = (
        "g (float[1,4,6,6] x) => (float y) <float[2,4,1,1] w, float[4,2,1,1] u> "
        "{ g1 = GlobalAveragePool(x)  c = Conv(g1, w)  a = Relu(c)  d = Conv(a, u) "
        "s = Sigmoid(d)  y = Mul(x, s) }"
    )
    (kernel,) = plan_for(costed(text), EVERYTHING).kernels
    assert kernel.rule == "squeeze-excite"
    assert kinds(text) == ["GlobalAveragePool", "Conv+Relu", "Conv+Sigmoid", "Mul"]
