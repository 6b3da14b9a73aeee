"""Weights that lie several to an integer: as many parameters as there are values in them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

import onnxroof
from tests.builders import costs, with_tensors, zeros

K, N, GROUP = 128, 64, 32


def tensor(name: str, values: object, dtype: type) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


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
    "shift": """{0}_u = Cast <to = 12> ({0}_x) {0}_s = BitShift <direction = "RIGHT"> ({0}_u, {1})
                {0}_i = Cast <to = 6> ({0}_s) {0}_v = BitwiseAnd({0}_i, fifteen)""",
    "division": "{0}_s = Div({0}_x, {1}) {0}_v = BitwiseAnd({0}_s, fifteen)",
}


def unpacking(name: str, axis: str, how: str, by: str) -> str:
    """Nodes that make `name`_v, eight values of each element of `name`, with names of their own."""
    return f"{name}_x = Unsqueeze({name}, {axis}) {EIGHT_TO_AN_INT32[how].format(name, by)}"


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


BYTES = (
    zeros("q", K // 2, N, dtype=np.uint8),
    tensor("four", 4, np.uint8),
    tensor("fifteen", 15, np.uint8),
)
NIBBLES = """high = BitShift <direction = "RIGHT"> (q, four) low = BitwiseAnd(q, fifteen)"""


@pytest.mark.parametrize(
    "nodes",
    [
        # cast to floating point before the halves are joined
        """h = Cast <to = 1> (high) l = Cast <to = 1> (low) f = Concat <axis = 0> (h, l)
        g = Mul(f, scale) y = MatMul(a, g)""",
        # written into an empty tensor
        """n = ConstantOfShape <value = uint8[1] {0}> (whole) t = ScatterND(n, first, high)
        w = ScatterND(t, second, low) f = Cast <to = 1> (w) g = Mul(f, scale) y = MatMul(a, g)""",
        # parted again for three products
        """w = Concat <axis = 0> (high, low) f = Cast <to = 1> (w) g = Mul(f, scale)
        b, c = Split <axis = 1, num_outputs = 2> (g) d = MatMul(a, b) e = MatMul(a, c)
        y = Concat <axis = 1> (d, e)""",
        """w = Concat <axis = 0> (high, low) b, c = Split <axis = 1, num_outputs = 2> (w)
        h = Cast <to = 1> (b) l = Cast <to = 1> (c) d = MatMul(a, h) e = MatMul(a, l)
        u = Concat <axis = 1> (d, e) y = Mul(u, scale)""",
    ],
)
def test_values_count_however_they_are_put_together(nodes: str) -> None:
    # 64·64 bytes of two values
    proto = with_tensors(
        f"agraph (float[2,{K}] a) => (float[2,{N}] y) {{ {NIBBLES} {nodes} }}",
        *SHAPES, *BYTES, zeros("scale", N),
        tensor("first", np.arange(64).reshape(64, 1), np.int64),
        tensor("second", np.arange(64, 128).reshape(64, 1), np.int64),
    )  # fmt: skip
    assert roles(proto) == {"q": "weight", "scale": "quantization"}
    assert onnxroof.analyze(proto).totals.parameters == 128 * 64


def test_values_in_another_order_than_they_are_stored_in() -> None:
    # 128·8 int32 of 8 values each, reordered by a Gather before the mask
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{
        u = Unsqueeze(q, two) s = Div(u, powers) c = Cast <to = 3> (s) r = Reshape(c, whole)
        o = Gather <axis = 1> (r, order) v = BitwiseAnd(o, fifteen) f = Cast <to = 1> (v)
        g = Mul(f, scale) y = MatMul(a, g) }}""",
        *SHAPES, zeros("q", K, N // 8, dtype=np.int32), zeros("scale", N),
        tensor("powers", np.ones((1, 1, 8)), np.int32), tensor("order", range(N), np.int64),
        tensor("fifteen", 15, np.int8),
    )  # fmt: skip
    assert roles(proto) == {"q": "weight", "scale": "quantization"}
    assert onnxroof.analyze(proto).totals.parameters == 128 * 64


def test_tensors_that_are_joined_before_they_are_taken_apart_share_the_values() -> None:
    # two of 64·32 bytes, two values each
    halves = [zeros(name, K // 2, N // 2, dtype=np.uint8) for name in ("left", "right")]
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ q = Concat <axis = 1> (left, right)
        {NIBBLES} w = Concat <axis = 0> (high, low) f = Cast <to = 1> (w) g = Mul(f, scale)
        y = MatMul(a, g) }}""",
        *halves, *BYTES[1:], zeros("scale", N),
    )  # fmt: skip
    assert roles(proto) == {"left": "weight", "right": "weight", "scale": "quantization"}
    assert onnxroof.analyze(proto).totals.parameters == 2 * (64 * 32 * 2)


def test_bits_of_the_same_values_in_two_tensors_count_the_values_once() -> None:
    # four bits of each of 128·64 values in q, one more in h: 64·64 + 128·64 bytes stored
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ {NIBBLES}
        w = Concat <axis = 0> (high, low) b = BitwiseAnd(h, one8)
        l = BitShift <direction = "LEFT"> (b, four) o = BitwiseOr(w, l)
        f = Cast <to = 1> (o) g = Mul(f, scale) y = MatMul(a, g) }}""",
        *BYTES, zeros("h", K, N, dtype=np.uint8), zeros("scale", N), tensor("one8", 1, np.uint8),
    )  # fmt: skip
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.weight_bytes) == (128 * 64, 64 * 64 + 128 * 64)


@pytest.mark.parametrize("container", [np.uint8, np.int32])
def test_each_column_may_have_codes_of_its_own(container: type) -> None:
    # 16 codes for each of 64 columns; the numbers lie two to a byte, or in the low byte of an int32
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{
        high = Div(q, sixteen) low = BitwiseAnd(q, mask) w = Concat <axis = 0> (high, low)
        i = Cast <to = 7> (w) c = GatherElements <axis = 0> (codes, i) y = MatMul(a, c) }}""",
        zeros("q", K // 2, N, dtype=container), zeros("codes", 16, N),
        tensor("sixteen", 16, container), tensor("mask", 15, container),
    )  # fmt: skip
    assert roles(proto) == {"q": "weight", "codes": "quantization"}


def test_a_zero_point_in_floating_point_and_a_scale_of_scales_are_no_parameters() -> None:
    # (q − 8)·s·t + z, as some kernels want it, before the product; behind it a gain is trained
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ f = Cast <to = 1> (w) d = Sub(f, eight)
        g = Mul(d, s) h = Mul(g, t) k = Add(h, z) m = MatMul(a, k) y = Mul(m, gain) }}""",
        zeros("w", K, N, dtype=np.int8), tensor("eight", 8, np.float32),
        *[zeros(name, 1, N) for name in "stz"], zeros("gain", N),
    )  # fmt: skip
    kept = dict.fromkeys("stz", "quantization") | {"eight": "quantization"}
    assert roles(proto) == {"w": "weight", "gain": "weight", **kept}


def test_a_table_that_stored_numbers_choose_from_keeps_its_parameters() -> None:
    # rows of a table by int64 numbers, as relative position biases are looked up: 9·4 parameters
    proto = with_tensors(
        "agraph (float[16,4] a) => (float[16,4] y) { t = Gather(table, i) y = Add(a, t) }",
        zeros("table", 9, 4),
        zeros("i", 16, dtype=np.int64),
    )
    assert roles(proto) == {"table": "weight"}
    assert onnxroof.analyze(proto).totals.parameters == 9 * 4


@pytest.mark.parametrize(
    "nodes",
    [
        "i = BitwiseAnd(positions, mask) t = Gather(table, i) y = Add(a, t)",
        "i = Mod(positions, mask) t = Gather(table, i) y = Add(a, t)",
        "i = BitwiseAnd(positions, mask) f = Cast <to = 1> (i) u = Unsqueeze(f, one)"
        " m = Mul(a, u) t = Gather(table, zero) y = Add(m, t)",
        "i = BitwiseAnd(square, mask) f = Cast <to = 1> (i) u = Mul(a, f)"
        " t = Gather(table, zero) y = Add(u, t)",
        "i = BitwiseAnd(positions, mask) r = Reshape(i, shape) f = Cast <to = 1> (r)"
        " p = MatMul(f, a) t = Gather(table, zero) y = Add(p, t)",
    ],
)
def test_bits_of_numbers_that_nothing_trains_are_no_parameters(nodes: str) -> None:
    # a bit of each of 16 positions chooses a row, or a sign, or whom to add up: a table is trained
    proto = with_tensors(
        f"agraph (float[16,4] a) => (float y) {{ {nodes} }}",
        zeros("table", 2, 4),
        tensor("positions", range(16), np.int64),
        tensor("square", np.arange(64).reshape(16, 4), np.int64),
        tensor("mask", 1, np.int64),
        tensor("zero", 0, np.int64),
        tensor("one", [1], np.int64),
        tensor("shape", [1, 16], np.int64),
    )
    assert roles(proto) == {"table": "weight"}


def test_a_row_of_biases_that_bytes_choose_from_is_trained() -> None:
    # 31 distances of one head, looked up for each of 16·16 pairs: read by an Add, not by a product
    proto = with_tensors(
        """agraph (float[16,16] a) => (float[16,16] y) {
        c = Cast <to = 7> (i) t = Gather(table, c) y = Add(a, t) }""",
        zeros("table", 31),
        zeros("i", 16, 16, dtype=np.uint8),
    )
    assert roles(proto) == {"table": "weight"}
    assert onnxroof.analyze(proto).totals.parameters == 31


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


@pytest.mark.parametrize("precision", ["", "fp16", "int8", "fp8"])
def test_a_sum_of_two_packed_weights_counts_both(precision: str) -> None:
    # two times 64·64 bytes of two values, each scaled: 16,384 parameters, 2·64 scales
    second = NIBBLES.replace("high", "up").replace("low", "down").replace("q", "r")
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ {NIBBLES} {second}
        w = Concat <axis = 0> (high, low) v = Concat <axis = 0> (up, down)
        f = Cast <to = 1> (w) g = Cast <to = 1> (v) h = Mul(f, s) i = Mul(g, t) b = Add(h, i)
        y = MatMul(a, b) }}""",
        *BYTES, zeros("r", K // 2, N, dtype=np.uint8), zeros("s", N), zeros("t", N),
    )  # fmt: skip
    kept = {"q": "weight", "r": "weight", "s": "quantization", "t": "quantization"}
    assert roles(proto) == kept
    assert onnxroof.analyze(proto, precision=precision).totals.parameters == 2 * 128 * 64


@pytest.mark.parametrize("container", [np.uint8, np.int32])
@pytest.mark.parametrize("is_mask_first", [True, False])
def test_the_order_in_which_halves_are_taken_does_not_matter(
    container: type, is_mask_first: bool
) -> None:
    # 64·64 integers of two values, the upper by a division, the lower by a mask
    upper, lower = "high = Div(q, sixteen)", "low = BitwiseAnd(q, mask)"
    nodes = f"{lower} {upper}" if is_mask_first else f"{upper} {lower}"
    proto = with_tensors(
        f"""agraph (float[2,{K}] a) => (float[2,{N}] y) {{ {nodes}
        w = Concat <axis = 0> (high, low) f = Cast <to = 1> (w) g = Mul(f, s)
        y = MatMul(a, g) }}""",
        zeros("q", K // 2, N, dtype=container), zeros("s", N),
        tensor("sixteen", 16, container), tensor("mask", 15, container),
    )  # fmt: skip
    assert roles(proto) == {"q": "weight", "s": "quantization"}
    assert onnxroof.analyze(proto).totals.parameters == 128 * 64


def test_packed_integers_of_unknown_shape_are_no_traceback() -> None:
    # the row count of q is not known before the run: the bits of it are not either
    proto = with_tensors(
        """agraph (float[2,8] a, int64[1] n) => (float y) {
        r = Reshape(q, n) v = BitwiseAnd(r, fifteen) f = Cast <to = 1> (v) y = Mul(f, a) }""",
        zeros("q", 4, 4, dtype=np.uint8), tensor("fifteen", 15, np.uint8),
    )  # fmt: skip
    assert onnxroof.analyze(proto).totals.parameters == 16
