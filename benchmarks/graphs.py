"""Models the benchmarks make themselves, so that any size can be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path


def transformer(layers: int, *, width: int = 96, sequence: int = 32) -> onnx.ModelProto:
    """A transformer as exporters write it, 39 nodes a layer, each with its own weights."""
    heads_count = 12
    random = np.random.default_rng(0)

    nodes: list[onnx.NodeProto] = []
    weights: dict[str, onnx.TensorProto] = {}

    def weight(name: str, *shape: int) -> str:
        if name not in weights:
            values = random.standard_normal(shape, np.float32)
            weights[name] = numpy_helper.from_array(values, name)
        return name

    def constant(name: str, values: list[int]) -> str:
        weights[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name

    def scalar(name: str, value: float) -> str:
        weights[name] = numpy_helper.from_array(np.array(value, np.float32), name)
        return name

    def add(op_type: str, *inputs: str, **attributes: object) -> str:
        output = f"t{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [output], f"/n{len(nodes)}", **attributes))
        return output

    def norm(x: str, prefix: str) -> str:
        gain, bias = (
            weight(f"{prefix}{len(nodes)}g", width),
            weight(f"{prefix}{len(nodes)}b", width),
        )
        return add("LayerNormalization", x, gain, bias, axis=-1)

    def linear(x: str, prefix: str, rows: int, columns: int) -> str:
        product = add("MatMul", x, weight(f"{prefix}{len(nodes)}w", rows, columns))
        return add("Add", product, weight(f"{prefix}{len(nodes)}c", columns))

    def heads(x: str) -> str:
        batch = add("Gather", add("Shape", x), constant("zero", [0]), axis=0)
        split = constant("split", [sequence, heads_count, width // heads_count])
        shape = add("Concat", batch, split, axis=0)
        return add("Transpose", add("Reshape", x, shape), perm=[0, 2, 1, 3])

    x = "x"
    for _ in range(layers):
        normed = norm(x, "a")
        q, k, v = (heads(linear(normed, part, width, width)) for part in "qkv")
        scores = add("MatMul", q, add("Transpose", k, perm=[0, 1, 3, 2]))
        weights_of = add("Softmax", add("Div", scores, scalar("root", 4.0)), axis=-1)
        mixed = add("Transpose", add("MatMul", weights_of, v), perm=[0, 2, 1, 3])
        merged = add("Reshape", mixed, constant("merge", [0, 0, width]))
        x = add("Add", x, linear(merged, "o", width, width))
        hidden = linear(norm(x, "m"), "up", width, 4 * width)
        gelu = add("Gelu", hidden)
        x = add("Add", x, linear(gelu, "down", 4 * width, width))
    return _model(nodes, list(weights.values()), "x", [1, sequence, width], x)


def chain(nodes: int) -> onnx.ModelProto:
    """Alternating Relu and Neg."""
    made = [
        helper.make_node(("Relu", "Neg")[i % 2], [f"t{i}"], [f"t{i + 1}"], f"n{i}")
        for i in range(nodes)
    ]
    return _model(made, [], "t0", [1, 8], f"t{nodes}")


def fan_out(width: int, repeats: int) -> onnx.ModelProto:
    """`repeats` stages of one tensor read by `width` nodes whose results are summed."""
    made: list[onnx.NodeProto] = []
    source = "x"
    for stage in range(repeats):
        branches = [f"s{stage}b{i}" for i in range(width)]
        made += [helper.make_node("Relu", [source], [name], name) for name in branches]
        source = f"s{stage}"
        made.append(helper.make_node("Sum", branches, [source], source))
    return _model(made, [], "x", [1, 8], source)


def matmul_stack(path: Path, megabytes: int, *, embed: bool) -> None:
    """A stack of 1024×1024 matrix products with (or without) that many megabytes of weights."""
    count = megabytes // 4
    nodes, weights = [], []
    data = np.random.default_rng(0).random((1024, 1024), np.float32).tobytes()
    for i in range(count):
        nodes.append(helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"n{i}"))
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[1024, 1024])
        if embed:
            tensor.raw_data = data
        else:
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
        weights.append(tensor)
    proto = _model(nodes, weights, "t0", [1, 1024], f"t{count}")
    path.write_bytes(proto.SerializeToString())


def _model(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    source: str,
    shape: list[int],
    result: str,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "benchmark",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
