"""What folds into a convolution, what runs in its kernel, and what must not."""

from __future__ import annotations

import pytest

from tests.fusion.plans import kinds, plan, reasons

BATCHNORM = """
    float[4] s = {1,1,1,1}, float[4] b = {0,0,0,0}, float[4] m = {0,0,0,0}, float[4] v = {1,1,1,1}
"""
HEAD = f"g (float[1,3,8,8] x) => (float y) <float[4,3,3,3] w, {BATCHNORM}>"


def conv(after: str, head: str = HEAD) -> str:
    return head + "{ c = Conv<pads = [1,1,1,1]>(x, w) " + after + " }"


def test_batchnorm_and_activation_join_the_convolution() -> None:
    text = conv("n = BatchNormalization(c, s, b, m, v)  y = Relu(n)")
    (kernel,) = plan(text).kernels
    assert kernel.op_type == "Conv+BatchNormalization+Relu"
    assert kernel.elided == ("c", "n")
    # 1×4×8×8 outputs of 3·3·3 products each
    assert kernel.macs == 256 * 27
    # the folded normalization leaves a bias: one addition an output; one operation each for Relu
    assert kernel.flops == 2 * 256 * 27 + 256 + 256
    # 108 weights and 4 biases, which the unfolded convolution has not
    assert kernel.weight_bytes == (108 + 4) * 4
    assert kernel.input_bytes == 3 * 64 * 4
    assert kernel.output_bytes == 256 * 4


def test_identities_between_them_are_transparent() -> None:
    text = conv(
        "i = Identity(c)  n = BatchNormalization(i, s, b, m, v)  j = Identity(n)  y = Relu(j)"
    )
    assert kinds(text) == ["Conv+BatchNormalization+Relu"]


def test_a_bias_that_is_there_absorbs_the_shift() -> None:
    head = f"g (float[1,3,8,8] x) => (float y) <float[4,3,3,3] w, float[4] d, {BATCHNORM}>"
    text = head + "{ c = Conv<pads = [1,1,1,1]>(x, w, d)  y = BatchNormalization(c, s, b, m, v) }"
    (kernel,) = plan(text).kernels
    # the addition of the bias is in the convolution's own count already
    assert kernel.flops == 2 * 256 * 27 + 256
    assert kernel.weight_bytes == (108 + 4) * 4


def test_an_activation_in_between_stops_the_folding() -> None:
    text = conv("r = Relu(c)  y = BatchNormalization(r, s, b, m, v)")
    assert kinds(text) == ["Conv+Relu", "BatchNormalization"]
    assert any("Relu in between" in reason for reason in reasons(text))


def test_two_consumers_stop_the_folding() -> None:
    text = (
        f"g (float[1,3,8,8] x) => (float y, float z) <float[4,3,3,3] w, {BATCHNORM}>"
        "{ c = Conv<pads = [1,1,1,1]>(x, w)  n = BatchNormalization(c, s, b, m, v)  y = Relu(n)"
        "  z = Add(c, c) }"
    )
    assert kinds(text) == ["Conv", "BatchNormalization", "Relu", "Add"]
    assert "two consumers" in reasons(text)
    assert kinds(text, "basic") == ["Conv", "BatchNormalization+Relu", "Add"]


def test_a_graph_output_stays_visible() -> None:
    text = (
        f"g (float[1,3,8,8] x) => (float c, float y) <float[4,3,3,3] w, {BATCHNORM}>"
        "{ c = Conv<pads = [1,1,1,1]>(x, w)  y = BatchNormalization(c, s, b, m, v) }"
    )
    assert kinds(text) == ["Conv", "BatchNormalization"]
    assert reasons(text) == ["its intermediate result is a graph output"]


def test_statistics_that_are_inputs_do_not_fold() -> None:
    text = (
        "g (float[1,3,8,8] x, float[4] t) => (float y)"
        f"<float[4,3,3,3] w, {BATCHNORM}>"
        "{ c = Conv<pads = [1,1,1,1]>(x, w)  y = BatchNormalization(c, t, b, m, v) }"
    )
    assert kinds(text) == ["Conv", "BatchNormalization"]
    assert any("inputs of the run" in reason for reason in reasons(text))


def test_training_mode_does_not_fold() -> None:
    text = conv("y = BatchNormalization<training_mode = 1>(c, s, b, m, v)")
    assert kinds(text) == ["Conv", "BatchNormalization"]
    assert any("training mode" in reason for reason in reasons(text))


def test_weights_made_at_run_time_do_not_fold() -> None:
    text = (
        f"g (float[1,3,8,8] x, float[4,3,3,3] w) => (float y) <{BATCHNORM}>"
        "{ c = Conv<pads = [1,1,1,1]>(x, w)  y = BatchNormalization(c, s, b, m, v) }"
    )
    assert kinds(text) == ["Conv", "BatchNormalization"]
    assert any("weights are computed at run time" in reason for reason in reasons(text))


def test_scale_and_shift_per_channel_fold_in_a_row() -> None:
    text = (
        f"g (float[1,3,8,8] x) => (float y) <float[4,3,3,3] w, float[4,1,1] k, float[4,1,1] l,"
        f"{BATCHNORM}>"
        "{ c = Conv<pads = [1,1,1,1]>(x, w)  n = BatchNormalization(c, s, b, m, v)"
        "  p = Mul(n, k)  q = Add(p, l)  y = Relu(q) }"
    )
    assert kinds(text) == ["Conv+BatchNormalization+Mul+Add+Relu"]


def test_a_scale_alone_leaves_no_bias() -> None:
    text = "g (float[1,3,8,8] x) => (float y) <float[4,3,3,3] w, float[4,1,1] k>"
    (kernel,) = plan(text + "{ c = Conv(x, w)  y = Mul(c, k) }").kernels
    assert kernel.flops == 2 * 4 * 36 * 27
    assert kernel.weight_bytes == 108 * 4


def test_a_scale_per_pixel_does_not_fold() -> None:
    text = "g (float[1,3,8,8] x) => (float y) <float[4,3,3,3] w, float[1,1,6,6] k>"
    assert kinds(text + "{ c = Conv(x, w)  y = Mul(c, k) }") == ["Conv", "Mul"]


@pytest.mark.parametrize(
    ("shape", "weights"),
    [("1,3,8", "4,3,3"), ("1,3,8,8", "4,3,3,3"), ("1,3,8,8,8", "4,3,3,3,3")],
)
def test_any_rank_of_convolution_folds(shape: str, weights: str) -> None:
    text = f"g (float[{shape}] x) => (float y) <float[{weights}] w, {BATCHNORM}>"
    body = "{ c = Conv(x, w)  y = BatchNormalization(c, s, b, m, v) }"
    assert kinds(text + body) == ["Conv+BatchNormalization"]


def test_depthwise_and_transposed_convolutions_fold() -> None:
    depthwise = f"g (float[1,4,8,8] x) => (float y) <float[4,1,3,3] w, {BATCHNORM}>"
    body = "{ c = Conv<group = 4>(x, w)  y = BatchNormalization(c, s, b, m, v) }"
    assert kinds(depthwise + body) == ["Conv+BatchNormalization"]
    transposed = f"g (float[1,3,8,8] x) => (float y) <float[3,4,3,3] w, {BATCHNORM}>"
    body = "{ c = ConvTranspose(x, w)  y = BatchNormalization(c, s, b, m, v) }"
    assert kinds(transposed + body) == ["ConvTranspose+BatchNormalization"]


RESIDUAL = (
    "g (float[1,4,8,8] x) => (float y) <float[4,4,3,3] w> "
    "{ c = Conv<pads = [1,1,1,1]>(x, w)  a = Add(c, x)  y = Relu(a) }"
)


def test_residual_and_activation_join_where_the_runtime_has_it() -> None:
    (kernel,) = plan(RESIDUAL, "tensorrt").kernels
    assert kernel.op_type == "Conv+Add+Relu"
    # x is read once for both uses: 256 elements in, 144 weights, 256 out
    assert kernel.traffic_bytes == (256 + 144 + 256) * 4
    assert kinds(RESIDUAL, "onnxruntime") == ["Conv", "Add", "Relu"]
    assert kinds(RESIDUAL, "tflite") == ["Conv", "Add+Relu"]
    assert kinds(RESIDUAL, "basic") == ["Conv", "Add+Relu"]
    assert kinds(RESIDUAL, "none") == ["Conv", "Add", "Relu"]


def test_the_branch_that_ends_last_takes_the_addition() -> None:
    text = (
        "g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w, float[4,4,1,1] u> "
        "{ c = Conv(x, w)  d = Conv(x, u)  y = Add(c, d) }"
    )
    assert kinds(text, "tensorrt") == ["Conv", "Conv+Add"]


def test_clip_with_bounds_from_the_run_stays_outside() -> None:
    text = (
        "g (float[1,3,8,8] x, float lo, float hi) => (float y) <float[4,3,3,3] w>"
        "{ c = Conv(x, w)  y = Clip(c, lo, hi) }"
    )
    assert kinds(text) == ["Conv", "Clip"]
    assert any("bounds of Clip" in reason for reason in reasons(text))


PADDED = "g (float[1,3,8,8] x) => (float y) <float[4,3,3,3] w, int64[8] p = {0,0,1,1,0,0,1,1}>"


def test_zero_padding_becomes_the_convolutions_own() -> None:
    assert kinds(PADDED + "{ q = Pad(x, p)  y = Conv(q, w) }") == ["Pad+Conv"]


def test_other_padding_does_not() -> None:
    text = PADDED + '{ q = Pad<mode = "reflect">(x, p)  y = Conv(q, w) }'
    assert kinds(text) == ["Pad", "Conv"]
    assert any("reflect" in reason for reason in reasons(text))
    text = PADDED[:-1] + ", float one = {1.0}> { q = Pad(x, p, one)  y = Conv(q, w) }"
    assert kinds(text) == ["Pad", "Conv"]
    assert any("something else than zero" in reason for reason in reasons(text))


def test_padding_of_channels_does_not() -> None:
    text = (
        "g (float[1,2,8,8] x) => (float y) <float[4,3,3,3] w, int64[8] p = {0,0,0,0,0,1,0,0}>"
        "{ q = Pad(x, p)  y = Conv(q, w) }"
    )
    assert kinds(text) == ["Pad", "Conv"]


BEFORE = f"g (float[1,4,8,8] x) => (float y) <float[4,4,3,3] w, {BATCHNORM}>"


def test_batchnorm_before_folds_only_without_zero_padding() -> None:
    body = "{{ n = BatchNormalization(x, s, b, m, v)  y = Conv{}(n, w) }}"
    assert kinds(BEFORE + body.format(""), "tensorrt") == ["BatchNormalization+Conv"]
    padded = BEFORE + body.format("<pads = [1,1,1,1]>")
    assert kinds(padded, "tensorrt") == ["BatchNormalization", "Conv"]


def test_batchnorm_between_two_convolutions_folds_into_the_first() -> None:
    text = (
        f"g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w, float[4,4,1,1] u, {BATCHNORM}>"
        "{ c = Conv(x, w)  n = BatchNormalization(c, s, b, m, v)  y = Conv(n, u) }"
    )
    assert kinds(text, "tensorrt") == ["Conv+BatchNormalization", "Conv"]


@pytest.mark.parametrize(
    ("after", "kernels"),
    [
        ("y = Relu(c)", ["Conv+Relu"]),
        ("y = Tanh(c)", ["Conv+Tanh"]),
        ("l = Constant<value_float = 0.0>()  h = Constant<value_float = 6.0>()  y = Clip(c, l, h)",
         ["Conv+Clip"]),
        ("l = Constant<value_float = 0.0>()  h = Constant<value_float = 5.0>()  y = Clip(c, l, h)",
         ["Conv", "Clip"]),
        ("y = Sigmoid(c)", ["Conv", "Sigmoid"]),
        ("y = LeakyRelu(c)", ["Conv", "LeakyRelu"]),
    ],
)  # fmt: skip
def test_tensorflow_lite_fuses_the_activations_of_its_schema(
    after: str, kernels: list[str]
) -> None:
    text = f"g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w> {{ c = Conv(x, w)  {after} }}"
    assert kinds(text, "tflite") == kernels
