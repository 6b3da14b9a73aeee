"""Products that read their weights as stored, and those that must not."""

from __future__ import annotations

import pytest

from onnxroof.fusion.explain import explain_fusion
from tests.fusion.plans import plan, reasons


def graph(
    stored: str = "int4[64,32]",
    scales: str = "float[2,32]",
    attributes: str = "axis = 0, block_size = 32",
    tail: str = "y = MatMul(x, w)",
) -> str:
    """x of 8×64 times a quantized matrix of 64×32."""
    return (
        f"g (float[8,64] x) => (float[8,32] y) <{stored} q, {scales} s, float[32] b> "
        f"{{ w = DequantizeLinear<{attributes}>(q, s)  {tail} }}"
    )


@pytest.mark.parametrize("runtime", ["onnxruntime", "tensorrt"])
def test_weights_are_read_as_stored(runtime: str) -> None:
    (kernel,) = plan(graph(), runtime, opset=21).kernels
    assert kernel.rule.startswith("weight-only-matmul")
    # 64·32 weights of half a byte, 2·32 scales
    assert kernel.weight_bytes == 64 * 32 // 2 + 2 * 32 * 4
    assert kernel.input_bytes == 8 * 64 * 4
    assert kernel.macs == 8 * 64 * 32
    assert "dequantized inside" in kernel.note


def test_the_bias_joins_and_the_activation_does_not() -> None:
    text = graph(tail="m = MatMul(x, w)  a = Add(m, b)  y = Relu(a)")
    first, second = plan(text, "onnxruntime", opset=21).kernels
    assert (first.op_type, first.rule) == ("MatMul+Add", "weight-only-bias")
    # weights and scales as above, the bias of 32
    assert first.weight_bytes == 64 * 32 // 2 + 2 * 32 * 4 + 32 * 4
    assert second.op_type == "Relu"


@pytest.mark.parametrize(
    ("stored", "scales", "attributes"),
    [
        ("uint4[64,32]", "float[4,32]", "axis = 0, block_size = 16"),
        ("int8[64,32]", "float[2,32]", "axis = 0, block_size = 32"),
        ("int8[64,32]", "float[32]", "axis = 1"),
        ("uint8[64,32]", "float", "axis = 1"),
    ],
)
def test_schemes_that_onnx_runtime_takes(stored: str, scales: str, attributes: str) -> None:
    (kernel,) = plan(graph(stored, scales, attributes), "onnxruntime", opset=21).kernels
    assert kernel.rule == "weight-only-matmul"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (graph("int8[64,32]", "float[64]", "axis = 0"), "scales are neither"),
        (graph("int4[64,32]", "float[8,32]", "axis = 0, block_size = 8"), "scales are neither"),
        (graph("int4[64,32]", "float[64,2]", "axis = 1, block_size = 16"), "scales are neither"),
        (graph(tail="y = Gemm<alpha = 2.0>(x, w)"), "a transposed or scaled Gemm"),
    ],
)  # fmt: skip
def test_what_the_kernel_cannot_take_keeps_its_reason(text: str, reason: str) -> None:
    assert any(found.startswith(reason) for found in reasons(text, "onnxruntime", opset=21))


def test_weights_that_somebody_else_reads_are_dequantized() -> None:
    text = graph(tail="m = MatMul(x, w)  n = Gemm(x, w)  y = Sub(m, n)")
    plan_ = plan(text, "onnxruntime", opset=21)
    assert not [kernel for kernel in plan_.kernels if kernel.rule == "weight-only-matmul"]
    assert "the dequantized weights are needed elsewhere too" in reasons(text, opset=21)


def test_a_runtime_without_such_a_kernel_says_so() -> None:
    misses = explain_fusion(plan(graph(), "tflite", opset=21)).misses
    assert [(miss.rule, miss.reason) for miss in misses] == [
        ("weight-only-matmul", "not in this runtime")
    ]
