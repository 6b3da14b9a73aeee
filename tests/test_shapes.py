from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.bindings import Bindings
from onnxroof.errors import ShapeMismatchError
from onnxroof.graph.load import load_model
from onnxroof.graph.types import DType
from onnxroof.shapes import LARGEST_VALUE, Memo, infer_shapes
from tests.builders import model, shaped, shapes_of


def test_shape_arithmetic_is_followed() -> None:
    # Shape → Gather → Unsqueeze → Concat → Reshape, as exporters write x.view(batch, -1)
    text = """agraph (float[batch,3,4] x) => (float y)
        <int64 zero = {0}, int64[1] rest = {-1}, int64[1] axis = {0}> {
        s = Shape(x) n = Gather(s, zero) u = Unsqueeze(n, axis)
        t = Concat <axis = 0> (u, rest) y = Reshape(x, t) }"""
    assert shapes_of(text, batch=5)["y"] == (5, 12)


def test_values_above_the_cap_are_not_computed() -> None:
    small, large = LARGEST_VALUE, LARGEST_VALUE + 1
    text = "agraph (float[1] x) => (int64 y) <int64[1] n = {%d}> { y = ConstantOfShape(n) }"
    for count, known in ((small, True), (large, False)):
        graph, _ = shaped(text % count)
        assert graph.tensors["y"].shape == (count,)
        assert (graph.tensors["y"].value is not None) == known


def test_an_unknown_operator_leaves_its_output_unresolved_with_the_reason() -> None:
    proto = model(
        "agraph (float[2] x) => (float[] y) { t = my.Foo(x) y = Relu(t) }", opsets={"my": 1}
    )
    _, findings = shaped(proto)
    first = findings.unresolved[0]
    assert (first.tensor, first.node) == ("t", "Foo#0")
    assert "no rule is known for operator my.Foo" in first.reason


def test_past_an_unknown_operator_the_file_s_own_types_hold() -> None:
    # Conv 1×1 (3 → 4) on 8×8, Foo, declared 1×4×4×4, Conv 1×1 (4 → 2): 768 + 128 MACs
    text = """agraph (float[1,3,8,8] x, float[4,3,1,1] v, float[2,4,1,1] w) => (float[] y)
        <float[1,4,4,4] b> { a = Conv(x, v) b = my.Foo(a) y = Conv(b, w) }"""
    analysis = onnxroof.analyze(model(text, opsets={"my": 1}))
    assert analysis.tensors["y"].shape == (1, 2, 4, 4)
    assert analysis.totals.macs == 768 + 128
    assert analysis.totals.is_lower_bound
    assert list(analysis.coverage.unknown) == ["my.Foo"]
    assert not analysis.unresolved


def test_declared_sizes_follow_the_bindings() -> None:
    text = """agraph (float[N,8] x) => (float[] y) <float[N,4] b> { b = my.Foo(x) y = Relu(b) }"""
    proto = model(text, opsets={"my": 1})
    assert shapes_of(proto, N=3)["y"] == (3, 4)


def test_what_the_file_declares_does_not_override_what_is_computed() -> None:
    text = "agraph (float[2,3] x) => (float[9,9] y) { y = Relu(x) }"
    assert shapes_of(text)["y"] == (2, 3)


def test_a_node_that_cannot_be_is_a_problem_of_that_node() -> None:
    proto = model(
        """agraph (float[2,3] x, float[4,5] w) => (float[] y, float z)
        { y = MatMul(x, w) z = Relu(x) }"""
    )
    proto.graph.node[0].name = "product"
    graph, findings = shaped(proto)
    (problem,) = findings.problems
    assert (problem.node, problem.op_type) == ("product", "MatMul")
    assert "fp32[2×3], fp32[4×5]" in problem.inputs
    assert graph.tensors["z"].shape == (2, 3)
    with pytest.raises(ShapeMismatchError, match=r"'product' \(MatMul\)") as caught:
        onnxroof.analyze(proto)
    assert caught.value.exit_code == 4


def test_equal_nodes_share_one_result() -> None:
    graph, _ = shaped("agraph (float[2] x) => (float y) { a = Relu(x) b = Relu(a) y = Relu(b) }")
    assert graph.calls[0] is graph.calls[1] is graph.calls[2]


def test_nodes_that_differ_in_anything_that_matters_share_none() -> None:
    text = """agraph (float[2,4] x, float[2,4] z) => (float y) {
        a = Flatten <axis = 0> (x) b = Flatten <axis = 1> (x)
        c = Add(x, x) d = Add(x, z) y = Relu(x) }"""
    graph, _ = shaped(text)
    assert len({id(call) for call in graph.calls}) == 5
    assert (graph.tensors["a"].shape, graph.tensors["b"].shape) == ((1, 8), (2, 4))


def test_equal_shapes_with_other_control_values_share_nothing() -> None:
    text = """agraph (float[2,6] x) => (float a, float b)
        <int64[2] s = {3, 4}, int64[2] t = {4, 3}> { a = Reshape(x, s) b = Reshape(x, t) }"""
    shapes = shapes_of(text)
    assert (shapes["a"], shapes["b"]) == ((3, 4), (4, 3))


def test_a_memo_carries_results_to_the_next_model() -> None:
    memo = Memo()
    text = "agraph (float[2] x) => (float y) { y = Relu(x) }"
    first, _ = infer_shapes(load_model(model(text)).graph, Bindings.of(), memo)
    second, _ = infer_shapes(load_model(model(text)).graph, Bindings.of(), memo)
    assert first.calls[0] is second.calls[0]


def test_names_differ_between_nodes_that_share_a_result() -> None:
    text = """agraph (float[3] x, float[4] z) => (int64[] p, int64[] q, int64[] r)
        { p = NonZero(x) q = NonZero(x) r = NonZero(z) }"""
    _, findings = shaped(text)
    assert findings.data_dependent == ("p.1", "q.1", "r.1")


def test_outputs_nobody_wants_are_no_tensors() -> None:
    graph, _ = shaped('agraph (float[4] x) => (float y) <int64[1] k = {2}> { y, "" = TopK(x, k) }')
    assert graph.tensors["y"].shape == (2,)
    assert "" not in graph.tensors


def test_a_constant_folded_from_constants_is_a_constant() -> None:
    text = """agraph (float[2,4] x) => (float y) <float[4,2] w = {0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0}>
        { t = Transpose(w) y = Add(x, t) }"""
    graph, _ = shaped(text)
    assert graph.tensors["t"].constant
    assert not graph.tensors["y"].constant
    assert graph.calls[0].folded


def test_what_a_random_operator_makes_is_no_constant() -> None:
    graph, _ = shaped(
        "agraph (float[2] x) => (float y) { r = RandomNormal <shape = [2]> () y = Add(x, r) }"
    )
    assert not graph.tensors["r"].constant


@pytest.mark.parametrize(
    ("precision", "label"),
    [("fp16", "fp16"), ("bf16", "bf16"), ("int8", "int8"), ("fp8", "fp8e4m3fn")],
)
def test_precision_retypes_floats_and_leaves_integers(precision: str, label: str) -> None:
    text = """agraph (float[2,4] x, int64[2] i) => (float y, int64 j)
        <float[4,2] w = {0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0}> { y = MatMul(x, w) j = Neg(i) }"""
    tensors = onnxroof.analyze(model(text), precision=precision).tensors
    assert {tensors[name].dtype.label for name in ("x", "y", "w")} == {label}  # type: ignore[union-attr]
    assert tensors["j"].dtype is DType.INT64


def test_a_tensor_a_body_captures_is_found_in_the_graph_around() -> None:
    text = """agraph (float[2,3] x, bool c) => (float y) {
        p = Relu(x)
        y = If(c) <then_branch = t () => (float a) { a = Neg(p) },
                   else_branch = e () => (float b) { b = Exp(p) }> }"""
    assert shapes_of(text)["y"] == (2, 3)


def test_many_nodes_cost_no_recursion() -> None:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(20_000)]
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("t20000", TensorProto.FLOAT, None)],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert shapes_of(proto)["t20000"] == (4,)


def test_halving_a_length_over_and_over_stays_a_number() -> None:
    # 2⁴⁰ halved forty times by a window of 2 with stride 2 is 1
    nodes = [
        helper.make_node("MaxPool", [f"t{i}"], [f"t{i + 1}"], kernel_shape=[2], strides=[2])
        for i in range(40)
    ]
    graph = helper.make_graph(
        nodes, "halving",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1, 1, "length"])],
        [helper.make_tensor_value_info("t40", TensorProto.FLOAT, None)],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert shapes_of(proto, length=2**40)["t40"] == (1, 1, 1)


def test_threads_may_share_a_memo() -> None:
    memo, protos = Memo(), []
    for count in range(1, 9):
        weight = numpy_helper.from_array(np.zeros((count, 4), np.float32), "w")
        proto = model(f"agraph (float[2,{count}] x) => (float y) {{ y = MatMul(x, w) }}")
        proto.graph.initializer.append(weight)
        protos.append(proto)
    failures: list[object] = []

    def work(proto: onnx.ModelProto) -> None:
        for _ in range(20):
            macs = onnxroof.analyze(proto, memo=memo).totals.macs
            expected = 2 * proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value * 4
            if macs != expected:
                failures.append((macs, expected))

    threads = [threading.Thread(target=work, args=(proto,)) for proto in protos]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
