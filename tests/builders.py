"""Small graphs in ONNX text, and what onnxroof says about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx.parser
from onnx import numpy_helper

from onnxroof.bindings import Bindings
from onnxroof.cost import GraphCost, NodeCost, count_costs
from onnxroof.graph.load import load_model
from onnxroof.shapes import ShapedGraph, ShapeFindings, infer_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping


def model(
    body: str, *, opset: int = 21, opsets: Mapping[str, int] | None = None, ir: int = 10
) -> onnx.ModelProto:
    """A model from the text of its graph: `agraph (float[2,3] x) => (float y) { y = Relu(x) }`."""
    imports = {"": opset, **(opsets or {})}
    listed = ", ".join(f'"{domain}" : {version}' for domain, version in imports.items())
    return onnx.parser.parse_model(f"<ir_version: {ir}, opset_import: [{listed}]>\n{body}")


def zeros(name: str, *shape: int, dtype: type = np.float32) -> onnx.TensorProto:
    """A stored tensor of this shape."""
    return numpy_helper.from_array(np.zeros(shape, dtype), name)


def with_tensors(text: str, *tensors: onnx.TensorProto) -> onnx.ModelProto:
    """A model from the text of its graph and stored tensors; contrib operators may be in it."""
    proto = model(text, opsets={"com.microsoft": 1})
    proto.graph.initializer.extend(tensors)
    return proto


def shaped(
    source: onnx.ModelProto | str,
    *,
    opset: int = 21,
    opsets: Mapping[str, int] | None = None,
    **dims: int,
) -> tuple[ShapedGraph, ShapeFindings]:
    """The sized graph and findings of a model or of the text of a graph."""
    proto = model(source, opset=opset, opsets=opsets) if isinstance(source, str) else source
    return infer_shapes(load_model(proto).graph, Bindings.of(dims))


def shapes_of(
    source: onnx.ModelProto | str,
    *,
    opset: int = 21,
    opsets: Mapping[str, int] | None = None,
    **dims: int,
) -> dict[str, tuple[int, ...] | None]:
    """Shape of every tensor by name."""
    graph, _ = shaped(source, opset=opset, opsets=opsets, **dims)
    return {name: info.shape for name, info in graph.tensors.items()}


def problem_of(
    source: onnx.ModelProto | str,
    *,
    opset: int = 21,
    opsets: Mapping[str, int] | None = None,
    **dims: int,
) -> str:
    """The first problem found (a node that contradicts its operator's text)."""
    _, findings = shaped(source, opset=opset, opsets=opsets, **dims)
    return str(findings.problems[0])


def costs(
    source: onnx.ModelProto | str,
    *,
    opset: int = 21,
    opsets: Mapping[str, int] | None = None,
    **dims: int,
) -> GraphCost:
    """Costs of every node."""
    graph, _ = shaped(source, opset=opset, opsets=opsets, **dims)
    return count_costs(graph)


def cost_of(
    source: onnx.ModelProto | str,
    node: int = -1,
    *,
    opset: int = 21,
    opsets: Mapping[str, int] | None = None,
    **dims: int,
) -> NodeCost:
    """Cost of one node, the last by default."""
    return costs(source, opset=opset, opsets=opsets, **dims).nodes[node]
