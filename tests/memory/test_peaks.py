"""Liveness, in place, views aliased, preallocated, average, after fusion."""

from __future__ import annotations

import pytest

from onnxroof.bounded import lower, upper
from onnxroof.fusion.plan import plan_kernels
from onnxroof.memory import plan_memory
from tests.fusion.plans import NAMES, model_cost
from tests.memory.plans import memory

CHAIN = (
    "g (float[1,3,16,16] x) => (float d) <float[8,3,3,3] w, float[16,8,3,3] u> "
    "{ a = Conv<pads = [1,1,1,1]>(x, w)  b = Relu(a) "
    "c = Conv<strides = [2,2], pads = [1,1,1,1]>(b, u)  d = GlobalAveragePool(c) }"
)
# bytes: x 3·256·4 = 3072, a and b 8·256·4 = 8192, c 16·64·4 = 4096, d 64


def test_a_chain_peaks_where_its_two_largest_tensors_meet() -> None:
    plan = memory(CHAIN)
    assert plan.live_bytes == (3072 + 8192, 8192 + 8192, 8192 + 4096, 4096 + 64)
    assert plan.peak_activation_bytes == 16384
    assert plan.peak_node is not None
    assert (plan.peak_node.index, plan.peak_node.label) == (1, "Relu#1")
    assert [(t.name, t.nbytes) for t in plan.peak_tensors] == [("a", 8192), ("b", 8192)]


def test_weights_are_kept_apart() -> None:
    assert memory(CHAIN).weight_bytes == (8 * 3 * 9 + 16 * 8 * 9) * 4


def test_in_place_an_activation_needs_no_second_buffer() -> None:
    peak = memory(CHAIN).in_place_peak
    assert peak.nbytes == 8192 + 4096
    assert peak.step is not None
    assert peak.step.label == "Conv#2"


def test_preallocated_every_tensor_has_its_own() -> None:
    plan = memory(CHAIN)
    assert plan.preallocated_bytes == 3072 + 8192 + 8192 + 4096 + 64
    assert plan.average_bytes == sum(plan.live_bytes) / 4


def test_after_fusion_the_intermediate_never_exists() -> None:
    plan = memory(CHAIN, "basic")
    # Conv+Relu: x and b; Conv: b and c
    assert plan.fused_peak.nbytes == 8192 + 4096
    assert plan.fused_peak.workspace_bytes == 0


def test_im2col_unrolls_the_input_where_the_runtime_does_so() -> None:
    plan = memory(CHAIN, "onnxruntime")
    # The first convolution: x and b, and x nine times unrolled: 3·9·16·16 elements. The second has
    # stride 2: b is read at a quarter of its positions, 8·9·8·8 elements, so it needs less.
    assert plan.fused_peak.nbytes == 3072 + 8192 + 9 * 3072
    assert plan.fused_peak.workspace_bytes == 9 * 3072


def test_a_depthwise_convolution_needs_no_workspace() -> None:
    text = (
        "g (float[1,8,16,16] x) => (float y) <float[8,1,3,3] w> "
        "{ y = Conv<group = 8, pads = [1,1,1,1]>(x, w) }"
    )
    assert memory(text, "onnxruntime").fused_peak.workspace_bytes == 0


def test_a_1x1_convolution_needs_no_workspace() -> None:
    text = "g (float[1,3,16,16] x) => (float y) <float[8,3,1,1] w> { y = Conv(x, w) }"
    assert memory(text).fused_peak.workspace_bytes == 0


def test_a_view_shares_its_sources_buffer() -> None:
    text = (
        "g (float[1,8] x) => (float y) <float[8,4096] w, int64[2] s = {64,64}> "
        "{ a = MatMul(x, w)  b = Reshape(a, s)  y = ReduceSum<keepdims = 0>(b) }"
    )
    plan = memory(text)
    assert plan.peak_activation_bytes == 2 * 16384
    assert plan.aliased_peak.nbytes == 32 + 16384


def test_a_tensor_read_twice_by_its_last_reader_is_freed_once() -> None:
    text = "g (float[4] x) => (float z) { a = Neg(x)  y = Mul(a, a)  z = Neg(y) }"
    assert memory(text).live_bytes == (32, 32, 32)


def test_an_input_lives_to_its_last_use_and_an_output_to_the_end() -> None:
    text = "g (float[4] x) => (float a, float c) { a = Neg(x)  b = Exp(x)  c = Exp(b) }"
    # x a | x a b | a b c
    assert memory(text).live_bytes == (32, 48, 48)


def test_an_input_nobody_reads_is_never_alive() -> None:
    text = "g (float[4] x, float[1000] unused) => (float y) { y = Neg(x) }"
    assert memory(text).peak_activation_bytes == 32


def test_the_callers_input_is_not_overwritten() -> None:
    text = "g (float[4] x) => (float y) { y = Neg(x) }"
    assert memory(text).in_place_peak.nbytes == 32


def test_a_residual_sum_is_written_over_an_operand_of_its_size() -> None:
    text = "g (float[4] x) => (float y) { a = Exp(x)  b = Exp(a)  c = Add(a, b)  y = Exp(c) }"
    # c goes over a, which nobody needs any more; b is still read
    assert memory(text).in_place_peak.nbytes == 32


def test_a_concat_written_in_place_is_counted_once() -> None:
    text = (
        "g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w, float[4,4,1,1] u> "
        "{ a = Conv(x, w)  b = Conv(x, u)  c = Concat<axis = 1>(a, b)  y = Relu(c) }"
    )
    # x 1024 and the buffer of 2048; then the buffer and y
    assert memory(text, "tensorrt").fused_peak.nbytes == 2048 + 2048
    assert memory(text, "onnxruntime").fused_peak.nbytes == 2048 + 2048


def test_a_tensor_of_unknown_size_makes_the_peak_a_lower_bound() -> None:
    text = "g (float[4] x) => (float y) { z = Nobody(x)  y = Neg(x) }"
    plan = memory(text)
    assert plan.unknown == ("z",)
    assert plan.is_lower_bound


LOOP = """g (float[64] x) => (float y) <int64 trips = {10}, bool go = {1}> {
    y = Loop (trips, go, x) <body = b (int64 i, bool c, float[64] s) => (bool d, float[64] t) {
        d = Identity(c)
        u = Exp(s)
        v = Neg(u)
        t = Exp(v)
    }>
}"""


def test_a_loops_body_is_alive_while_it_runs() -> None:
    plan = memory(LOOP)
    # outside x and y; inside, besides the result that goes to y, at most two of s, u and v; the
    # condition is copied before, the counter read by nobody
    assert plan.peak_activation_bytes == 2 * 256 + 2 * 256


BRANCH = """g (float[64] x, bool c) => (float y) {
    y = If (c) <
        then_branch = t () => (float[64] a) { b = Exp(x)  a = Neg(b) },
        else_branch = e () => (float[64] z) { z = Neg(x) }
    >
}"""


def test_the_larger_branch_counts_and_its_result_is_the_nodes() -> None:
    # x is captured and alive outside, y is where a or z is written, b is the branch's own
    assert memory(BRANCH).peak_activation_bytes == 256 + 1 + 256 + 256


def test_an_output_is_not_overwritten_by_the_last_node() -> None:
    text = """g (float[1,1] x) => (float a, float b) <float[1,4] w>
        { a = MatMul(x, w)  b = Exp(a) }"""
    # x of 4 bytes and a of 16, then a and b
    assert memory(text).in_place_peak.nbytes == 2 * 16
    viewed = """g (float[1,1] x) => (float v, float b) <float[1,4] w, int64[2] s = {2,2}>
        { a = MatMul(x, w)  v = Reshape(a, s)  b = Exp(a) }"""
    assert memory(viewed).shared_peak.nbytes == 2 * 16


def test_a_view_that_shares_its_sources_buffer_may_be_overwritten_like_any_other() -> None:
    text = """g (float[1,1] x) => (float y) <int64[2] s = {2,2}, float[1,4] w>
        { a = MatMul(x, w)  v = Reshape(a, s)  z = MatMul(x, w)  c = Exp(v)
          y = Einsum<equation = "ab,cd->">(z, c) }"""
    plan = memory(text)
    # v, z and c of 16 bytes each
    assert plan.peak_activation_bytes == 3 * 16
    # a and v, or what is in their place, beside z; and x of 4 bytes while z is made
    assert plan.in_place_peak.nbytes == 4 + 2 * 16
    assert plan.shared_peak.nbytes == 4 + 2 * 16


def test_a_tensor_of_unknown_size_in_a_body_makes_the_peak_a_lower_bound() -> None:
    text = """g (float[64] x, bool c) => (float y) {
        y = If (c) <
            then_branch = t () => (float[64] a) { u = Nobody(x)  a = Neg(x) },
            else_branch = e () => (float[64] z) { z = Neg(x) }
        >
    }"""
    plan = memory(text)
    assert plan.unknown == ("u",)
    assert plan.is_lower_bound


def test_a_bounded_size_in_a_body_makes_the_peak_an_upper_bound() -> None:
    text = """g (float[64] x, bool c) => (float y) {
        y = If (c) <
            then_branch = t () => (float s) { u = NonZero(x)  v = Neg(u)
                                              w = ReduceSum<keepdims = 0>(v)
                                              s = Cast<to = 1>(w) },
            else_branch = e () => (float z) { z = ReduceMax<keepdims = 0>(x) }
        >
    }"""
    plan = memory(text)
    assert not plan.lifetimes.least
    assert plan.is_upper_bound
    # x, c and y outside; at most 64 indices of 8 bytes in each of u and v
    assert plan.live_bytes == (256 + 1 + 4 + 2 * 64 * 8,)
    assert (lower(plan.peak_activation_bytes), upper(plan.peak_activation_bytes)) == (
        256 + 1 + 4, 256 + 1 + 4 + 2 * 64 * 8,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_figures_stand_in_their_order(name: str) -> None:
    plan = plan_memory(plan_kernels(model_cost(name)))
    assert plan.peak_activation_bytes <= plan.preallocated_bytes + max(plan.lifetimes.extra)
    assert plan.in_place_peak.nbytes <= plan.peak_activation_bytes
    assert plan.aliased_peak.nbytes <= plan.peak_activation_bytes
    assert plan.shared_peak.nbytes <= min(plan.in_place_peak.nbytes, plan.aliased_peak.nbytes)
    assert plan.average_bytes <= plan.peak_activation_bytes
    assert max(point.live_bytes for point in plan.timeline()) == plan.peak_activation_bytes
    assert len(plan.timeline(10)) <= 10
    assert [row.key for row in plan.table()][:3] == ["weights", "preallocated", "liveness"]


IN_A_BODY = (
    "g (float[8,8] x, bool c) => (float y) { y = If(c) "
    "<then_branch = t () => (float[8,8] a) { p = Relu(x)  a = Exp(p) },"
    " else_branch = e () => (float[8,8] b) { b = Identity(x) }> }"
)
# bytes: x and y 8·8·4 = 256 each, c 1; inside the branch p beside a, which is y


def test_what_a_branch_holds_is_in_every_figure() -> None:
    plan = memory(IN_A_BODY)
    inside = plan.lifetimes.extra[0]
    assert inside == 256
    assert plan.peak_activation_bytes == 256 + 1 + 256 + inside
    assert plan.preallocated_bytes == plan.peak_activation_bytes
    # each of the four buffers begins at a multiple of 64: the one byte of c takes 64
    assert plan.arena.nbytes == plan.arena.lower_bound_bytes == 256 + 64 + 256 + inside
    parts = {tensor.name: tensor.nbytes for tensor in plan.peak_tensors}
    assert parts == {"x": 256, "c": 1, "y": 256, "inside If#0": inside}


def test_what_a_branch_holds_is_no_workspace() -> None:
    (row,) = [row for row in memory(IN_A_BODY).table() if row.key == "fused"]
    assert "256 bytes inside its bodies" in row.rule
