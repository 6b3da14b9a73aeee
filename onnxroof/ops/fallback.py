"""Operators without a rule of ours: what the standard itself says about them.

An operator that the standard defines by a function body is expanded: its cost is that of the
body, once per signature. Otherwise `onnx.shape_inference` may size the one node; its answer is
taken only where it is fully known and has no negative dimension. Everything else is
`Undetermined` with the reason. The only user of schemas besides the tests.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from onnxroof.graph.declared import encoded_type
from onnxroof.graph.load import load_model
from onnxroof.ops.call import TensorInfo, Undetermined
from onnxroof.ops.registry import Operator

if TYPE_CHECKING:
    import onnx

    from onnxroof.graph.types import Graph
    from onnxroof.ops.call import OpCall

_BODY_DOMAIN = "function.body"


@cache
def expandable(domain: str, op_type: str, opset: int) -> Operator | None:
    """An operator that its schema defines by a function body, else None."""
    schema = _schema(domain, op_type, opset)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return None
    return Operator(
        domain, op_type, source="function body", free="its cost is that of its function body",
        positions=tuple(range(len(schema.inputs))),  # its body may look at any value
    )  # fmt: skip


def function_body(call: OpCall) -> Graph:
    """The body of the operator's schema for this call, as a graph with the node's inputs.

    Raises:
        Undetermined: The schema has no body for these inputs.
    """
    import onnx

    schema = _schema(call.node.domain, call.op_type, call.opset)
    node = _single_node(call)
    body = None if schema is None else _function_proto(schema, node, call)
    if body is None:
        raise Undetermined(f"the schema of {call.op_type} has no function body for these inputs")
    body.domain, body.name = _BODY_DOMAIN, call.op_type
    node.domain = _BODY_DOMAIN
    graph = onnx.helper.make_graph(
        [node],
        call.op_type,
        [onnx.ValueInfoProto(name=name) for name in node.input if name],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    imports = [onnx.helper.make_opsetid(_BODY_DOMAIN, 1), *body.opset_import]
    proto = onnx.helper.make_model(graph, functions=[body], opset_imports=imports)
    return load_model(proto).graph


def _function_proto(
    schema: onnx.defs.OpSchema, node: onnx.NodeProto, call: OpCall
) -> onnx.FunctionProto | None:
    import onnx

    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= call.opset]
        data = schema.get_function_with_opset_version(max(versions)) if versions else None
    else:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= call.opset]
        types = [
            b"" if info is None or info.shape is None else _type_proto(info).SerializeToString()
            for info in call.inputs
        ]
        data = versions and schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), types
        )
    if not data:
        return None
    proto: onnx.FunctionProto = (
        onnx.FunctionProto.FromString(data) if isinstance(data, bytes) else data
    )
    return proto


def _schema(domain: str, op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    import onnx

    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def infer_by_schema(call: OpCall) -> list[TensorInfo]:
    """Outputs by the schema's own inference. Raises Undetermined when it cannot tell."""
    import onnx

    node = call.node
    name = f"{node.domain or 'ai.onnx'}.{node.op_type}"
    schema = _schema(node.domain, node.op_type, node.opset)
    if schema is None:
        raise Undetermined(f"no rule is known for operator {name}")
    if node.subgraphs or any(info is None or info.shape is None for info in call.inputs):
        raise Undetermined(f"no rule is known for operator {name}, and an input is not sized")
    proto = _single_node(call)
    types = {
        formal: _type_proto(info)
        for formal, info in zip(proto.input, call.inputs, strict=True)
        if info is not None
    }
    failures = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError)
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, proto, types)
    except (*failures, RuntimeError, ValueError) as error:
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
    node = onnx.helper.make_node(
        call.op_type,
        ["" if info is None else f"i{position}" for position, info in enumerate(call.inputs)],
        [f"o{position}" for position in range(call.output_count)],
        domain=call.node.domain,
    )
    node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in plain.items())
    return node


def _type_proto(info: TensorInfo) -> onnx.TypeProto:
    import onnx

    code = info.dtype.code if info.dtype is not None else 0
    return onnx.helper.make_tensor_type_proto(code, [int(dim) for dim in info.dims])


def _info(proto: onnx.TypeProto | None, output: str, operator: str) -> TensorInfo:
    if proto is None:
        raise Undetermined(f"no rule is known for operator {operator}")
    declared = encoded_type(proto.SerializeToString(), output)
    dims = tuple(dim for dim in declared.shape or () if isinstance(dim, int))
    if declared.shape is None or len(dims) < len(declared.shape):
        return TensorInfo(declared.dtype, None)
    return TensorInfo(declared.dtype, dims)
