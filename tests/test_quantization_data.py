"""Scales and zero points are quantization data, however the graph spells the scaling."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxroof
from tests.builders import costs, model, with_tensors, zeros


def roles(text: str, *tensors: TensorProto) -> dict[str, str]:
    proto = with_tensors(text, *tensors)
    return {weight.constant.name: weight.role.label for weight in costs(proto).weights}


W = zeros("w", 8, 4, dtype=np.int8)

DYNAMIC = """agraph (float[2,8] x) => (float y) {{
    q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z, p) f = Cast <to = 1> (i)
    {scaling}
    y = Add(r, b) }}"""


@pytest.mark.parametrize(
    "scaling",
    [
        "t = Mul(s, v) r = Mul(f, t)",
        "t = Mul(v, s) r = Mul(t, f)",
        "a = Mul(f, s) r = Mul(a, v)",
        "a = Mul(v, f) r = Mul(a, s)",
        "t = Div(s, v) r = Mul(f, t)",
        "o = Identity(s) t = Mul(o, v) k = Identity(f) r = Mul(k, t)",
    ],
)
def test_the_scale_of_a_weight_in_dynamic_quantization_is_no_parameter(scaling: str) -> None:
    # x·s ∙ w·v + b: 8·4 weights and 4 biases are parameters; v's 4 floats and p's 4 bytes are not
    tensors = W, zeros("p", 4, dtype=np.int8), zeros("v", 4), zeros("b", 4)
    assert roles(DYNAMIC.format(scaling=scaling), *tensors) == {
        "w": "weight",
        "p": "quantization",
        "v": "quantization",
        "b": "weight",
    }
    proto = model(DYNAMIC.format(scaling=scaling))
    proto.graph.initializer.extend(tensors)
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.weight_bytes) == (32 + 4, 32 + 16)
    assert found.quantization_bytes == 16 + 4


def test_nodes_and_the_operator_they_fuse_to_have_the_same_parameters() -> None:
    # 8·4 weights and 4 biases each; 16 bytes of scales and 4 of zero points
    tensors = W, zeros("p", 4, dtype=np.int8), zeros("v", 4), zeros("b", 4)
    apart = model(DYNAMIC.format(scaling="t = Mul(s, v) r = Mul(f, t)"))
    fused = model(
        """agraph (float[2,8] x) => (float y)
        { y = com.microsoft.DynamicQuantizeMatMul(x, w, v, p, b) }""",
        opsets={"com.microsoft": 1},
    )
    found = []
    for proto in (apart, fused):
        proto.graph.initializer.extend(tensors)
        totals = onnxroof.analyze(proto).totals
        found.append((totals.macs, totals.parameters, totals.quantization_bytes))
    assert found == [(2 * 8 * 4, 36, 20)] * 2


def test_a_scale_of_one_number_is_quantization_data_too() -> None:
    # of shape [] it would else be a literal, of shape [1] a learned factor
    for shape in ((), (1,)):
        found = roles(
            DYNAMIC.format(scaling="t = Mul(s, v) r = Mul(f, t)"),
            W, zeros("p", dtype=np.int8), zeros("v", *shape), zeros("b", 4),
        )  # fmt: skip
        assert found["v"] == "quantization"


def test_a_factor_behind_the_scaling_is_a_parameter() -> None:
    # LayerScale: r is scaled by s and v; g is learned
    found = roles(
        DYNAMIC.format(scaling="t = Mul(s, v) h = Mul(f, t) r = Mul(h, g)"),
        W, zeros("p", dtype=np.int8), zeros("v", 4), zeros("b", 4), zeros("g", 4),
    )  # fmt: skip
    assert (found["v"], found["g"]) == ("quantization", "weight")


def test_a_static_scale_of_an_integer_product_is_quantization_data_once() -> None:
    # scale of activation and weight in one, then a bias, then a learned factor
    found = roles(
        """agraph (uint8[2,8] q) => (float y) {
        i = MatMulInteger(q, w) f = Cast <to = 1> (i) h = Mul(f, v)
        a = Add(h, b) y = Mul(a, g) }""",
        W, zeros("v", 4), zeros("b", 4), zeros("g", 4),
    )  # fmt: skip
    assert found == {"w": "weight", "v": "quantization", "b": "weight", "g": "weight"}


def test_an_int32_bias_of_an_integer_product_is_a_weight() -> None:
    # as that of QLinearConv: 2 biases beside 2·3·3·3 weights
    proto = model(
        """agraph (uint8[1,3,8,8] q) => (float y) {
        i = ConvInteger(q, w) a = Add(i, b) f = Cast <to = 1> (a) y = Mul(f, v) }"""
    )
    proto.graph.initializer.extend(
        [zeros("w", 2, 3, 3, 3, dtype=np.int8), zeros("b", 1, 2, 1, 1, dtype=np.int32),
         zeros("v", 1, 2, 1, 1)]
    )  # fmt: skip
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.weight_bytes) == (54 + 2, 54 + 8)
    assert found.quantization_bytes == 8


def test_a_weight_that_nodes_dequantize_keeps_its_elements_alone() -> None:
    # (w - p)·v with one p and one v for each of 4 columns: 8·4 parameters of one byte
    proto = model(
        """agraph (float[2,8] x) => (float y) {
        f = Cast <to = 1> (w) o = Cast <to = 1> (p) d = Sub(f, o) m = Mul(d, v)
        y = MatMul(x, m) }"""
    )
    proto.graph.initializer.extend([W, zeros("p", 4, dtype=np.int8), zeros("v", 4)])
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.weight_bytes, found.quantization_bytes) == (32, 32, 20)


def test_a_scale_behind_the_product_of_a_cast_weight_is_quantization_data() -> None:
    # x ∙ w, then the scale of each column
    found = roles(
        """agraph (float[2,8] x) => (float y)
        { f = Cast <to = 1> (w) m = MatMul(x, f) s = Mul(m, v) y = Add(s, b) }""",
        W, zeros("v", 4), zeros("b", 4),
    )  # fmt: skip
    assert found == {"w": "weight", "v": "quantization", "b": "weight"}


def test_a_table_in_eight_bits_may_be_scaled_after_the_look_up() -> None:
    found = roles(
        """agraph (int64[3] i) => (float y)
        { g = Gather(w, i) f = Cast <to = 1> (g) y = Mul(f, v) }""",
        W, zeros("v", 4),
    )  # fmt: skip
    assert found == {"w": "weight", "v": "quantization"}


def test_scales_stored_in_eight_bits_are_told_from_what_they_scale_by_their_size() -> None:
    # microscaling: 64 fp4 elements, a power of two in fp8e8m0 for each row of 16
    proto = model(
        """agraph (float[2,4] x) => (float y)
        { f = Cast <to = 1> (w) c = Cast <to = 1> (v) d = Mul(c, f) y = MatMul(x, d) }"""
    )
    proto.graph.initializer.extend(
        [
            helper.make_tensor("w", TensorProto.FLOAT4E2M1, [4, 16], b"\0" * 32, raw=True),
            helper.make_tensor("v", TensorProto.FLOAT8E8M0, [4, 1], b"\0" * 4, raw=True),
        ]
    )
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.weight_bytes, found.quantization_bytes) == (64, 32, 4)


def test_a_weight_under_a_mask_of_bytes_is_no_scale() -> None:
    # pruning: m is 0 or 1 for each weight
    found = roles(
        """agraph (float[2,8] x) => (float y)
        { f = Cast <to = 1> (m) p = Mul(w, f) y = MatMul(x, p) }""",
        zeros("w", 8, 4), zeros("m", 8, 4, dtype=np.uint8),
    )  # fmt: skip
    assert found["w"] == "weight"


def test_a_picture_in_bytes_is_normalized_by_weights() -> None:
    # the input is quantized by nobody: mean and deviation of its channels
    found = roles(
        """agraph (uint8[1,3,8,8] x) => (float y)
        { f = Cast <to = 1> (x) c = Sub(f, m) y = Div(c, d) }""",
        zeros("m", 3, 1, 1), zeros("d", 3, 1, 1),
    )  # fmt: skip
    assert set(found.values()) == {"weight"}


def test_equal_calls_have_the_roles_of_their_own_inputs() -> None:
    # both Muls are float[2,4]·float[4]; only the first scales a product
    found = roles(
        """agraph (uint8[2,8] q, float[2,4] x) => (float y, float z)
        { i = MatMulInteger(q, w) f = Cast <to = 1> (i) y = Mul(f, v) z = Mul(x, g) }""",
        W, zeros("v", 4), zeros("g", 4),
    )  # fmt: skip
    assert found == {"w": "weight", "v": "quantization", "g": "weight"}


@pytest.mark.parametrize(
    "text",
    [
        """agraph (uint8[2,8] x) => (float y)
        { i = MatMulInteger(x, w) f = Cast <to = 1> (i) s = Mul(f, v) y = Relu(s) }""",
        """agraph (int64[3] x) => (float y)
        { i = Gather(w, x) f = Cast <to = 1> (i) s = Mul(f, v) y = Relu(s) }""",
    ],
)
def test_a_search_counts_what_an_analysis_counts(text: str) -> None:
    proto = model(text)
    proto.graph.initializer.extend([W, zeros("v", 4)])
    assert onnxroof.CostFunction("v100", "parameters")(proto) == 32
    assert onnxroof.analyze(proto).totals.parameters == 32


# -- products of constants -------------------------------------------------------------------


@pytest.mark.parametrize(
    "product",
    ["Conv(c, w)", 'com.microsoft.FusedConv <activation = "Relu"> (c, w)', "ConvInteger(q, k)"],
)
def test_a_product_of_constants_counts_in_its_fused_forms_too(product: str) -> None:
    # 2 channels · 4·4 positions · 3·3·3 pairs; computed once, so nothing moves
    proto = model(f"agraph () => (y) {{ y = {product} }}", opsets={"com.microsoft": 1})
    proto.graph.initializer.extend(
        [zeros("c", 1, 3, 6, 6), zeros("w", 2, 3, 3, 3),
         zeros("q", 1, 3, 6, 6, dtype=np.uint8), zeros("k", 2, 3, 3, 3, dtype=np.int8)]
    )  # fmt: skip
    found = onnxroof.analyze(proto).totals
    assert found.macs == found.folded_macs == 2 * 16 * 27 == 864
    assert found.traffic_bytes == 0


# -- what must stay a parameter --------------------------------------------------------------


def test_a_factor_behind_two_dynamically_quantized_operands_is_a_parameter() -> None:
    # the scales of both are in t; g is learned
    found = roles(
        """agraph (float[2,8] x, float[8,4] k) => (float y) {
        q, s, z = DynamicQuantizeLinear(x) r, u, o = DynamicQuantizeLinear(k)
        i = MatMulInteger(q, r, z, o) f = Cast <to = 1> (i) t = Mul(s, u) h = Mul(f, t)
        y = Mul(h, g) }""",
        zeros("g", 4),
    )
    assert found == {"g": "weight"}


def test_a_gain_behind_a_sum_with_a_table_in_bytes_is_a_parameter() -> None:
    found = roles(
        """agraph (float[3,4] x) => (float y)
        { f = Cast <to = 1> (p) a = Add(x, f) y = Mul(a, g) }""",
        zeros("p", 3, 4, dtype=np.int8), zeros("g", 4),
    )  # fmt: skip
    assert found == {"p": "weight", "g": "weight"}


@pytest.mark.parametrize(("shape", "parameters"), [((), 0), ((1,), 1)])
def test_a_single_number_is_in_quantized_form_what_it_is_in_floating_point(
    shape: tuple[int, ...], parameters: int
) -> None:
    # a literal of shape [] is none, an initializer of one element may be learned
    proto = model("agraph (float[2,4] x) => (float y) { d = DequantizeLinear(g, s) y = Mul(x, d) }")
    proto.graph.initializer.extend([zeros("g", *shape, dtype=np.int8), zeros("s")])
    assert onnxroof.analyze(proto).totals.parameters == parameters


def test_a_scalar_of_two_products_counts_once_in_a_search() -> None:
    # 2·2 + 2·2 weights and one C
    proto = model("agraph (float[2,2] x) => (float y) { h = Gemm(x, w, c) y = Gemm(h, v, c) }")
    proto.graph.initializer.extend([zeros("w", 2, 2), zeros("v", 2, 2), zeros("c")])
    assert onnxroof.CostFunction("v100", "parameters")(proto) == 9
    assert onnxroof.analyze(proto).totals.parameters == 9


@pytest.mark.parametrize("spread", ["Expand(v, e)", "Tile(v, t)"])
def test_a_scale_is_compared_with_the_weight_as_it_is_stored(spread: str) -> None:
    # one scale for each of 8 rows, repeated for 4 columns before it scales
    proto = model(
        f"""agraph (float[2,8] x) => (float y) <int64[2] e = {{8, 4}}, int64[2] t = {{1, 4}}>
        {{ f = Cast <to = 1> (w) s = {spread} d = Mul(f, s) y = MatMul(x, d) }}"""
    )
    proto.graph.initializer.extend([W, zeros("v", 8, 1)])
    assert onnxroof.analyze(proto).totals.parameters == 32


def test_a_scale_that_is_stored_quantized_is_no_parameter() -> None:
    # two levels: a scale in fp8 for each row, and one for all scales
    proto = model(
        """agraph (float[2,4] x) => (float y)
        { s = DequantizeLinear(v, g) d = DequantizeLinear <axis = 0> (w, s) y = MatMul(x, d) }"""
    )
    proto.graph.initializer.extend(
        [
            zeros("w", 4, 16, dtype=np.int8),
            helper.make_tensor("v", TensorProto.FLOAT8E4M3FN, [4], b"\0" * 4, raw=True),
            zeros("g"),
        ]
    )
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.quantization_bytes) == (64, 4 + 4)


def test_both_signs_of_eight_bits_multiply_as_int8_between_qdq_pairs() -> None:
    # uint8 by int8, 2·8·4, as in QLinearMatMul
    proto = model(
        """agraph (float[2,8] x) => (float y) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) u = DequantizeLinear(w, s)
        y = MatMul(d, u) }"""
    )
    proto.graph.initializer.extend([W, zeros("s"), zeros("z", dtype=np.uint8)])
    assert onnxroof.analyze(proto).totals.macs_by_dtype == {"int8": 64}


def test_folded_packed_weights_count_their_values() -> None:
    # 4 bits, blocks of 16: 16·8 values in 16·1·8 bytes, and the 2·8 of the other operand
    proto = model(
        """agraph () => (y) { y = com.microsoft.MatMulNBits
        <K = 8, N = 16, bits = 4, block_size = 16> (a, w, s) }""",
        opsets={"com.microsoft": 1},
    )
    proto.graph.initializer.extend(
        [zeros("a", 2, 8), zeros("w", 16, 1, 8, dtype=np.uint8), zeros("s", 16)]
    )
    found = onnxroof.analyze(proto).totals
    assert found.parameters == 16 * 8 + 2 * 8
    assert found.macs == found.folded_macs == 2 * 8 * 16


def test_folded_work_of_two_branches_is_that_of_the_dearer_one() -> None:
    # 2·8·4 MACs of constants in either branch: one of them runs
    branch = "() => (float[2,4] r) { r = MatMul(a, w) }"
    proto = model(
        f"""agraph (bool c) => (float[2,4] y)
        {{ y = If (c) <then_branch = t {branch}, else_branch = e {branch}> }}"""
    )
    proto.graph.initializer.extend([zeros("a", 2, 8), zeros("w", 8, 4)])
    found = onnxroof.analyze(proto).totals
    assert (found.macs, found.folded_macs) == (64, 64)


def test_axes_that_are_no_integers_are_an_error_of_that_node() -> None:
    proto = model("agraph (float[2,8] x) => (float y) { y = Unsqueeze(x, a) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0.5]), "a"))
    with pytest.raises(onnxroof.ShapeMismatchError, match="should be integers"):
        onnxroof.analyze(proto)


def test_an_unknown_gather_without_inputs_is_unknown() -> None:
    proto = model("agraph () => (y) { y = com.microsoft.Gather() }", opsets={"com.microsoft": 1})
    assert list(onnxroof.analyze(proto).coverage.unknown) == ["com.microsoft.Gather"]


PRECISIONS = ["", "fp16", "int8", "fp8"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        # a gain of a looked-up row: 9·4 + 4
        ("agraph (int64[3] i) => (float[3,4] y) { e = Gather(t, i) y = Mul(e, g) }", 40),
        # a literal added to it: 9·4
        ("agraph (int64[3] i) => (float[3,4] y) { e = Gather(t, i) y = Add(e, c) }", 36),
        # a gain of a weight in half precision: 8·4 + 4
        (
            """agraph (float[2,8] x) => (float[2,4] y) {
            f = Cast <to = 1> (h) k = Mul(f, g) y = MatMul(x, k) }""",
            36,
        ),
        # the scale of an integer product is none: 8·4
        (
            """agraph (uint8[2,8] x) => (float[2,4] y) {
            i = MatMulInteger(x, w) f = Cast <to = 1> (i) y = Mul(f, g) }""",
            32,
        ),
    ],
)
def test_parameters_are_the_same_under_every_precision(
    text: str, parameters: int, precision: str
) -> None:
    proto = model(text)
    half, table = zeros("h", 8, 4, dtype=np.float16), zeros("t", 9, 4)
    proto.graph.initializer.extend([W, half, table, zeros("g", 4), zeros("c")])
    assert onnxroof.analyze(proto, precision=precision).totals.parameters == parameters


def test_rows_of_a_dequantized_table_are_read_as_they_are_stored() -> None:
    # 3 rows of 8 int8 read, 3·8 floats written, 3 int64 indices read
    proto = model(
        "agraph (int64[3] i) => (float[3,8] y) { d = DequantizeLinear(t, s) y = Gather(d, i) }"
    )
    proto.graph.initializer.extend([zeros("t", 1000, 8, dtype=np.int8), zeros("s")])
    assert costs(proto).nodes[1].weight_read_bytes == 3 * 8
    assert onnxroof.analyze(proto).totals.traffic_bytes == 3 * 8 + 3 * 8 * 4 + 3 * 8


def test_a_dequantized_weight_that_is_named_twice_is_read_once() -> None:
    # 2·16 int8 read once; 2·16 floats read and 6·16 written
    proto = model(
        """agraph (float[2,16] x) => (float[6,16] y) {
        d = DequantizeLinear(t, s) y = Concat <axis = 0> (x, d, d) }"""
    )
    proto.graph.initializer.extend([zeros("t", 2, 16, dtype=np.int8), zeros("s")])
    assert costs(proto).nodes[1].weight_read_bytes == 2 * 16


def test_half_of_a_dequantized_weight_is_read_as_it_is_stored() -> None:
    # x and w are int8: each half of w, 8·2 bytes, is read as such and multiplied as such
    proto = model(
        """agraph (float[2,8] x) => (float[2,2] y, float[2,2] v) {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(w, s)
        a, b = Split <axis = 1, num_outputs = 2> (e) y = MatMul(d, a) v = MatMul(d, b) }"""
    )
    proto.graph.initializer.extend([W, zeros("s"), zeros("z", dtype=np.int8)])
    assert [node.weight_read_bytes for node in costs(proto).nodes[-2:]] == [16, 16]
    assert dict(onnxroof.analyze(proto).totals.macs_by_dtype) == {"int8": 2 * 2 * 8 * 2}


@pytest.mark.parametrize("operands", ["d, e", "e, d"])
def test_operands_of_two_widths_multiply_in_the_wider_in_either_order(operands: str) -> None:
    # int8 activations, int4 weights: int8, as they are unpacked
    proto = model(
        f"""agraph (float[4,4] x) => (float[4,4] y) {{
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(n, s)
        y = MatMul({operands}) }}"""
    )
    narrow = helper.make_tensor("n", TensorProto.INT4, [4, 4], [0] * 16)
    proto.graph.initializer.extend([narrow, zeros("s"), zeros("z", dtype=np.int8)])
    assert dict(onnxroof.analyze(proto).totals.macs_by_dtype) == {"int8": 4 * 4 * 4}


@pytest.mark.parametrize(
    "scaling",
    [
        "q = QuantizeLinear(x, s) i = MatMulInteger(q, w) f = Cast <to = 1> (i)"
        " h = Mul(f, s) y = Mul(h, g)",
        "q = QuantizeLinear(x, s) i = MatMulInteger(q, w) f = Cast <to = 1> (i)"
        " t = Mul(s, g) y = Mul(f, t)",
        "t = Mul(s, g) q = QuantizeLinear(x, s) i = MatMulInteger(q, w) f = Cast <to = 1> (i)"
        " y = Mul(f, t)",
        "o = Div(x, s) r = Round(o) q = Cast <to = 3> (r) i = MatMulInteger(q, w)"
        " f = Cast <to = 1> (i) h = Mul(f, s) y = Mul(h, g)",
    ],
)
def test_the_scale_of_a_weight_beside_one_that_nodes_find_for_each_row(scaling: str) -> None:
    # the largest magnitude of each row over 127 is its scale; w's own is no parameter either
    proto = model(
        f"""agraph (float[2,8] x) => (float[2,4] y) {{
        m = Abs(x) n = ReduceMax <keepdims = 1> (m, last) s = Div(n, most) {scaling} }}"""
    )
    last = numpy_helper.from_array(np.array([1]), "last")
    proto.graph.initializer.extend([W, last, zeros("g", 4), zeros("most")])
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.quantization_bytes) == (8 * 4, 4 * 4)


def test_a_bias_in_eight_bits_leaves_the_product_in_floating_point() -> None:
    # 8·4 weights, 4 biases as bytes, and 4 gains of the result
    proto = model(
        """agraph (float[2,8] x) => (float[2,4] y) {
        c = Cast <to = 1> (b) p = Gemm(x, h, c) y = Mul(p, g) }"""
    )
    tensors = zeros("h", 8, 4), zeros("b", 4, dtype=np.int8), zeros("g", 4)
    proto.graph.initializer.extend(tensors)
    assert onnxroof.analyze(proto).totals.parameters == 32 + 4 + 4


def test_a_number_added_behind_an_unscaled_product_is_a_literal() -> None:
    # 8·4 weights; the 3 of a HardSwish is code
    text = """agraph (float[2,8] x) => (float[2,4] y) {
        f = Cast <to = 1> (w) p = MatMul(x, f) y = Add(p, c) }"""
    assert roles(text, W, zeros("c")) == {"w": "weight", "c": "control"}


def test_an_offset_of_indices_that_are_stored_as_bytes_is_control() -> None:
    text = """agraph (int64[3] i) => (float[3,3,4] y) {
        e = Gather(b, i) f = Cast <to = 6> (e) a = Add(f, o) y = Gather(t, a) }"""
    tensors = zeros("b", 9, 3, dtype=np.uint8), zeros("o", 3, dtype=np.int32), zeros("t", 9, 4)
    assert roles(text, *tensors) == {"b": "weight", "o": "control", "t": "weight"}


@pytest.mark.parametrize(
    "nodes",
    [
        "f = Cast <to = 1> (w) c = Slice(f, zero, two) k = Mul(c, s) y = MatMul(x, k)",
        "f = Cast <to = 1> (w) p = com.microsoft.FusedMatMul(x, f) y = Mul(p, s)",
        "f = Cast <to = 1> (w) p = MatMul(x, f) c = Clip(p, low) y = Mul(c, s)",
        "i = Sub(w, z) f = Cast <to = 1> (i) k = Mul(f, s) y = MatMul(x, k)",
    ],
)
def test_a_scale_behind_what_keeps_steps_is_quantization_data(nodes: str) -> None:
    proto = model(f"agraph (float[2,8] x) => (float y) {{ {nodes} }}", opsets={"com.microsoft": 1})
    bounds = [numpy_helper.from_array(np.array([n]), name) for n, name in ((0, "zero"), (8, "two"))]
    proto.graph.initializer.extend(
        [W, zeros("s", 4), zeros("low"), zeros("z", 1, 4, dtype=np.int8), *bounds]
    )
    assert onnxroof.analyze(proto).totals.parameters == 8 * 4


def test_bytes_of_weights_in_a_search_are_those_of_the_candidate_under_a_precision() -> None:
    # 512·512 weights of 4 bytes, then of 2, in either order, whatever type they are priced in
    pair = [
        model(f"agraph ({t}[4,512] x) => ({t}[4,512] y) {{ h = MatMul(x, w) y = Relu(h) }}")
        for t in ("float", "float16")
    ]
    for proto, dtype in zip(pair, (np.float32, np.float16), strict=True):
        proto.graph.initializer.append(zeros("w", 512, 512, dtype=dtype))
    for order in ([0, 1], [1, 0]):
        price = onnxroof.CostFunction("v100", "weight_bytes", precision="int8")
        assert [price(pair[at]) for at in order] == [512 * 512 * (4, 2)[at] for at in order]


def test_the_index_of_a_folded_lookup_is_no_parameter_in_bytes_either() -> None:
    # 31 rows of 4 biases chosen by 16 stored bytes
    text = """agraph (float[16,4] x) => (float[16,4] y) {
        c = Cast <to = 7> (i) t = Gather(r, c) y = Add(x, t) }"""
    tensors = zeros("r", 31, 4), zeros("i", 16, dtype=np.uint8)
    assert roles(text, *tensors) == {"r": "weight", "i": "control"}


def test_a_mask_of_bytes_that_a_where_reads_is_no_parameter() -> None:
    text = """agraph (float[2,8] x) => (float[2,8] y) {
        c = Cast <to = 9> (m) y = Where(c, x, low) }"""
    assert roles(text, zeros("m", 2, 8, dtype=np.uint8), zeros("low"))["m"] == "control"


def test_a_scale_that_a_run_gives_to_quantize_linear_leaves_other_factors_trained() -> None:
    # no integer product: g's 4 numbers are a gain beside the scale of 8 bits
    text = """agraph (float[2,4] x) => (float[2,4] y) {
        n = ReduceMax <keepdims = 0> (x) s = Sigmoid(n) t = Mul(s, g) q = QuantizeLinear(x, s)
        d = DequantizeLinear(q, s) y = Mul(d, t) }"""
    assert roles(text, zeros("g", 4)) == {"g": "weight"}


def test_the_bias_of_a_product_of_constants_is_a_weight() -> None:
    # a product that is computed before the run: 2·8 and 8·4 bytes of weights, 4 biases
    text = """agraph (float[2,4] x) => (float[2,4] y) {
        i = MatMulInteger(c, w) f = Cast <to = 1> (i) r = Mul(f, s) p = Add(r, b) y = Add(x, p) }"""
    tensors = zeros("c", 2, 8, dtype=np.uint8), W, zeros("s", 4), zeros("b", 4)
    expected = {"c": "weight", "w": "weight", "s": "quantization", "b": "weight"}
    assert roles(text, *tensors) == expected
