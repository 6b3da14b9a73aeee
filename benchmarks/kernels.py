"""Graphs of a single kernel, from a row of the V100 table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from networks import Network
from onnx import ModelProto, TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ONE_INPUT = {"gelu": "Gelu", "tanh": "Tanh", "relu": "Relu", "softmax": "Softmax"}
_TWO_INPUTS = {"add": "Add", "mul": "Mul", "div": "Div", "pow": "Pow"}


def one_kernel(row: Mapping[str, str]) -> ModelProto:
    """The graph of one row."""
    net, op = Network(row["op"]), row["op"]
    if op == "conv":
        batch, channels, filters = (int(row[key]) for key in ("batch", "channels", "filters"))
        shape: list[int] = [batch, channels, *[int(row["pixels"])] * 2]
        return _model(net, [shape], net.conv("x0", channels, filters, int(row["window"])))
    if op in ("bmm", "linear"):
        batch, m, n, k = (int(row[key]) for key in ("batch", "rows", "columns", "sum"))
        if op == "linear":
            result = net.add("Gemm", "x0", net.weight(k, n), net.weight(n))
            return _model(net, [[m, k]], result)
        return _model(net, [[batch, m, k], [batch, k, n]], net.add("MatMul", "x0", "x1"))
    shape = [int(row["rows"]), int(row["columns"])]
    if op == "ln":
        gain, bias = net.weight(shape[1]), net.weight(shape[1])
        return _model(net, [shape], net.add("LayerNormalization", "x0", gain, bias, axis=-1))
    if op in _TWO_INPUTS:
        exponent = net.values([2.0], TensorProto.FLOAT) if op == "pow" else "x1"
        inputs = [shape] if op == "pow" else [shape, shape]
        return _model(net, inputs, net.add(_TWO_INPUTS[op], "x0", exponent))
    return _model(net, [shape], net.add(_ONE_INPUT[op], "x0"))


def _model(net: Network, inputs: Sequence[Sequence[int]], result: str) -> ModelProto:
    graph = helper.make_graph(
        net.nodes, net.name,
        [
            helper.make_tensor_value_info(f"x{place}", TensorProto.FLOAT, shape)
            for place, shape in enumerate(inputs)
        ],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        net.weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
