"""Operators without a rule of ours: sized by the standard's own inference, when it has a schema.

The answer of `onnx.shape_inference` for the one node is taken only where it is fully known and
has no negative dimension; everything else is `Undetermined` with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.graph.convert import value_type
from onnxroof.ops.call import TensorInfo, Undetermined

if TYPE_CHECKING:
    import onnx

    from onnxroof.ops.call import OpCall


def infer_by_schema(call: OpCall) -> list[TensorInfo]:
    """Outputs by the schema's own inference. Raises Undetermined when it cannot tell."""
    import onnx

    node = call.node
    name = f"{node.domain or 'ai.onnx'}.{node.op_type}"
    try:
        schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    except onnx.defs.SchemaError:
        raise Undetermined(f"no rule is known for operator {name}") from None
    if node.subgraphs or any(info is None or info.shape is None for info in call.inputs):
        raise Undetermined(f"no rule is known for operator {name}, and an input is not sized")
    proto = _single_node(call)
    types = {
        formal: _type_proto(info)
        for formal, info in zip(proto.input, call.inputs, strict=True)
        if info is not None
    }
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, proto, types)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise Undetermined(f"the standard's inference for {name} failed: {error!s:.200}") from None
    return [_info(inferred.get(output), output, name) for output in proto.output]


def _single_node(call: OpCall) -> onnx.NodeProto:
    import onnx

    plain = {
        name: value
        for name, value in call.attributes.items()
        if isinstance(value, int | float | str)
        or (isinstance(value, tuple) and all(isinstance(v, int | float | str) for v in value))
    }
    return onnx.helper.make_node(
        call.op_type,
        [f"i{position}" for position in range(len(call.inputs))],
        [f"o{position}" for position in range(call.output_count)],
        domain=call.node.domain,
        **plain,
    )


def _type_proto(info: TensorInfo) -> onnx.TypeProto:
    import onnx

    code = info.dtype.code if info.dtype is not None else 0
    return onnx.helper.make_tensor_type_proto(code, [int(dim) for dim in info.dims])


def _info(proto: onnx.TypeProto | None, output: str, operator: str) -> TensorInfo:
    if proto is None:
        raise Undetermined(f"no rule is known for operator {operator}")
    declared = value_type(proto, output)
    dims = tuple(dim for dim in declared.shape or () if isinstance(dim, int))
    if declared.shape is None or len(dims) < len(declared.shape):
        return TensorInfo(declared.dtype, None)
    return TensorInfo(declared.dtype, dims)
