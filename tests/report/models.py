"""Small models whose figures are known by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.numpy_helper

import onnxroof
from onnxroof.hardware.profile import EngineProfile, HardwareProfile, MemoryLevel, Peak, Source
from tests.builders import model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.analysis import Analysis

CHAIN = """agraph (float[batch, 4] x) => (float[batch, 3] y)
    { [up] a = MatMul (x, w)  [act] b = Relu (a)  [down] y = MatMul (b, v) }"""
"""Two products and an activation: at batch 1, 4·8 + 8·3 = 56 MACs, 2·56 + 8 = 120 FLOPs."""

UNKNOWN = """agraph (float[2, 4] x) => (float[2, 8] y)
    { a = MatMul (x, w)  y = acme.Mystery (a) }"""

WEIGHTS = {"w": (4, 8), "v": (8, 3)}


def proto(text: str, weights: Mapping[str, tuple[int, ...]] = WEIGHTS) -> onnx.ModelProto:
    """A model from the text of a graph, with the weights that it reads."""
    made = model(text, opsets={"acme": 1})
    for name, shape in weights.items():
        if any(name in node.input for node in made.graph.node):
            zeros = np.zeros(shape, np.float32)
            made.graph.initializer.append(onnx.numpy_helper.from_array(zeros, name))
    return made


def device(name: str = "toy", runtime: str = "none") -> HardwareProfile:
    """1 GFLOP/s, 1 GB/s, no overhead: seconds are nano-counts."""
    return HardwareProfile(
        name=name,
        title="A toy",
        vendor="nobody",
        kind="cpu",
        vector_engine=EngineProfile("vector units", (Peak("fp32", 1e9),)),
        memory=(MemoryLevel("dram", vendor_bytes_per_second=1e9),),
        kernel_overhead_seconds=0.0,
        runtime=runtime,
        sources=(Source("sheet", "A sheet", "datasheet", ("vector_engine",)),),
    )


def analysis(
    source: str | onnx.ModelProto = CHAIN, *hardware: HardwareProfile, **options: object
) -> Analysis:
    """What onnxroof finds in a model or the text of a graph, on the given devices."""
    made = proto(source) if isinstance(source, str) else source
    return onnxroof.analyze(made, hardware, keep_going=True, **options)  # type: ignore[arg-type]


def contradiction() -> onnx.ModelProto:
    """[2, 4] times [5, 8]: a node that cannot be."""
    text = "agraph (float[2, 4] x) => (float[2, 8] y) { [bad] y = MatMul (x, w) }"
    return proto(text, {"w": (5, 8)})


def renamed(name: str) -> onnx.ModelProto:
    """The chain with a name of somebody's choice for its first node."""
    made = proto(CHAIN)
    made.graph.node[0].name = name
    return made
