"""What launches nothing, and why."""

from __future__ import annotations

import pytest

from onnxroof.errors import UsageError
from onnxroof.fusion.plan import plan_kernels
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.graph.types import DType
from tests.fusion.plans import costed, kinds, plan


def removed(text: str, runtime: str = "onnxruntime") -> dict[str, str]:
    return {node.op_type: node.reason for node in plan(text, runtime).removed}


def test_what_no_output_needs_is_dead() -> None:
    text = "g (float[4] x) => (float y) { d = Exp(x)  e = Neg(d)  y = Relu(x) }"
    assert kinds(text) == ["Relu"]
    assert removed(text)["Exp"].startswith("dead")


def test_what_derives_from_constants_is_folded_by_shape() -> None:
    text = (
        "g (float[2,4] x) => (float y) <float[8,4] w> "
        "{ t = Transpose(w)  c = Cast<to = 1>(t)  y = MatMul(x, c) }"
    )
    (kernel,) = plan(text).kernels
    assert removed(text)["Transpose"] == "folded: its inputs are constants"
    assert kernel.weight_bytes == 8 * 4 * 4


def test_shape_arithmetic_is_done_before_the_run() -> None:
    text = (
        "g (float[2,3,4] x) => (float y) <int64 zero = {0}, int64[1] m = {-1}, int64[1] ax = {0}> "
        "{ s = Shape(x)  b = Gather(s, zero)  u = Unsqueeze(b, ax)  t = Concat<axis = 0>(u, m) "
        "y = Reshape(x, t) }"
    )
    assert kinds(text) == []


@pytest.mark.parametrize(
    "body",
    [
        "r = Identity(x)",
        "r = Cast<to = 1>(x)",
        "r = Dropout(x)",
        "r = Flatten(x)",
        "r = Concat<axis = 0>(x)",
        "r = Sum(x)",
        "r = Transpose<perm = [0,1]>(x)",
    ],
)
def test_what_changes_no_byte_launches_nothing(body: str) -> None:
    assert kinds(f"g (float[2,4] x) => (float y) {{ {body}  y = Relu(r) }}") == ["Relu"]


def test_dropout_in_training_mode_does_something() -> None:
    text = (
        "g (float[2,4] x) => (float y) <float r = {0.5}, bool t = {1}> "
        "{ d = Dropout(x, r, t)  y = Relu(d) }"
    )
    assert kinds(text) == ["Dropout", "Relu"]


def test_a_transpose_of_unit_axes_is_a_view_where_the_runtime_sees_it() -> None:
    text = "g (float[1,4,8] x) => (float y) { t = Transpose<perm = [1,0,2]>(x)  y = Relu(t) }"
    assert kinds(text, "tensorrt") == ["Relu"]
    assert kinds(text, "onnxruntime") == ["Transpose", "Relu"]  # it copies


def test_equal_nodes_run_once() -> None:
    text = (
        "g (float[4] x) => (float y) "
        "{ a = Exp(x)  b = Exp(x)  c = Neg(b)  d = Neg(a)  y = Add(c, d) }"
    )
    assert kinds(text) == ["Exp", "Neg", "Add"]
    assert kinds(text, "none") == ["Exp", "Exp", "Neg", "Neg", "Add"]
    assert removed(text)["Exp"].startswith("common subexpression")


def test_equal_nodes_with_other_constants_do_not() -> None:
    text = (
        "g (float[4] x) => (float y) <float two = {2.0}, float three = {3.0}> "
        "{ a = Mul(x, two)  b = Mul(x, three)  y = Add(a, b) }"
    )
    assert kinds(text) == ["Mul", "Mul", "Add"]


def test_equal_operators_on_one_tensor_seen_under_two_shapes_do_not() -> None:
    # Softmax over the last axis: rows of 4 elements, and of 128
    text = (
        "g (float[1,8,4,4] x) => (float a, float b) "
        "{ f = Flatten(x)  a = Softmax(x)  b = Softmax(f) }"
    )
    assert kinds(text, "basic") == ["Softmax", "Softmax"]


def test_equal_operators_on_two_parts_of_one_tensor_do_not() -> None:
    # halves along the outermost axis are views: the same tensor's bytes, not the same bytes
    text = (
        "g (float[2,4,8] x) => (float a, float b) <float[8,8] w> "
        "{ p, q = Split<axis = 0, num_outputs = 2>(x)  a = MatMul(p, w)  b = MatMul(q, w) }"
    )
    for runtime in ("tensorrt", "torch-compile"):
        found = plan(text, runtime, opset=18)
        assert [kernel.macs for kernel in found.kernels] == [4 * 8 * 8] * 2


def test_two_parts_stay_two_where_what_lies_between_them_and_their_readers_goes() -> None:
    # p · sigmoid(q) is no x · sigmoid(x), though all three transposes cancel
    text = (
        "g (float[2,4,8] x) => (float y) { p, q = Split<axis = 0, num_outputs = 2>(x) "
        "s = Transpose<perm = [0,2,1]>(p)  t = Transpose<perm = [0,2,1]>(q)  u = Sigmoid(t) "
        "m = Mul(s, u)  y = Transpose<perm = [0,2,1]>(m) }"
    )
    (kernel,) = plan(text, "tensorrt", opset=18).kernels
    assert kernel.rule == "elementwise-broadcast"
    assert kernel.input_bytes == 2 * 4 * 8 * 4


def test_masks_of_two_dropouts_in_training_are_never_equal() -> None:
    text = (
        "g (float[4] x) => (float a, float b) <float r = {0.5}, bool t = {1}> "
        "{ a = Dropout(x, r, t)  b = Dropout(x, r, t) }"
    )
    assert kinds(text) == ["Dropout", "Dropout"]


def test_random_nodes_are_never_equal() -> None:
    text = (
        "g (float[4] x) => (float y) "
        "{ a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Add(a, b) }"
    )
    assert kinds(text) == ["RandomNormalLike", "RandomNormalLike", "Add"]


NHWC = (
    "g (float[1,8,8,4] x) => (float y) <float[4,4,1,1] w, float[4,4,1,1] u> "
    "{ a = Transpose<perm = [0,3,1,2]>(x)  c = Conv(a, w)  b = Transpose<perm = [0,2,3,1]>(c) "
    "r = Relu(b)  d = Transpose<perm = [0,3,1,2]>(r)  e = Conv(d, u) "
    "y = Transpose<perm = [0,2,3,1]>(e) }"
)


def test_transposes_around_elementwise_work_cancel() -> None:
    assert kinds(NHWC) == ["Transpose", "Conv+Relu", "Conv", "Transpose"]
    assert removed(NHWC)["Transpose"] == "cancelled by its inverse"
    assert kinds(NHWC, "basic").count("Transpose") == 4


def test_a_residual_in_the_other_layout_cancels_too() -> None:
    text = (
        "g (float[1,4,8,8] p, float[1,4,8,8] q) => (float y) "
        "{ a = Transpose<perm = [0,2,3,1]>(p)  b = Transpose<perm = [0,2,3,1]>(q)  s = Add(a, b) "
        "r = Relu(s)  y0 = Transpose<perm = [0,3,1,2]>(r)  y = Neg(y0) }"
    )
    assert "Transpose" not in kinds(text)


def test_a_transpose_that_something_else_reads_stays() -> None:
    text = (
        "g (float[1,4,8,8] p) => (float y, float z) "
        "{ a = Transpose<perm = [0,2,3,1]>(p)  r = Relu(a)  y = Transpose<perm = [0,3,1,2]>(r) "
        "z = Softmax(a) }"
    )
    assert kinds(text).count("Transpose") == 2


def test_two_transposes_in_a_row_move_once() -> None:
    text = (
        "g (float[2,3,4] x) => (float y) "
        "{ a = Transpose<perm = [1,0,2]>(x)  y = Transpose<perm = [0,2,1]>(a) }"
    )
    (kernel,) = plan(text).kernels
    assert kernel.traffic_bytes == 2 * 24 * 4


PARTS = (
    "g (float[4,6] x) => (float y) <int64[1] a = {0}, int64[1] b = {2}, int64[1] c = {4}> "
    "{ s = Slice(x, a, b, a)  t = Slice(x, b, c, a)  p = Relu(s)  q = Exp(t)  y = Add(p, q) }"
)


def test_slices_that_cover_an_axis_are_one_split() -> None:
    assert kinds(PARTS) == ["Slice+Slice", "Relu", "Exp", "Add"]
    kernel = plan(PARTS).kernels[0]
    assert kernel.input_bytes == kernel.output_bytes == 24 * 4
    gap = PARTS.replace("c = {4}", "c = {3}").replace("q = Exp(t)  y = Add(p, q)", "y = Exp(t)")
    assert "Slice+Slice" not in kinds(gap)


def test_a_contiguous_slice_is_a_view_where_the_runtime_passes_it_on() -> None:
    assert kinds(PARTS, "tensorrt") == ["Relu+Exp+Add"]
    columns = (
        PARTS.replace(", b, a)", ", b, one)")
        .replace(", c, a)", ", c, one)")
        .replace("<int64[1] a", "<int64[1] one = {1}, int64[1] a")
    )
    assert kinds(columns, "tensorrt")[:2] == ["Slice", "Slice"]


CONCAT = (
    "g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w, float[4,4,1,1] u> "
    "{ a = Conv(x, w)  b = Conv(x, u)  c = Concat<axis = 1>(a, b)  y = Relu(c) }"
)


def test_concat_is_written_in_place_by_its_producers() -> None:
    kernels = plan(CONCAT, "tensorrt").kernels
    assert [kernel.op_type for kernel in kernels] == ["Conv", "Conv", "Relu"]
    # the parts are written once, by the convolutions, and the whole is read once
    assert [kernel.output_bytes for kernel in kernels] == [1024, 1024, 2048]
    assert kernels[2].input_bytes == 2048
    assert kinds(CONCAT, "onnxruntime") == ["Conv", "Conv", "Concat", "Relu"]


def test_a_part_that_is_an_input_is_copied() -> None:
    text = (
        "g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w> "
        "{ a = Conv(x, w)  c = Concat<axis = 1>(a, x)  y = Relu(c) }"
    )
    assert kinds(text, "tensorrt") == ["Conv", "Concat", "Relu"]


QDQ = (
    "g (float[1,4,8,8] x) => (float y) <float s = {0.1}, uint8 z = {0}, "
    "int8[4,4,3,3] w, float t = {0.02}, int8 o = {0}> "
    "{ q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  e = DequantizeLinear(w, t, o) "
    "c = Conv(d, e)  r = Relu(c)  p = QuantizeLinear(r, s, z)  y = DequantizeLinear(p, s, z) }"
)


def test_qdq_becomes_an_integer_kernel() -> None:
    assert kinds(QDQ) == ["QuantizeLinear", "Conv+Relu+QuantizeLinear", "DequantizeLinear"]
    kernel = plan(QDQ).kernels[1]
    assert kernel.compute_dtype is DType.UINT8
    # one byte an element: 4·8·8 in, 4·6·6 out; 144 weights and the scales of weight and result
    assert (kernel.input_bytes, kernel.output_bytes) == (256, 144)
    assert kernel.weight_bytes == 144 + (4 + 1) + (4 + 1)
    assert kernel.macs == 144 * 36


def test_a_runtime_without_it_computes_in_floating_point() -> None:
    assert all(
        kernel.compute_dtype is not DType.UINT8
        for kernel in plan(QDQ, "basic").kernels
        if "Conv" in kernel.op_type
    )


def test_a_floating_point_reader_blocks_the_integer_kernel() -> None:
    text = QDQ.replace("(float y)", "(float y, float v)").replace(
        "c = Conv", "v = Exp(d)  c = Conv"
    )
    assert "DequantizeLinear" in kinds(text)
    assert "Conv+Relu" in kinds(text)


def test_requantizing_what_was_stored_so_costs_nothing() -> None:
    text = (
        "g (uint8[2,4] x) => (uint8 y) <float s = {0.1}, uint8 z = {0}> "
        "{ d = DequantizeLinear(x, s, z)  f = Flatten(d)  y = QuantizeLinear(f, s, z) }"
    )
    assert kinds(text) == []


def test_elementwise_chains_and_trees_merge() -> None:
    text = (
        "g (float[2,4] x, float[2,4] z) => (float y) "
        "{ a = Exp(x)  b = Neg(z)  c = Mul(a, b)  d = Add(c, a)  y = Sqrt(d) }"
    )
    (kernel,) = plan(text, "basic").kernels
    assert kernel.op_type == "Exp+Neg+Mul+Add+Sqrt"
    assert kernel.traffic_bytes == 3 * 8 * 4


def test_broadcasts_merge_where_the_runtime_generates_code() -> None:
    text = "g (float[4] x, float[2,4] z) => (float y) { a = Exp(x)  y = Mul(a, z) }"
    assert kinds(text, "basic") == ["Exp", "Mul"]
    assert kinds(text, "tensorrt") == ["Exp+Mul"]


def test_generated_loops_take_a_reduction_with_what_surrounds_it() -> None:
    text = (
        "g (float[2,4] x) => (float y) <int64[1] ax = {1}> "
        "{ a = Exp(x)  s = ReduceSum(a, ax)  y = Div(a, s) }"
    )
    assert kinds(text, "torch-compile") == ["Exp+ReduceSum+Div"]


def test_a_runtime_nobody_knows_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="tensorrt"):
        plan_kernels(costed("g (float[4] x) => (float y) { y = Relu(x) }"), "onnxrutime")


def test_every_rule_a_runtime_names_exists() -> None:
    from onnxroof.fusion.rules import all_rules

    rules = all_rules()
    for runtime in RUNTIMES.values():
        assert set(runtime.rules) <= set(rules)
    assert all(rule.why for rule in rules.values())


def test_bodies_have_plans_of_their_own() -> None:
    text = """g (float[4] x, bool c) => (float y) {
        y = If (c) <
            then_branch = t () => (float a) { b = Exp(x)  a = Neg(b) },
            else_branch = e () => (float a) { a = Neg(x) }
        >
    }"""
    (kernel,) = plan(text, "basic").kernels
    bodies = {body.name: [k.op_type for k in body.plan.kernels] for body in kernel.bodies}
    assert bodies == {"then_branch": ["Exp+Neg"], "else_branch": ["Neg"]}
    # one branch or the other: each reads x and writes a once fused
    assert kernel.traffic_bytes == 2 * 4 * 4


def test_a_conversion_to_the_same_type_is_nothing_however_many_elements_there_are() -> None:
    text = "g (float[4,4] x) => (int64 y) { n = NonZero(x)  c = Cast<to = 7>(n)  y = Add(c, c) }"
    # NonZero finds 0 to 16 elements, int64 as it makes them
    assert kinds(text) == ["NonZero", "Add"]
