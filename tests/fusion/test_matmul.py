"""Matrix products with bias, scale, transposed operands and activation."""

from __future__ import annotations

from tests.fusion.plans import kinds, plan

HEAD = "g (float[4,8] x) => (float y) <float[8,16] w, float[16] b> "


def test_a_bias_joins_the_product() -> None:
    (kernel,) = plan(HEAD + "{ p = MatMul(x, w)  y = Add(b, p) }").kernels
    assert kernel.op_type == "MatMul+Add"
    assert kernel.flops == 2 * 4 * 8 * 16 + 4 * 16
    assert kernel.traffic_bytes == (4 * 8 + 8 * 16 + 16 + 4 * 16) * 4


def test_an_activation_joins_behind_the_bias() -> None:
    text = HEAD + "{ p = MatMul(x, w)  q = Add(p, b)  y = Relu(q) }"
    assert kinds(text, "basic") == ["MatMul+Add+Relu"]
    assert kinds(text, "torch-compile") == ["MatMul", "Add+Relu"]


def test_two_activations_are_two_kernels() -> None:
    text = HEAD + "{ p = Gemm(x, w, b)  q = Relu(p)  y = Tanh(q) }"
    assert kinds(text) == ["Gemm+Relu", "Tanh"]


def test_batchnorm_of_columns_folds_into_gemm() -> None:
    text = (
        "g (float[4,8] x) => (float y) "
        "<float[8,4] w, float[4] s, float[4] b, float[4] m, float[4] v>"
        "{ p = Gemm(x, w)  y = BatchNormalization(p, s, b, m, v) }"
    )
    assert kinds(text) == ["Gemm+BatchNormalization"]


SCORES = (
    "g (float[2,4,8,16] q, float[2,4,8,16] k) => (float y) <float c = {{0.25}}> "
    "{{ t = Transpose<perm = [{}]>(k)  s = Mul(q, c)  y = MatMul(s, t) }}"
)


def test_scale_and_swapped_axes_join_a_product_of_activations() -> None:
    assert kinds(SCORES.format("0,1,3,2")) == ["Transpose+Mul+MatMul"]


def test_a_transpose_that_moves_heads_is_a_copy() -> None:
    text = (
        "g (float[2,8,4,16] x, float[2,4,16,8] k) => (float y) "
        "{ q = Transpose<perm = [0,2,1,3]>(x)  y = MatMul(q, k) }"
    )
    assert kinds(text) == ["Transpose", "MatMul"]
    assert kinds(text, "none") == ["MatMul"]  # cuBLAS and friends follow the strides


def test_a_masks_addition_is_no_bias() -> None:
    text = (
        "g (float[2,8,16] q, float[2,16,8] k, float[2,1,8] mask) => (float y) "
        "{ s = MatMul(q, k)  y = Add(s, mask) }"
    )
    assert kinds(text) == ["MatMul", "Add"]


def test_residual_joins_where_the_runtime_has_it() -> None:
    text = (
        "g (float[4,8] x) => (float y) <float[8,8] w, float[8] b> "
        "{ p = MatMul(x, w)  q = Add(p, b)  y = Add(q, x) }"
    )
    assert kinds(text, "tensorrt") == ["MatMul+Add+Add"]
    assert kinds(text, "onnxruntime") == ["MatMul+Add", "Add"]
