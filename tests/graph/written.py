"""Messages written byte by byte, by the rules of the protobuf encoding and not by our own reader.

https://protobuf.dev/programming-guides/encoding/: a field is a tag (number · 8 + wire type) and
its content; numbers go seven bits at a time, the lowest first, with the top bit set on all but the
last byte; negative ones as the 64 bits of their two's complement, which are ten bytes.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxroof.graph.load import load_model

if TYPE_CHECKING:
    from onnxroof.graph.types import Graph

LARGE = 300
"""float32 elements: 1200 bytes, more than stays in the graph."""

SMALL = 8

IMPORTS = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]


def varint(number: int) -> bytes:
    written = bytearray()
    number %= 1 << 64
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def field_head(number: int, length: int) -> bytes:
    """Tag and length of a field with a length."""
    return varint(number << 3 | 2) + varint(length)


def field(number: int, content: bytes | str) -> bytes:
    """A text, message or packed field."""
    content = content.encode() if isinstance(content, str) else content
    return field_head(number, len(content)) + content


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def float32(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def float64(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def shuffled(fields: list[bytes], seed: int) -> bytes:
    return b"".join(random.Random(seed).sample(fields, len(fields)))


# -- models ----------------------------------------------------------------------------------


def floats(name: str, count: int) -> TensorProto:
    return numpy_helper.from_array(np.arange(count, dtype=np.float32), name)


def graph_of(nodes: list[onnx.NodeProto] | None = None, **more: object) -> onnx.GraphProto:
    nodes = nodes or [helper.make_node("Relu", ["x"], ["y"])]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [LARGE])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [LARGE])
    return helper.make_graph(nodes, "g", [value], [result], **more)


def model_of(graph: onnx.GraphProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> bytes:
    model = helper.make_model(graph, opset_imports=IMPORTS, functions=functions)
    return model.SerializeToString()


def around(graph: bytes) -> bytes:
    """A model whose GraphProto (field 7) is given as bytes."""
    return onnx.ModelProto(ir_version=10, opset_import=IMPORTS).SerializeToString() + field(
        7, graph
    )


def with_tensors(*tensors: bytes) -> bytes:
    """A model with initializers (field 5 of a GraphProto) given as bytes."""
    return around(graph_of().SerializeToString() + b"".join(field(5, t) for t in tensors))


def with_nodes(*nodes: bytes) -> bytes:
    """A model of nodes (field 1 of a GraphProto) given as bytes; "x" is its input."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [LARGE])
    return around(b"".join(field(1, n) for n in nodes) + field(11, value.SerializeToString()))


def loaded(data: bytes) -> Graph:
    return load_model(data).graph
