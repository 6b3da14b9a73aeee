from __future__ import annotations

import math

import onnx
import pytest

from onnxroof.graph.types import DTYPE_BY_CODE, DType
from tests.builders import cost_of, costs, model, problem_of, shaped, shapes_of

MICROSOFT = {"com.microsoft": 1}


def graph(inputs: str, body: str, outputs: str = "y") -> str:
    return f"agraph ({inputs}) => ({outputs}) {{ {body} }}"


def parameters(body: str, opset: int, **weights: str) -> tuple[int, int]:
    """(elements, bytes) of what counts as a weight, given initializers as "type[dims]"."""
    inputs = ", ".join(f"{kind} {name}" for name, kind in weights.items())
    proto = model(graph(f"float[1] x, {inputs}", body), opset=opset)
    for declared in proto.graph.input[1:]:
        kind = declared.type.tensor_type
        dims = [dim.dim_value for dim in kind.shape.dim]
        bits = DTYPE_BY_CODE[kind.elem_type].bits or 0
        raw = bytes(-(-math.prod(dims) * bits // 8))
        proto.graph.initializer.append(
            onnx.helper.make_tensor(declared.name, kind.elem_type, dims, raw, raw=True)
        )
    del proto.graph.input[1:]
    found = [weight for weight in costs(proto).weights if weight.parameters]
    return sum(w.parameters for w in found), sum(w.stored_bytes or 0 for w in found)


@pytest.mark.parametrize(
    ("zero_point", "expected"),
    [("uint8", DType.UINT8), ("int8", DType.INT8), ("int16", DType.INT16)],
)
def test_quantized_values_have_the_type_of_the_zero_point(zero_point: str, expected: DType) -> None:
    text = graph(f"float[2,3] x, float s, {zero_point} z", "y = QuantizeLinear(x, s, z)")
    assert shaped(text)[0].tensors["y"].dtype is expected


def test_without_zero_point_quantized_values_are_uint8_or_what_output_dtype_names() -> None:
    plain = graph("float[2,3] x, float s", "y = QuantizeLinear(x, s)")
    named = graph("float[2,3] x, float s", "y = QuantizeLinear <output_dtype = 22> (x, s)")
    assert shaped(plain)[0].tensors["y"].dtype is DType.UINT8
    assert shaped(named)[0].tensors["y"].dtype is DType.INT4


def test_dequantized_values_have_the_type_of_the_scale_or_of_output_dtype() -> None:
    plain = graph("int8[2,3] x, float16 s", "y = DequantizeLinear(x, s)")
    named = graph("int8[2,3] x, float s", "y = DequantizeLinear <output_dtype = 16> (x, s)")
    assert shaped(plain)[0].tensors["y"].dtype is DType.FLOAT16
    assert shaped(named, opset=23)[0].tensors["y"].dtype is DType.BFLOAT16


def test_quantizing_is_one_operation_per_element() -> None:
    # 24 floats in, 24 bytes out, a scale of 4 bytes and a zero point of 1
    cost = cost_of(graph("float[2,3,4] x, float s, int8 z", "y = QuantizeLinear(x, s, z)"))
    assert cost.flops == 24
    assert cost.traffic_bytes == 24 * 4 + 4 + 1 + 24


def test_a_scale_per_axis_is_as_long_as_the_axis() -> None:
    fits = graph("int8[2,3,4] x, float[4] s", "y = DequantizeLinear <axis = -1> (x, s)")
    assert shapes_of(fits)["y"] == (2, 3, 4)
    assert "does not fit" in problem_of(
        graph("int8[2,3,4] x, float[4] s", "y = DequantizeLinear(x, s)")
    )


def test_a_blocked_scale_rounds_the_last_block_up() -> None:
    # 10 elements in blocks of 4: ⌈10 / 4⌉ = 3 scales
    body = "y = DequantizeLinear <axis = 0, block_size = 4> (x, s)"
    assert shapes_of(graph("int4[10,8] x, float[3,8] s", body))["y"] == (10, 8)
    assert "does not fit" in problem_of(graph("int4[10,8] x, float[2,8] s", body))


@pytest.mark.parametrize(
    ("kind", "opset", "nbytes"),
    [
        # 5·7 = 35 values, rounded up to whole bytes per tensor
        ("int8", 13, 35),
        ("float8e4m3fn", 19, 35),
        ("int4", 21, 18),
        ("uint4", 21, 18),
        ("float4e2m1", 23, 18),
        ("uint2", 25, 9),
    ],
)
def test_packed_weights_take_their_bits_and_scales_are_no_parameters(
    kind: str, opset: int, nbytes: int
) -> None:
    body = "d = DequantizeLinear(w, s) y = Add(d, x)"
    assert parameters(body, opset, w=f"{kind}[5,7]", s="float") == (35, nbytes)


def test_a_quantized_bias_of_int32_is_a_weight() -> None:
    # 8 int32 values; their scales and zero points are not parameters
    body = "d = DequantizeLinear <axis = 0> (b, s, z) y = Add(d, x)"
    assert parameters(body, 13, b="int32[8]", s="float[8]", z="int32[8]") == (8, 32)


def test_dynamic_quantization_reads_the_range_first() -> None:
    # n = 32: range 2·31, stretched to zero 2, scale 2, zero point 4, quantization 32
    text = graph("float[2,16] x", "y, s, z = DynamicQuantizeLinear(x)", "y, s, z")
    tensors = shaped(text)[0].tensors
    assert [(tensors[n].dtype, tensors[n].shape) for n in "ysz"] == [
        (DType.UINT8, (2, 16)), (DType.FLOAT, ()), (DType.UINT8, ()),
    ]  # fmt: skip
    assert cost_of(text).flops == 62 + 2 + 2 + 4 + 32


def test_contrib_quantization_keeps_the_standard_rules() -> None:
    text = graph(
        "float[2,3] x, float s, int16 z",
        "q = com.microsoft.QuantizeLinear(x, s, z) y = com.microsoft.DequantizeLinear(q, s, z)",
    )
    tensors = shaped(text, opsets=MICROSOFT)[0].tensors
    assert tensors["q"].dtype is DType.INT16
    assert tensors["y"].dtype is DType.FLOAT


# -- 8-bit operators -------------------------------------------------------------------------

SCALES = "float s, uint8 z"


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_an_8_bit_sum_or_product_is_one_operation_per_element(op: str) -> None:
    text = graph(
        f"uint8[2,3,4] a, uint8[4] b, {SCALES}", f"y = com.microsoft.{op}(a, s, z, b, s, z, s, z)"
    )
    cost = cost_of(text, opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (2, 3, 4)
    assert cost.call.outputs[0].dtype is DType.UINT8
    assert (cost.flops, cost.transcendentals) == (24, 0)


def test_an_8_bit_sigmoid_evaluates_once_per_element() -> None:
    text = graph(f"uint8[2,3] x, {SCALES}", "y = com.microsoft.QLinearSigmoid(x, s, z, s, z)")
    cost = cost_of(text, opsets=MICROSOFT)
    assert (cost.flops, cost.transcendentals) == (6, 6)


def test_an_8_bit_softmax_follows_the_opset_it_came_from() -> None:
    # opset 13: 6 rows of 4, 5·4 − 2 each; opset 12 at axis 1: 2 rows of 12, 5·12 − 2 each
    for opset, axis, flops in ((13, -1, 6 * 18), (12, 1, 2 * 58)):
        body = f"y = com.microsoft.QLinearSoftmax <opset = {opset}, axis = {axis}> (x, s, z, s, z)"
        cost = cost_of(graph(f"uint8[2,3,4] x, {SCALES}", body), opsets=MICROSOFT)
        assert (cost.flops, cost.transcendentals) == (flops, 24)


def test_an_8_bit_mean_reduces_its_axes() -> None:
    body = "y = com.microsoft.QLinearReduceMean <axes = [2], keepdims = 0> (x, s, z, s, z)"
    cost = cost_of(graph(f"uint8[2,3,4] x, {SCALES}", body), opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (2, 3)
    assert cost.flops == 6 * 4


def test_an_8_bit_concatenation_rescales_every_element() -> None:
    body = "y = com.microsoft.QLinearConcat <axis = 1> (s, z, a, s, z, b, s, z)"
    cost = cost_of(graph(f"uint8[2,3] a, uint8[2,5] b, {SCALES}", body), opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (2, 8)
    assert cost.flops == 16


def test_an_8_bit_where_stretches_all_three() -> None:
    body = "y = com.microsoft.QLinearWhere(c, a, s, z, b, s, z, s, z)"
    text = graph(f"bool[3,1] c, uint8[4] a, uint8[1] b, {SCALES}", body)
    assert shapes_of(text, opsets=MICROSOFT)["y"] == (3, 4)


def test_integer_product_and_sum_widen_to_32_bits() -> None:
    product = graph("int8[2,3] a, int8[3] b, int8 z", "y = com.microsoft.MulInteger(a, z, b, z)")
    total = graph("uint8[2,3] a", "y = com.microsoft.ReduceSumInteger <axes = [1]> (a)")
    assert shaped(product, opsets=MICROSOFT)[0].tensors["y"].dtype is DType.INT32
    assert shaped(total, opsets=MICROSOFT)[0].tensors["y"].dtype is DType.UINT32
    assert cost_of(total, opsets=MICROSOFT).flops == 2 * 2


def test_gathering_from_a_packed_table_reads_the_rows_taken() -> None:
    # data uint8 [100, 32] holds two 4-bit values a byte: rows of 64 values, scales [100, 2];
    # 5 rows: 5·32 bytes of data, 5·2·4 of scales, 5·8 of indices; 5·64·4 written
    text = graph(
        "uint8[100,32] t, int64[5] i, float[100,2] s",
        "y = com.microsoft.GatherBlockQuantized <bits = 4, block_size = 32> (t, i, s)",
    )
    cost = cost_of(text, opsets=MICROSOFT)
    assert cost.call.outputs[0].shape == (5, 64)
    assert cost.flops == 5 * 64
    assert cost.traffic_bytes == 5 * 32 + 5 * 2 * 4 + 5 * 8 + 5 * 64 * 4


def test_block_floating_point_comes_back_in_the_shape_it_was_given() -> None:
    shape = "n = Constant <value = int64[2] {4, 16}> () "
    body = shape + "y = com.microsoft.DequantizeBFP <bfp_type = 1, dtype = 1> (x, n, n)"
    assert shapes_of(graph("uint8[70] x", body), opsets=MICROSOFT)["y"] == (4, 16)
