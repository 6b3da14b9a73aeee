"""Take the weight bytes out of an ONNX model and, for trial runs, put random ones back.

What stays is everything an analysis reads: names, data types and dimensions of all tensors, and
the values of small ones, because shape arithmetic needs them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Iterator

WEIGHTS_FILE = "weights.bin"
WEIGHT_LIMIT_BYTES = 1024
INDEX_LIMIT_BYTES = 32 * 1024
INDEX_TYPES = (TensorProto.INT64, TensorProto.INT32)
PACKED_BITS = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
}
PAYLOAD_FIELDS = (
    "raw_data",
    "float_data",
    "double_data",
    "int32_data",
    "int64_data",
    "uint64_data",
)


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for subgraph in inner:
                yield from graphs_of(subgraph)


def tensors_of(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor that may hold weights: initializers and tensor attributes at any depth."""
    nodes = [node for function in model.functions for node in function.node]
    for graph in graphs_of(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        nodes.extend(graph.node)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def stored_bytes(tensor: TensorProto) -> int:
    """Bytes of the tensor's values as ONNX stores them, 4-bit types packed two to a byte."""
    bits = PACKED_BITS.get(tensor.data_type)
    if bits is None:
        bits = 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return -(-math.prod(tensor.dims) * bits // 8)


def remove_weights(model: onnx.ModelProto) -> int:
    """Point every large tensor to a file that is never written, in place.

    int64 and int32 tensors up to 32 KiB stay (shapes, axes, indices), others up to 1 KiB.

    Returns:
        The bytes that the file would hold.
    """
    offset = 0
    for tensor in tensors_of(model):
        if tensor.data_type == TensorProto.STRING:
            continue
        length = stored_bytes(tensor)
        limit = INDEX_LIMIT_BYTES if tensor.data_type in INDEX_TYPES else WEIGHT_LIMIT_BYTES - 1
        if length <= limit:
            continue
        for field in PAYLOAD_FIELDS:
            tensor.ClearField(field)
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS_FILE), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length
    return offset


def remove_traces(model: onnx.ModelProto) -> None:
    """Drop doc strings and stack traces, which name files of the exporting machine, in place.

    Name scopes stay: they say which module a node belongs to.
    """
    holders = [model, *model.functions]
    nodes = [node for function in model.functions for node in function.node]
    for graph in graphs_of(model.graph):
        holders += [graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer]
        nodes.extend(graph.node)
    for holder in [*holders, *nodes]:
        holder.ClearField("doc_string")
        kept = [entry for entry in holder.metadata_props if "stack_trace" not in entry.key]
        if len(kept) < len(holder.metadata_props):
            pairs = [(entry.key, entry.value) for entry in kept]
            del holder.metadata_props[:]
            for key, value in pairs:
                holder.metadata_props.add(key=key, value=value)
    for node in nodes:
        for attribute in node.attribute:
            attribute.ClearField("doc_string")


def fill_missing_weights(model: onnx.ModelProto, seed: int = 0) -> None:
    """Give every external tensor small random values of its own type and shape, in place."""
    random = np.random.default_rng(seed)
    for tensor in tensors_of(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        count = math.prod(tensor.dims)
        if tensor.data_type in PACKED_BITS:
            payload = random.bytes(stored_bytes(tensor))
        elif dtype.kind in "iub":
            payload = random.integers(0, 2 if dtype.kind == "b" else 100, count).astype(dtype)
        else:
            payload = (random.standard_normal(count, dtype=np.float32) * 0.02).astype(dtype)
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.DEFAULT
        tensor.raw_data = payload if isinstance(payload, bytes) else payload.tobytes()
