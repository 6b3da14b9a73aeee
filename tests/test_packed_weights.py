"""Weights that lie several to an integer: as many parameters as there are values in them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

import onnxroof
from tests.builders import costs, model

K, N, GROUP = 128, 64, 32


def tensor(name: str, values: object, dtype: type) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def zeros(name: str, *shape: int, dtype: type = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.zeros(shape, dtype), name)


def with_tensors(text: str, *tensors: TensorProto) -> ModelProto:
    proto = model(text, opsets={"com.microsoft": 1})
    proto.graph.initializer.extend(tensors)
    return proto


def roles(proto: ModelProto) -> dict[str, str]:
    kept = ("weight", "quantization")
    found = {w.constant.name: w.role.label for w in costs(proto).weights}
    return {name: role for name, role in found.items() if role in kept}


SHAPES = (
    tensor("groups", [K // GROUP, GROUP, N], np.int64),
    tensor("points", [K // GROUP, 1, N], np.int64),
    tensor("whole", [K, N], np.int64),
    tensor("one", [1], np.int64),
    tensor("two", [2], np.int64),
)

EIGHT_TO_AN_INT32 = {
    "shift": """u = Cast <to = 12> (x8) s = BitShift <direction = "RIGHT"> (u, by)
                i = Cast <to = 6> (s) v = BitwiseAnd(i, fifteen)""",
    "division": "s = Div(x8, by) v = BitwiseAnd(s, fifteen)",
}


def unpacking(name: str, axis: str, how: str, by: str) -> str:
    """Nodes that make `name`_v, eight values of each element of `name`, with names of their own."""
    text = EIGHT_TO_AN_INT32[how].replace("by)", f"{by})").replace("x8", "x")
    for own in "usiv":
        text = text.replace(f"({own}", f"({name}_{own}").replace(f"{own} =", f"{name}_{own} =")
    return f"{name}_x = Unsqueeze({name}, {axis}) " + text.replace("(x", f"({name}_x")


@pytest.mark.parametrize("how", ["shift", "division"])
def test_four_bit_weights_in_int32_are_eight_parameters_each(how: str) -> None:
    # weights: 16·64 int32 of 8 values; zero points: 4·8 int32 of 8 values; scales: 4·64 floats
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{
        {unpacking("q", "one", how, "rows")} w = Reshape(q_v, groups)
        {unpacking("p", "two", how, "columns")} z = Reshape(p_v, points)
        d = Sub(w, z) f = Cast <to = 1> (d) g = Mul(f, scales) b = Reshape(g, whole)
        y = MatMul(a, b) }}""",
        *SHAPES,
        zeros("q", K // 8, N, dtype=np.int32),
        zeros("p", K // GROUP, N // 8, dtype=np.int32),
        zeros("scales", K // GROUP, 1, N),
        tensor("rows", np.ones((1, 8, 1)), np.uint32 if how == "shift" else np.int32),
        tensor("columns", np.ones((1, 1, 8)), np.uint32 if how == "shift" else np.int32),
        tensor("fifteen", 15, np.int32),
    )
    assert roles(proto) == {"q": "weight", "p": "quantization", "scales": "quantization"}
    found = onnxroof.analyze(proto).totals
    assert found.parameters == 128 * 64
    assert found.weight_bytes == 16 * 64 * 4
    assert found.quantization_bytes == 4 * 8 * 4 + 4 * 64 * 4


TWO_TO_A_BYTE = """
    high = BitShift <direction = "RIGHT"> (q, four) low = BitwiseAnd(q, fifteen)
    both = Concat <axis = 0> (high, low) w = Reshape(both, groups)"""


@pytest.mark.parametrize(
    "scaling",
    [
        "e = Cast <to = 1> (w) o = Cast <to = 1> (zero) d = Sub(e, o)",
        "e = Cast <to = 3> (w) o = Cast <to = 3> (zero) i = Sub(e, o) d = Cast <to = 1> (i)",
    ],
)
def test_two_values_to_a_byte_are_two_parameters(scaling: str) -> None:
    # 64·64 bytes of 2 values; what is subtracted from them and what scales them are not trained
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ {TWO_TO_A_BYTE} {scaling}
        g = Mul(d, scales) b = Reshape(g, whole) y = MatMul(a, b) }}""",
        *SHAPES,
        zeros("q", K // 2, N, dtype=np.uint8),
        zeros("zero", K // GROUP, 1, N, dtype=np.uint8),
        zeros("scales", K // GROUP, 1, N),
        tensor("four", 4, np.uint8),
        tensor("fifteen", 15, np.uint8),
    )
    assert roles(proto) == {"q": "weight", "zero": "quantization", "scales": "quantization"}
    assert onnxroof.analyze(proto).totals.parameters == 128 * 64


def test_numbers_of_codes_are_the_parameters_and_the_codes_are_not() -> None:
    # 64·64 bytes of 2 numbers, each of one of 16 codes; a scale for each 32 of the 8,192 values
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ {TWO_TO_A_BYTE}
        i = Cast <to = 7> (w) c = Gather(codes, i) g = Mul(c, scales) b = Reshape(g, whole)
        y = MatMul(a, b) }}""",
        *SHAPES,
        zeros("q", K // 2, N, dtype=np.uint8),
        zeros("codes", 16),
        zeros("scales", K // GROUP, 1, N),
        tensor("four", 4, np.uint8),
        tensor("fifteen", 15, np.uint8),
    )
    assert roles(proto) == {"q": "weight", "codes": "quantization", "scales": "quantization"}
    assert onnxroof.analyze(proto).totals.parameters == 128 * 64


def test_a_table_that_stored_numbers_choose_from_keeps_its_parameters() -> None:
    # rows of a table by int64 numbers, as relative position biases are looked up: 9·4 parameters
    proto = with_tensors(
        "agraph (float[16,4] a) => (float[16,4] y) { t = Gather(table, i) y = Add(a, t) }",
        zeros("table", 9, 4),
        zeros("i", 16, dtype=np.int64),
    )
    assert roles(proto) == {"table": "weight"}
    assert onnxroof.analyze(proto).totals.parameters == 9 * 4


def test_bits_of_numbers_that_nothing_trains_are_no_parameters() -> None:
    # a bit of each of 16 positions chooses between two rows: only the table is trained
    proto = with_tensors(
        """agraph (float[16,4] a) => (float[16,4] y) {
        i = BitwiseAnd(positions, mask) t = Gather(table, i) y = Add(a, t) }""",
        zeros("table", 2, 4),
        tensor("positions", range(16), np.int64),
        tensor("mask", 1, np.int64),
    )
    assert roles(proto) == {"table": "weight"}


BITS = "com.microsoft.MatMulNBits <K = 16, N = {n}, bits = 4, block_size = 16>"


@pytest.mark.parametrize(
    ("nodes", "stored"),
    [
        (f"j = Concat <axis = 0> (q, r) y = {BITS.format(n=8)} (a, j, s)", (4, 4)),
        (
            f"""u, v = Split <num_outputs = 2> (q) b = {BITS.format(n=4)} (a, u, s)
            c = {BITS.format(n=4)} (a, v, s) y = Concat <axis = 1> (b, c)""",
            (8, 1),
        ),
    ],
)
def test_packed_weights_that_are_joined_or_parted_count_their_own_values(
    nodes: str, stored: tuple[int, int]
) -> None:
    # 8 columns of 16 values however they are stored
    proto = with_tensors(
        f"agraph (float[3,16] a) => (float[3,8] y) {{ {nodes} }}",
        zeros("q", stored[0], 1, 8, dtype=np.uint8),
        zeros("r", stored[1], 1, 8, dtype=np.uint8),
        zeros("s", 8),
    )
    assert onnxroof.analyze(proto).totals.parameters == 8 * 16


@pytest.mark.parametrize("is_product_first", [True, False])
def test_a_packed_table_has_as_many_values_in_either_order_of_its_readers(
    is_product_first: bool,
) -> None:
    # 8 columns of 20 values in 2 blocks of 16: what fills the second block up is no parameter
    product = "y = com.microsoft.MatMulNBits <K = 20, N = 8, bits = 4, block_size = 16> (a, q, s)"
    lookup = """f = Reshape(q, rows)
        z = com.microsoft.GatherBlockQuantized <bits = 4, block_size = 16> (f, i, t)"""
    nodes = f"{product} {lookup}" if is_product_first else f"{lookup} {product}"
    proto = with_tensors(
        f"agraph (float[3,20] a, int64[2] i) => (float[3,8] y, float[2,32] z) {{ {nodes} }}",
        zeros("q", 8, 2, 8, dtype=np.uint8),
        zeros("s", 16),
        zeros("t", 8, 2),
        tensor("rows", [8, 16], np.int64),
    )
    assert onnxroof.analyze(proto).totals.parameters == 8 * 20
