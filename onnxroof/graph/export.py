"""A graph of ours → an ONNX ModelProto, for runtimes and other tools."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from onnxroof.errors import UsageError, quoted
from onnxroof.graph.types import Constant
from onnxroof.graph.values import NUMPY_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.graph.types import DeclaredShape, DType, Model, Node
    from onnxroof.ops.call import TensorInfo

ABSENT_FILE = "weights.bin"
"""The external file that weights without values refer to; it need not exist."""


def export_model(
    model: Model, outputs: Sequence[TensorInfo], *, random: bool, seed: int
) -> onnx.ModelProto:
    """The model with its constants' values and, when asked for, random weights.

    Args:
        model: A model without subgraphs.
        outputs: Type and shape of each graph output.
        random: Store normal numbers of the usual scale, √(2 / fan-in); else weights lie in a
            file that does not exist.
        seed: Of the random numbers.

    Raises:
        UsageError: Random weights of a type that holds no such numbers.
    """
    graph = model.graph
    numbers = np.random.default_rng(seed)
    initializers: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    for constant in graph.constants.values():
        if constant.may_have_value:
            tensor = _tensor(constant)
            if constant.origin == "Constant":
                nodes.append(helper.make_node("Constant", [], [constant.name], value=tensor))
            else:
                initializers.append(tensor)
        else:
            initializers.append(_random(constant, numbers) if random else _absent(constant))
    proto = helper.make_graph(
        [*nodes, *map(_node, graph.nodes)],
        graph.name,
        [_value(item.name, item.type.dtype, item.type.shape) for item in graph.inputs],
        [
            _value(name, info.dtype, info.shape)
            for name, info in zip(graph.outputs, outputs, strict=True)
        ],
        initializers,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in model.opsets.items()]
    return helper.make_model(
        proto, opset_imports=imports, ir_version=model.ir_version, producer_name=model.producer
    )


def _value(name: str, dtype: DType | None, shape: DeclaredShape | None) -> onnx.ValueInfoProto:
    sizes = None if shape is None else [dim if isinstance(dim, int) else str(dim) for dim in shape]
    return helper.make_tensor_value_info(name, 0 if dtype is None else dtype.code, sizes)


def _node(node: Node) -> onnx.NodeProto:
    made = helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain)
    for name, value in node.attributes:
        stored = _tensor(value) if isinstance(value, Constant) else value
        made.attribute.append(helper.make_attribute(name, stored))
    return made


def _tensor(constant: Constant) -> onnx.TensorProto:
    value = constant.value
    if value is None:
        raise UsageError(f"the values of {quoted(constant.name)} are not known")
    return onnx.numpy_helper.from_array(value, constant.name)


def _absent(constant: Constant) -> onnx.TensorProto:
    tensor = onnx.TensorProto(
        name=constant.name, data_type=constant.dtype.code, dims=constant.shape
    )
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=ABSENT_FILE)
    return tensor


def _random(constant: Constant, numbers: np.random.Generator) -> onnx.TensorProto:
    kind = NUMPY_TYPE.get(constant.dtype)
    if kind is None or not constant.dtype.is_float:
        raise UsageError(
            f"weight {quoted(constant.name)} of type {constant.dtype.label} cannot be filled with"
            " random numbers"
        )
    fan_in = max(math.prod(constant.shape[1:]), 1)
    values = numbers.standard_normal(constant.shape) * math.sqrt(2 / fan_in)
    if len(constant.shape) == 1:
        values = np.abs(values) / 2 + 0.5  # scales and variances are positive
    return onnx.numpy_helper.from_array(values.astype(kind), constant.name)
