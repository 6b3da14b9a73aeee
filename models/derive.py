"""Quantized, converted and optimized forms of a model, made by onnxruntime's own tools."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization import matmul_nbits_quantizer
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
FORMATS = {"qdq": quantization.QuantFormat.QDQ, "qop": quantization.QuantFormat.QOperator}


def optimize(model: onnx.ModelProto, level: str) -> onnx.ModelProto:
    """The graph that onnxruntime would run on a CPU at an optimization level."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "optimized.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = LEVELS[level]
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return onnx.load(path)


def to_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Half-precision weights and activations between float32 inputs and outputs."""
    return convert_float_to_float16(model, keep_io_types=True)


class RandomImages(quantization.CalibrationDataReader):
    """A few random inputs, enough to calibrate a model whose weights are random too."""

    def __init__(self, model: onnx.ModelProto, count: int = 2) -> None:
        super().__init__()
        self.batches = self.random_batches(model, count)

    @staticmethod
    def random_batches(model: onnx.ModelProto, count: int) -> Iterator[dict[str, np.ndarray]]:
        """Arrays for the graph's one float input."""
        value = model.graph.input[0]
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        random = np.random.default_rng(0)
        for _ in range(count):
            yield {value.name: random.random(shape, dtype=np.float32)}

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next batch, or nothing when all were used."""
        return next(self.batches, None)


def quantize_static(model: onnx.ModelProto, style: str) -> onnx.ModelProto:
    """8-bit weights and activations: ``qdq`` with explicit pairs, ``qop`` with QLinear nodes."""
    with tempfile.TemporaryDirectory() as folder:
        source, ready, target = (Path(folder, name) for name in ("a.onnx", "b.onnx", "c.onnx"))
        onnx.save(model, source)
        quant_pre_process(source, ready)
        quantization.quantize_static(
            ready, target, RandomImages(model), quant_format=FORMATS[style]
        )
        return onnx.load(target)


def quantize_dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """8-bit weights, activations quantized while running."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "a.onnx"), Path(folder, "b.onnx")
        onnx.save(model, source)
        quantization.quantize_dynamic(source, target)
        return onnx.load(target)


def quantize_weights_to_4_bits(model: onnx.ModelProto) -> onnx.ModelProto:
    """MatMul weights in blocks of 32 four-bit values with one scale each."""
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True)
    quantizer.process()
    return quantizer.model.model
