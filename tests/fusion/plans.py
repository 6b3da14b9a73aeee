"""Kernel plans of graphs in ONNX text and of the shipped models."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxroof.bindings import Bindings
from onnxroof.cost import GraphCost, count_costs
from onnxroof.fusion.plan import KernelPlan, plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.shapes import infer_shapes
from tests.builders import costs, model

MODELS = Path(__file__).parents[2] / "models"
NAMES = tuple(sorted(path.stem for path in MODELS.glob("*.onnx")))
SIZES = {"batch": 1, "sequence": 16, "past_sequence": 8, "past_sequence + 1": 9}


def weighted(text: str, *, opset: int = 17) -> onnx.ModelProto:
    """The model of a graph in text; names declared in <…> without a value become weights."""
    proto = model(text, opset=opset)
    graph = proto.graph
    made = {name for node in graph.node for name in node.output}
    made.update(tensor.name for tensor in graph.initializer)
    generator = np.random.default_rng(0)
    for declared in graph.value_info:
        if declared.name not in made:
            dims = [dim.dim_value for dim in declared.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.type.tensor_type.elem_type)
            values = (1 + generator.random(dims)).astype(dtype)
            graph.initializer.append(numpy_helper.from_array(values, declared.name))
    return proto


def costed(text: str, *, opset: int = 17) -> GraphCost:
    """Costs of a graph in text, weights made."""
    return costs(weighted(text, opset=opset))


def plan(text: str, runtime: str = "onnxruntime", *, opset: int = 17) -> KernelPlan:
    """The plan of a graph in text."""
    return plan_kernels(costed(text, opset=opset), runtime)


def kinds(text: str, runtime: str = "onnxruntime", *, opset: int = 17) -> list[str]:
    """What the kernels of a graph consist of, in order."""
    return [kernel.op_type for kernel in plan(text, runtime, opset=opset).kernels]


def reasons(text: str, runtime: str = "onnxruntime", *, opset: int = 17) -> list[str]:
    """Why candidates are not fused."""
    return [miss.reason for miss in plan(text, runtime, opset=opset).misses]


@cache
def model_cost(name: str) -> GraphCost:
    """Costs of a shipped model, free dimensions bound to small sizes."""
    loaded = load_model(MODELS / f"{name}.onnx")
    free = {
        dim.name
        for item in loaded.graph.inputs
        for dim in item.type.shape or ()
        if not isinstance(dim, int)
    }
    sizes = {dim: SIZES.get(dim, 12) for dim in free}
    shaped, _ = infer_shapes(loaded.graph, Bindings.of(sizes))
    return count_costs(shaped)
