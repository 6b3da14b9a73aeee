from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.cost import Role, Status, Totals
from tests.builders import cost_of, costs, model


def zeros(*shape: int, dtype: type = np.float32, name: str = "w") -> TensorProto:
    return numpy_helper.from_array(np.zeros(shape, dtype), name)


def with_weights(text: str, *tensors: TensorProto, **how: object) -> onnx.ModelProto:
    proto = model(text, **how)  # type: ignore[arg-type]
    proto.graph.initializer.extend(tensors)
    return proto


def roles(proto: onnx.ModelProto) -> dict[str, Role]:
    return {weight.constant.name: weight.role for weight in costs(proto).weights}


def totals(proto: onnx.ModelProto) -> Totals:
    return onnxroof.analyze(proto).totals


# -- what a constant is for ------------------------------------------------------------------


def test_a_constant_is_what_its_reader_makes_of_it() -> None:
    proto = with_weights(
        """agraph (float[2,8] x) => (float y) {
        m = MatMul(x, w) a = Add(m, b) q = QuantizeLinear(a, s, z)
        d = DequantizeLinear(q, s, z) y = Reshape(d, shape) }""",
        zeros(8, 4), zeros(4, name="b"), zeros(name="s"), zeros(dtype=np.int8, name="z"),
        numpy_helper.from_array(np.array([4, 2]), "shape"), zeros(5, name="nobody"),
    )  # fmt: skip
    assert roles(proto) == {
        "w": Role.WEIGHT,
        "b": Role.WEIGHT,
        "s": Role.QUANTIZATION,
        "z": Role.QUANTIZATION,
        "shape": Role.CONTROL,
        "nobody": Role.UNUSED,
    }
    found = totals(proto)
    # 8·4 + 4 parameters; a float scale and an int8 zero point; two int64; five floats unused
    assert (found.parameters, found.weight_bytes) == (36, 144)
    assert (found.quantization_bytes, found.control_bytes, found.unused_parameters) == (5, 16, 5)


def test_a_weight_anywhere_is_a_weight() -> None:
    # One tensor that is a scale here and a factor there
    proto = with_weights(
        """agraph (float[2,4] x) => (float y, uint8 q)
        { y = Mul(x, w) q = QuantizeLinear <axis = 1> (x, w) }""",
        zeros(4),
    )
    assert roles(proto) == {"w": Role.WEIGHT}


def test_a_scalar_in_elementwise_arithmetic_is_no_parameter() -> None:
    # x · 0.125 (a literal of the code) + b (learned)
    proto = with_weights(
        "agraph (float[2,4] x) => (float y) { m = Mul(x, c) y = Add(m, b) }",
        zeros(name="c"), zeros(4, name="b"),
    )  # fmt: skip
    assert roles(proto) == {"c": Role.CONTROL, "b": Role.WEIGHT}
    assert totals(proto).parameters == 4


@pytest.mark.parametrize(
    ("dtype", "role"),
    [
        (TensorProto.FLOAT, Role.WEIGHT),
        (TensorProto.FLOAT16, Role.WEIGHT),
        (TensorProto.BFLOAT16, Role.WEIGHT),
        (TensorProto.INT8, Role.WEIGHT),
        (TensorProto.INT32, Role.CONTROL),
        (TensorProto.INT64, Role.CONTROL),
        (TensorProto.BOOL, Role.CONTROL),
    ],
)
def test_floats_and_narrow_integers_are_weights_and_indices_are_not(dtype: int, role: Role) -> None:
    kind = {v: k for k, v in TensorProto.DataType.items()}[dtype].lower()
    proto = model(f"agraph ({kind}[2,4] x) => ({kind} y) {{ y = Concat <axis = 0> (x, w) }}")
    width = {TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2, TensorProto.INT8: 1,
             TensorProto.BOOL: 1, TensorProto.INT64: 8}.get(dtype, 4)  # fmt: skip
    proto.graph.initializer.add(name="w", data_type=dtype, dims=[3, 4], raw_data=b"\0" * 12 * width)
    assert roles(proto) == {"w": role}


def test_a_weight_that_is_an_output_is_a_weight() -> None:
    proto = with_weights("agraph (float[2] x) => (float y, float w) { y = Relu(x) }", zeros(6))
    assert roles(proto) == {"w": Role.WEIGHT}


# -- once and only once ----------------------------------------------------------------------


def test_a_tied_weight_counts_once() -> None:
    # The embedding table that is the output projection too: 100·8 parameters, read by both
    proto = with_weights(
        """agraph (int64[3] i) => (float y) {
        e = Gather(w, i) t = Transpose(w) y = MatMul(e, t) }""",
        zeros(100, 8),
    )
    found = totals(proto)
    assert (found.parameters, found.weight_bytes) == (800, 3200)
    assert found.macs == 3 * 8 * 100
    nodes = onnxroof.analyze(proto).nodes
    assert [node.parameters for node in nodes] == [800, 0, 800]


def test_two_equal_weights_of_two_names_count_twice() -> None:
    proto = with_weights(
        "agraph (float[2,16] x) => (float y) { m = MatMul(x, w) y = MatMul(m, v) }",
        zeros(16, 16), zeros(16, 16, name="v"),
    )  # fmt: skip
    found = totals(proto)
    assert (found.macs, found.parameters, found.weight_bytes) == (1024, 512, 2048)


def test_a_weight_behind_cast_and_transpose_is_that_weight() -> None:
    # fp16 [32, 16] → fp32 → [16, 32]: 512 parameters of 2 bytes; 4·16·32 MACs. The casts fold, so
    # at run time 4·16·4 + 2048 + 4·32·4 bytes move
    proto = with_weights(
        """agraph (float[4,16] x) => (float y)
        { c = Cast <to = 1> (w) t = Transpose(c) y = MatMul(x, t) }""",
        zeros(32, 16, dtype=np.float16),
    )
    analysis = onnxroof.analyze(proto)
    found = analysis.totals
    assert (found.macs, found.flops) == (2048, 4096)
    assert (found.parameters, found.weight_bytes) == (512, 1024)
    assert [node.status for node in analysis.nodes] == [
        Status.FOLDED, Status.FOLDED, Status.COUNTED,
    ]  # fmt: skip
    assert found.traffic_bytes == 256 + 2048 + 512
    assert (analysis.nodes[2].parameters, analysis.nodes[2].weight_bytes) == (512, 1024)


def test_weights_in_constant_nodes_count() -> None:
    proto = model("agraph (float[2,8] x) => (float y) { y = MatMul(x, w) }")
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=zeros(8, 4)))
    assert totals(proto).parameters == 32


def test_a_sparse_weight_counts_its_dense_and_its_stored_elements() -> None:
    # 3 of 64 elements: 3·4 bytes of values, 3·8 of indices; the product is charged dense
    proto = model("agraph (float[2,8] x) => (float y) { y = MatMul(x, w) }")
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            helper.make_tensor("w", 1, [3], [1.0, 2.0, 3.0]),
            helper.make_tensor("", 7, [3], [0, 9, 18]), [8, 8],
        )
    )  # fmt: skip
    found = totals(proto)
    assert (found.macs, found.parameters, found.nonzero_parameters) == (128, 64, 3)
    assert found.weight_bytes == 36


def test_a_weight_of_tied_branches_counts_once() -> None:
    proto = with_weights(
        """agraph (float[2,8] x, bool c) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = MatMul(x, w) },
                   else_branch = e () => (float b) { n = Neg(w) b = MatMul(x, n) }> }""",
        zeros(8, 8),
    )
    assert totals(proto).parameters == 64


def test_packed_weights_take_their_packed_bytes() -> None:
    # 33 int4 elements: 17 bytes; block scales are quantization data
    proto = model(
        "agraph (float[1,33] x) => (float y) { w = DequantizeLinear(q, s) y = Add(x, w) }"
    )
    proto.graph.initializer.add(
        name="q", data_type=TensorProto.INT4, dims=[33], raw_data=b"\0" * 17
    )
    proto.graph.initializer.append(zeros(name="s"))
    found = totals(proto)
    assert (found.parameters, found.weight_bytes, found.quantization_bytes) == (33, 17, 4)


# -- traffic ---------------------------------------------------------------------------------


def test_every_input_and_output_moves_once() -> None:
    # [2,8] in, [8,4] of weights, [2,4] out
    node = cost_of(
        with_weights("agraph (float[2,8] x) => (float y) { y = MatMul(x, w) }", zeros(8, 4))
    )
    assert (node.input_bytes, node.weight_read_bytes, node.output_bytes) == (64, 128, 32)
    assert node.traffic_bytes == 224


def test_a_tensor_read_twice_moves_once() -> None:
    twice = cost_of("agraph (float[10] x) => (float y) { y = Mul(x, x) }")
    apart = cost_of("agraph (float[10] x, float[10] z) => (float y) { y = Mul(x, z) }")
    assert (twice.input_bytes, apart.input_bytes) == (40, 80)


def test_control_inputs_move_nothing() -> None:
    node = cost_of("agraph (float[2,3] x) => (float y) <int64[1] a = {0}> { y = ReduceSum(x, a) }")
    assert (node.input_bytes, node.weight_read_bytes, node.output_bytes) == (24, 0, 12)


def test_views_move_nothing() -> None:
    node = cost_of("agraph (float[2,3] x) => (float y) <int64[1] s = {6}> { y = Reshape(x, s) }")
    assert (node.traffic_bytes, node.status) == (0, Status.FREE)
    assert node.note == "a view of its input's bytes"


def test_outputs_nobody_wants_move_nothing() -> None:
    both = cost_of("agraph (float[10] x) => (float y) <int64[1] k = {4}> { y, i = TopK(x, k) }")
    one = cost_of('agraph (float[10] x) => (float y) <int64[1] k = {4}> { y, "" = TopK(x, k) }')
    assert (both.output_bytes, one.output_bytes) == (4 * 4 + 4 * 8, 16)


def test_an_embedding_reads_the_rows_it_takes() -> None:
    # 3 of 50,000 rows of 8 floats; 3 indices of 8 bytes
    node = cost_of(
        with_weights("agraph (int64[3] i) => (float y) { y = Gather(w, i) }", zeros(50_000, 8))
    )
    assert (node.weight_read_bytes, node.input_bytes, node.output_bytes) == (96, 24, 96)


def test_text_has_no_bytes_so_its_traffic_is_unknown() -> None:
    node = cost_of("agraph (string[3] x) => (string y) { y = Identity(x) }")
    assert node.traffic_bytes in (0, None)
    proto = model("agraph (string[3] x, string[3] z) => (string y) { y = StringConcat(x, z) }")
    analysis = onnxroof.analyze(proto)
    assert analysis.nodes[0].traffic_bytes is None
    assert analysis.totals.is_lower_bound


# -- types and sums --------------------------------------------------------------------------


def test_macs_are_split_by_the_type_they_are_computed_in() -> None:
    # float 2·8·4, fp16 2·8·4, int8 2·8·4
    proto = model(
        """agraph (float[2,8] x, float16[2,8] h, int8[2,8] i, float[8,4] w, float16[8,4] v,
        int8[8,4] u) => (float a, float16 b, int32 c)
        { a = MatMul(x, w) b = MatMul(h, v) c = MatMulInteger(i, u) }"""
    )
    found = totals(proto)
    assert found.macs_by_dtype == {"fp16": 64, "fp32": 64, "int8": 64}
    assert found.macs == 192


def test_a_quantized_product_between_qdq_pairs_is_an_int8_product() -> None:
    proto = with_weights(
        """agraph (float[2,8] x) => (float y) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        w = DequantizeLinear(u, s, z) y = MatMul(d, w) }""",
        zeros(8, 4, dtype=np.int8, name="u"), zeros(name="s"), zeros(dtype=np.int8, name="z"),
    )  # fmt: skip
    found = totals(proto)
    assert found.macs_by_dtype == {"int8": 64}
    # the weight is stored in one byte an element and read so
    assert (found.parameters, found.weight_bytes) == (32, 32)
    node = onnxroof.analyze(proto).nodes[-1]
    assert node.weight_read_bytes == 32


def test_totals_are_sums_over_nodes() -> None:
    text = """agraph (float[2,8] x, float[8,8] w) => (float y)
        { a = MatMul(x, w) b = Relu(a) c = Exp(b) y = Add(a, c) }"""
    analysis = onnxroof.analyze(model(text))
    nodes = analysis.nodes
    found = analysis.totals
    assert found.flops == 256 + 16 + 16 + 16 == sum(node.flops or 0 for node in nodes)
    assert found.transcendentals == 16
    assert found.traffic_bytes == sum(node.traffic_bytes or 0 for node in nodes)
    assert not found.is_lower_bound
    assert not found.is_upper_bound


def test_large_products_are_exact() -> None:
    # (2²⁰)³ MACs do not fit 53 bits times two, nor 2·2⁶⁰ an int64 twice over
    text = "agraph (float[N,K] x, float[K,M] w) => (float y) { y = MatMul(x, w) }"
    found = onnxroof.analyze(model(text), dims={"N": 2**30, "K": 2**30, "M": 2**30}).totals
    assert found.macs == 2**90
    assert found.flops == 2**91


# -- coverage --------------------------------------------------------------------------------


def test_coverage_tells_counted_free_folded_and_unknown_nodes() -> None:
    proto = with_weights(
        """agraph (float[2,8] x) => (float[] y, float[] z) <int64[1] s = {16}> {
        t = Transpose(w) m = MatMul(x, t) r = Reshape(m, s) y = my.Foo(r) z = my.Foo(y) }""",
        zeros(8, 8), opsets={"my": 1},
    )  # fmt: skip
    found = onnxroof.analyze(proto).coverage
    assert (found.nodes, found.counted, found.free, found.folded) == (5, 1, 1, 1)
    ((name, (count, reason)),) = found.unknown.items()
    assert (name, count) == ("my.Foo", 2)
    assert "my.Foo" in reason
    assert not found.complete
    assert found.by_source == {"built-in": 3, "none": 2}


def test_a_formula_that_cannot_be_applied_leaves_the_node_unknown() -> None:
    proto = model(
        """agraph (float[] x, float[8,4] w) => (float[] y, float z)
        { y = MatMul(x, w) z = Neg(w) }"""
    )
    analysis = onnxroof.analyze(proto)
    first, second = analysis.nodes
    assert (first.status, first.macs, first.flops) == (Status.UNKNOWN, None, None)
    assert second.flops == 32
    assert analysis.totals.is_lower_bound


def test_shape_arithmetic_is_folded_and_costs_nothing() -> None:
    text = """agraph (float[2,3] x) => (float y) <int64 one = {1}> {
        s = Shape(x) n = Gather(s, one) m = Mul(n, one) c = Cast <to = 1> (m) y = Add(x, c) }"""
    analysis = onnxroof.analyze(model(text))
    assert analysis.totals.flops == 6
    assert {node.status for node in analysis.nodes[:4]} <= {Status.FOLDED, Status.FREE}


def test_weights_that_the_graph_makes_are_said_to_be_no_parameters() -> None:
    # 4 · 3 · 3 · 3 weights from ConstantOfShape, 4 stored biases
    text = """agraph (float[1,3,8,8] x) => (float y) <int64[4] s = {4,3,3,3}> {
        made = ConstantOfShape(s)  y = Conv(x, made, b) }"""
    analysis = onnxroof.analyze(with_weights(text, zeros(4, name="b")))
    assert analysis.totals.parameters == 4
    (said,) = [line for line in analysis.assumptions if "made by nodes" in line]
    assert said.startswith("1 weight with 108 elements")


def test_of_stored_weights_that_a_graph_rearranges_nothing_is_said() -> None:
    text = "agraph (float[1,5] x) => (float y) { t = Transpose(w)  y = MatMul(x, t) }"
    analysis = onnxroof.analyze(with_weights(text, zeros(2, 5)))
    assert analysis.totals.parameters == 10
    assert not analysis.assumptions
