"""A weight whose bytes hold several values each counts its values as parameters."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxroof


def product(bits: int, inner: int = 64, columns: int = 3) -> onnx.ModelProto:
    """x [2, K] times a K × N weight in blocks of 32 values."""
    blocks = -(-inner // 32)
    stored = numpy_helper.from_array(np.zeros((columns, blocks, 32 * bits // 8), np.uint8), "w")
    scales = numpy_helper.from_array(np.zeros(columns * blocks, np.float32), "scales")
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "scales"],
        ["y"],
        domain="com.microsoft",
        K=inner,
        N=columns,
        bits=bits,
        block_size=32,
    )
    graph = helper.make_graph(
        [node],
        "packed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, columns])],
        [stored, scales],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def test_a_four_bit_weight_has_two_parameters_a_byte() -> None:
    totals = onnxroof.analyze(product(bits=4)).totals
    assert totals.parameters == 64 * 3
    assert totals.weight_bytes == 64 * 3 // 2


def test_the_padding_of_the_last_block_is_stored_but_is_no_parameter() -> None:
    # K = 40 takes two blocks of 32.
    totals = onnxroof.analyze(product(bits=4, inner=40)).totals
    assert totals.parameters == 40 * 3
    assert totals.weight_bytes == 64 * 3 // 2


def test_an_eight_bit_weight_has_one_parameter_a_byte() -> None:
    totals = onnxroof.analyze(product(bits=8)).totals
    assert totals.parameters == totals.weight_bytes == 64 * 3
