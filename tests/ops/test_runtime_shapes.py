"""Shapes and types of contrib operators against what onnxruntime really returns."""

from __future__ import annotations

import numpy as np
import pytest

from onnxroof.graph.types import DTYPE_BY_CODE
from tests.builders import model, shaped

pytestmark = pytest.mark.oracle

CONTRIB = {"com.microsoft": 1, "com.microsoft.nchwc": 1}

CASES = {
    "FusedConv": (
        "float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[1,4,6,6] z",
        'y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b, z)',
    ),
    "QLinearConv channels last": (
        "uint8[1,8,9,3] x, float s, uint8 z, uint8[4,3,3,3] w, float t, uint8 u, float v, uint8 o",
        "y = com.microsoft.QLinearConv <channels_last = 1, strides = [2,2]>"
        " (x, s, z, w, t, u, v, o)",
    ),
    "FusedMatMul": (
        "float[2,3,5,4] x, float[2,3,6,5] w",
        "y = com.microsoft.FusedMatMul <transA = 1, transB = 1> (x, w)",
    ),
    "FusedMatMul batch": (
        "float[4,2,3,5] x, float[7,2,3,5] w",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1, transB = 1> (x, w)",
    ),
    "FusedMatMul batch of both": (
        "float[5,2,3,4] x, float[2,3,5,7] w",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transA = 1> (x, w)",
    ),
    "TransposeMatMul": (
        "float[3,5,4] x, float[5,6] w",
        "y = com.microsoft.TransposeMatMul <transA = 1> (x, w)",
    ),
    "FusedGemm": (
        "float[5,4] x, float[5,6] w, float[6] b",
        'y = com.microsoft.FusedGemm <transA = 1, activation = "Relu"> (x, w, b)',
    ),
    "MatMulIntegerToFloat": (
        "uint8[3,2,5] x, uint8[5,6] w, float s, float t",
        "y = com.microsoft.MatMulIntegerToFloat(x, w, s, t)",
    ),
    "DynamicQuantizeMatMul": (
        "float[3,2,5] x, uint8[5,6] w, float s",
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, s)",
    ),
    "QGemm quantized": (
        "uint8[2,5] x, float s, uint8 z, uint8[6,5] w, float t, uint8 u, int32[6] c, float v,"
        " uint8 o",
        "y = com.microsoft.QGemm <transB = 1> (x, s, z, w, t, u, c, v, o)",
    ),
    "QGemm float": (
        "uint8[2,5] x, float s, uint8 z, uint8[5,6] w, float t, uint8 u",
        "y = com.microsoft.QGemm(x, s, z, w, t, u)",
    ),
    "MatMulNBits": (
        "float[2,3,64] x, uint8[10,2,16] w, float[20] s",
        "y = com.microsoft.MatMulNBits <K = 64, N = 10, bits = 4, block_size = 32> (x, w, s)",
    ),
    "MatMulBnb4": (
        "float[2,3,64] x, uint8[320] w, float[10] s",
        "y = com.microsoft.MatMulBnb4 <K = 64, N = 10, block_size = 64, quant_type = 1> (x, w, s)",
    ),
    "MoE": (
        "float[6,8] x, float[6,4] r, float[4,16,8] w, float[4,16] b, float[4,8,16] v",
        'y = com.microsoft.MoE <k = 2, activation_type = "relu"> (x, r, w, b, v)',
    ),
    "QLinearAveragePool": (
        "uint8[1,8,9,3] x, float s, uint8 z, float t, uint8 u",
        "y = com.microsoft.QLinearAveragePool <kernel_shape = [2,2], strides = [2,2],"
        " channels_last = 1, ceil_mode = 1> (x, s, z, t, u)",
    ),
    "QLinearGlobalAveragePool": (
        "uint8[1,8,9,3] x, float s, uint8 z, float t, uint8 u",
        "y = com.microsoft.QLinearGlobalAveragePool <channels_last = 1> (x, s, z, t, u)",
    ),
    "NhwcMaxPool": (
        "uint8[1,8,9,3] x",
        "y = com.microsoft.NhwcMaxPool <kernel_shape = [3,3], strides = [2,2]> (x)",
    ),
    "MaxpoolWithMask": (
        "float[1,3,8,8] x, int32[1,3,8,8] m",
        "y = com.microsoft.MaxpoolWithMask <kernel_shape = [2,2], strides = [2,2]> (x, m)",
    ),
    "SkipLayerNormalization": (
        "float[2,3,4] x, float[2,3,4] k, float[4] g, float[4] b, float[4] c",
        "y, , , second = com.microsoft.SkipLayerNormalization(x, k, g, b, c)",
    ),
    "SkipSimplifiedLayerNormalization": (
        "float[2,3,4] x, float[2,3,4] k, float[4] g",
        "y, , , second = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g)",
    ),
    "SimplifiedLayerNormalization": (
        "float[2,3,4] x, float[4] g",
        "y, second = SimplifiedLayerNormalization <axis = -1> (x, g)",
    ),
    "EmbedLayerNormalization": (
        "int32[2,3] i, int32[2,3] t, float[9,8] w, float[5,8] p, float[2,8] q, float[8] g,"
        " float[8] b, int32[2,3] m",
        "y, second, third = com.microsoft.EmbedLayerNormalization(i, t, w, p, q, g, b, m)",
    ),
    "CausalConvWithState": (
        "float[2,6,10] x, float[6,1,4] w",
        "y, second = com.microsoft.CausalConvWithState <dilation = 2> (x, w)",
    ),
    "blocked convolution": (
        "float[1,32,8,8] x, float[16,32,3,3] w",
        "r = com.microsoft.nchwc.ReorderInput(x)"
        " c = com.microsoft.nchwc.Conv <strides = [2,2], pads = [1,1,1,1]> (r, w)"
        " p = com.microsoft.nchwc.MaxPool <kernel_shape = [2,2], strides = [2,2]> (c)"
        " y = com.microsoft.nchwc.ReorderOutput <channels = 16, channels_last = 1> (p)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_the_runtime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    inputs, body = CASES[name]
    outputs = [out for out in ("y", "second", "third") if out in body]
    text = f"agraph ({inputs}) => ({', '.join(outputs)}) {{ {body} }}"
    proto = model(text, opset=17, opsets=CONTRIB, ir=8)
    del proto.graph.output[:]
    ours = shaped(proto, opsets=CONTRIB)[0].tensors
    for out in outputs:
        info = ours[out]
        assert info.dtype is not None
        proto.graph.output.add(name=out).type.tensor_type.elem_type = info.dtype.code
    runtime.set_default_logger_severity(4)
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {
        item.name: np.ones(
            [dim.dim_value for dim in item.type.tensor_type.shape.dim],
            _NUMPY[DTYPE_BY_CODE[item.type.tensor_type.elem_type].label],
        )
        for item in proto.graph.input
    }
    for out, real in zip(outputs, session.run(outputs, feeds), strict=True):
        info = ours[out]
        assert info.shape == real.shape
        assert info.dtype is not None
        assert _NUMPY[info.dtype.label] == real.dtype


_NUMPY = {"fp32": np.float32, "uint8": np.uint8, "int32": np.int32}
