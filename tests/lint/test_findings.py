"""Cases that the rules' own examples do not show, each from somebody's bug."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxroof.api import analyze
from onnxroof.hardware.read import load_profile
from onnxroof.lint.command import lint
from tests.builders import model
from tests.lint.examples import findings_of, with_weights

if TYPE_CHECKING:
    from onnxroof.lint.rule import Finding

CONV = """agraph (float[1,4,8,8] x, float[8,4,3,3] W) => (float[1,8,8,8] y)
{ y = Conv<pads = [1, 1, 1, 1]> (x, W) }"""


def filled(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """The model with inputs of these names turned into weights."""
    proto = model(text, opset=17)
    for item in list(proto.graph.input):
        if item.name in weights:
            proto.graph.input.remove(item)
            proto.graph.initializer.append(numpy_helper.from_array(weights[item.name], item.name))
    return proto


def linted(proto: onnx.ModelProto, hardware: str = "") -> dict[str, Finding]:
    content = proto.SerializeToString()
    analysis = analyze(content, (hardware,) if hardware else ())
    return {f.name: f for f in lint(analysis, weights=True, content=content).findings}


def denormal() -> np.ndarray:
    """90 of 288 values are 1e-40, 10 are zero, one is exactly the smallest normal number."""
    values = np.random.default_rng(0).standard_normal(288).astype(np.float32)
    values[:180:2] = 1e-40
    values[1:21:2] = 0.0
    values[287] = np.finfo(np.float32).tiny
    return values.reshape(8, 4, 3, 3)


def test_zeros_and_the_smallest_normal_number_are_no_denormal_weights() -> None:
    finding = linted(filled(CONV, W=denormal()))["denormal-weights"]
    facts = dict(finding.facts)
    assert (facts["count"], facts["fraction"], facts["tensor"]) == (90, 0.3125, "W")
    assert finding.tensors == ("W",)
    assert finding.nodes == ("Conv#0",)


def test_a_processor_that_traps_is_expected_to_be_slower() -> None:
    finding = linted(filled(CONV, W=denormal()), "10980xe")["denormal-weights"]
    # 18432 MACs in registers of 16 lanes are 1152 instructions; at least the subnormal share of
    # them, 0.3125, takes 55 ns longer, spread over 16 cores
    assert finding.saving_seconds == pytest.approx(18432 / 16 * 0.3125 * 55e-9 / 16)
    assert "10980xe traps on them" in finding.message
    assert "times slower" in finding.message


@pytest.mark.parametrize("hardware", ["v100", "mobile-arm"])
def test_a_device_that_does_not_trap_is_not(hardware: str) -> None:
    finding = linted(filled(CONV, W=denormal()), hardware)["denormal-weights"]
    assert not finding.saving_seconds
    assert "at full speed" in finding.message


def test_weights_whose_products_are_subnormal_are_reported() -> None:
    values = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    values[2] = 1e-34
    finding = linted(filled(CONV, W=values))["denormal-weights"]
    assert dict(finding.facts)["count"] == 0
    assert dict(finding.facts)["tiny_count"] == 36


def test_small_fp16_weights_lose_precision_and_are_not_called_denormal() -> None:
    values = np.full((64, 64), 3e-5, np.float16)
    values[:32] = 0.5
    text = "agraph (float16[2,64] x, float16[64,64] w) => (float16[2,64] y) { y = MatMul (x, w) }"
    found = linted(filled(text, w=values))
    assert "denormal-weights" not in found
    assert dict(found["fp16-range-weights"].facts)["subnormal_count"] == 32 * 64


def test_two_equal_weights_could_be_one() -> None:
    values = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    text = """agraph (float[2,16] x, float[16,16] W1, float[16,16] W2) => (float[2,16] y)
    { h = MatMul (x, W1)  y = MatMul (h, W2) }"""
    finding = linted(filled(text, W1=values, W2=values.copy()))["duplicate-initializer"]
    assert finding.tensors == ("W1", "W2")
    assert dict(finding.facts)["bytes_saved"] == 16 * 16 * 4


def test_one_differing_value_makes_two_weights() -> None:
    values = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    other = values.copy()
    other[33, 1] += 1
    text = """agraph (float[2,64] x, float[64,64] a, float[64,64] b) => (float[2,64] y)
    { h = MatMul (x, a)  y = MatMul (h, b) }"""
    assert "duplicate-initializer" not in linted(filled(text, a=values, b=other))


def test_a_tensor_two_nodes_share_is_no_duplicate() -> None:
    values = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    text = """agraph (float[2,64] x, float[64,64] a) => (float[2,64] y)
    { h = MatMul (x, a)  y = MatMul (h, a) }"""
    assert linted(filled(text, a=values)) == {}


def test_dead_channels_of_a_convolution_are_priced() -> None:
    values = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    values[[1, 6]] = 0
    finding = linted(filled(CONV, W=values), "mobile-arm")["zero-channels"]
    assert dict(finding.facts)["count"] == 2
    assert finding.saving_bytes == 2 * 4 * 9 * 4
    assert (finding.saving_seconds or 0) > 0


def test_two_readers_keep_a_normalization_apart() -> None:
    found = findings_of("""agraph (float[1,3,8,8] x) => (float[1,4,6,6] y, float[1,4,6,6] z)
    <float[4,3,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v>
    { a = Conv (x, w)  n = BatchNormalization (a, s, b, m, v)  y = Relu (n)  z = Add (a, a) }""")
    (finding,) = found
    assert finding.name == "unfused-batch-normalization"
    assert "two consumers" in finding.message


def test_the_activation_before_a_normalization_names_its_output() -> None:
    (finding,) = findings_of("""agraph (float[1,3,8,8] x) => (float[1,4,6,6] y)
    <float[4,3,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v>
    { a = Conv (x, w)  r = LeakyRelu (a)  y = BatchNormalization (r, s, b, m, v) }""")
    assert finding.name == "unfusable-conv-act-bn"
    assert dict(finding.facts)["node_output"] == "y"
    assert finding.saving_bytes == 2 * 4 * 36 * 4 + 4 * 4 * 4  # in, out, four vectors of 4


@pytest.mark.parametrize(
    ("opset", "attributes", "outputs", "is_training"),
    [(15, "training_mode = 1", 3, True), (15, "epsilon = 0.1", 1, False),
     (9, "epsilon = 0.1", 1, False), (9, "epsilon = 0.1", 5, True)],
)  # fmt: skip
def test_training_mode_is_told_as_each_opset_says(
    opset: int, attributes: str, outputs: int, is_training: bool
) -> None:
    names = ", ".join(["y", "a", "b", "c", "d"][:outputs])
    found = findings_of(f"""# opset {opset}
agraph (float[2,3,4,4] x) => (float[2,3,4,4] y)
<float[3] s, float[3] h, float[3] m, float[3] v>
{{ {names} = BatchNormalization<{attributes}> (x, s, h, m, v) }}""")
    assert ("batchnorm-training-mode" in {f.name for f in found}) == is_training


def test_casts_that_round_are_not_redundant() -> None:
    assert (
        findings_of("""agraph (float[1,64] x) => (float[1,64] y)
    { a = Cast<to = 10> (x)  b = Cast<to = 1> (a)  y = Relu (b) }""")
        == ()
    )


def test_transposes_that_do_not_cancel_are_composed() -> None:
    (finding,) = findings_of("""agraph (float[2,3,4] x) => (float[3,4,2] y)
    { a = Transpose<perm = [1, 0, 2]> (x)  b = Transpose<perm = [0, 2, 1]> (a)  y = Relu (b) }""")
    # b[i,j,k] = a[i,k,j] = x[k,i,j]: axes 1, 2, 0 of x
    assert "perm = [1, 2, 0]" in finding.message


def test_a_copied_pair_of_nodes_is_one_finding() -> None:
    (finding,) = findings_of("""agraph (float[1,64] x) => (float[1,64] y)
    { a = Sigmoid (x)  b = Relu (a)  c = Sigmoid (x)  d = Relu (c)  y = Add (b, d) }""")
    assert finding.name == "duplicate-subgraph"
    assert finding.nodes == ("Sigmoid#2", "Relu#3")


def test_random_numbers_drawn_twice_are_no_duplicates() -> None:
    found = findings_of("""agraph (float[1,64] x) => (float[1,64] y)
    { a = RandomNormalLike (x)  b = RandomNormalLike (x)  y = Add (a, b) }""")
    assert "duplicate-subgraph" not in {finding.name for finding in found}


def test_the_output_a_loss_needs_is_cut() -> None:
    found = findings_of("""agraph (float[2,8] x, int64[2] t) => (float y)
    { y = SoftmaxCrossEntropyLoss (x, t) }""")
    assert "training-leftover" in {finding.name for finding in found}


def test_the_padded_size_and_the_wasted_work_are_named() -> None:
    proto = with_weights(model(
        "agraph (float16[64,588] x) => (float16[64,1024] y) <float16[588,1024] w>"
        " { y = MatMul (x, w) }"
    ))  # fmt: skip
    found = {f.name: f for f in lint(analyze(proto.SerializeToString(), ("v100",))).findings}
    facts = dict(found["misaligned-channels"].facts)
    assert facts["padded_input_channels"] == 592
    assert facts["wasted_macs"] == 64 * 4 * 1024


def test_every_shipped_profile_says_what_lint_asks_for() -> None:
    for name in ("v100", "mobile-arm", "10980xe"):
        profile = load_profile(name)
        assert profile.denormal_penalty_seconds is not None
        assert any(engine.channel_multiples for _, engine in profile.engines())


def test_a_grouped_convolution_is_told_by_the_two_times_that_are_compared() -> None:
    # 8·256·56·56 = 6,422,528 elements in and out in fp32, and 256·9 weights: 51,389,440 bytes over
    # 900 GB/s are 57.1 µs; 2 · 9 operations each, 115,605,504 over 15.7 TFLOP/s, are 7.36 µs
    text = """agraph (float[8,256,56,56] x, float[256,1,3,3] W) => (float[8,256,56,56] y)
    { y = Conv<group = 256, pads = [1, 1, 1, 1]> (x, W) }"""
    weights = np.ones((256, 1, 3, 3), np.float32)
    finding = linted(filled(text, W=weights), "v100")["memory-bound-grouped-convolution"]
    assert "does 2.25 FLOP/byte: its arithmetic takes 7.36 µs, its traffic 57.1 µs" in (
        finding.message
    )


def test_activations_are_held_against_a_cache_as_the_budgets_of_a_report_do() -> None:
    # x and its convolution are 64·120·120·4 = 3,686,400 bytes each; l3 has 4 MiB, which are
    # 4.19 MB. Convolution and ReLU are one kernel.
    text = """agraph (float[1,64,120,120] x, float[64,64,3,3] w) => (float y) {
        a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]> (x)
        b = Conv<pads = [1, 1, 1, 1]> (x, w)
        c = Relu (b)
        d = MaxPool<kernel_shape = [8, 8], strides = [8, 8]> (c)
        e = ReduceSum<keepdims = 0> (d)
        f = ReduceSum<keepdims = 0> (a)
        y = Add (e, f)
    }"""
    analysis = analyze(model(text), "mobile-arm")
    held = analysis.memory.fused_peak
    # x, w of 64·64·9·4 = 147,456, the pooled x of a quarter, and the convolution with its ReLU
    assert held.nbytes == 3_686_400 + 147_456 + 921_600 + 3_686_400
    (budget,) = [
        item for item in analysis.to_dict()["memory"]["budgets"] if item["level"] == "l3"
    ]  # fmt: skip
    assert budget["needed_bytes"] == held.nbytes
    over = [nbytes for nbytes in analysis.memory.fused_live_bytes if nbytes > 4 * 2**20]
    assert len(over) > 0.1 * len(analysis.kernels.kernels)  # more than a few: nothing to say
    few = "\n".join(f"z{at} = Neg (z{at - 1})" for at in range(1, 60))
    text = text.replace("y = Add (e, f)", f"z0 = Add (e, f)\n{few}\ny = Neg (z59)")
    finding = linted(model(text), "mobile-arm")["few-nodes-exceed-cache"]
    # the pools before and after the convolution hold a tensor of 3,686,400 and one of 921,600
    assert finding.message == (
        "8.44 MB of activations after fusion at Conv#1 and 2 more exceed the 4.19 MB of l3, as they"
        " do at 3 of 66 kernels"
    )


def test_what_fits_after_fusion_is_no_finding() -> None:
    # node by node a and its ReLU are 2·2,097,152 bytes beside x, over the 4 MiB of l3; as one
    # kernel x and b are 64·64·64·4 = 1,048,576 and 2,097,152
    text = """agraph (float[1,64,64,64] x, float[128,64,1,1] w) => (float y) {
        a = Conv (x, w)   b = Relu (a)   s = ReduceSum<keepdims = 0> (b)
        t = ReduceSum<keepdims = 0> (x)  u = Add (s, t)
        %s
        y = Neg (u)
    }"""
    few = "\n".join(f"z{at} = Neg ({'u' if at == 0 else f'z{at - 1}'})" for at in range(30))
    analysis = analyze(model(text % few), "mobile-arm")
    assert analysis.memory.peak_activation_bytes > 4 * 2**20
    assert analysis.memory.fused_peak.nbytes < 4 * 2**20
    assert "few-nodes-exceed-cache" not in linted(model(text % few), "mobile-arm")


def test_main_memory_is_held_against_what_the_budgets_of_a_report_hold_against_it() -> None:
    text = "agraph (float[65536,65536] x) => (float[65536,65536] y) { y = Relu (x) }"
    analysis = analyze(model(text), "v100")
    (budget,) = [
        item for item in analysis.to_dict()["memory"]["budgets"] if item["level"] == "dram"
    ]  # fmt: skip
    finding = linted(model(text), "v100")["peak-exceeds-main-memory"]
    # two tensors of 4·2³² bytes on 16 GiB
    assert budget["excess_bytes"] == 2 * 4 * 2**32 - 16 * 2**30
    assert "activations (34.4 GB) do not fit the 17.2 GB of dram" in finding.message
    assert finding.saving_bytes == budget["excess_bytes"]
