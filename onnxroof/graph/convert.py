"""First stage, second half: ModelProto → `Graph`, with functions expanded and nodes in order.

The only reader of protobuf messages besides `load` (files) and `ops.fallback` (schemas). Model-
local functions are expanded in place: their inner names get the caller's name in front, and the
call stays visible as the scope of the nodes it became. Constant nodes become constants, as
initializers are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted
from onnxroof.graph.declared import DeclaredTypes, value_type
from onnxroof.graph.order import in_order
from onnxroof.graph.tensors import TensorReader
from onnxroof.graph.text import check_names
from onnxroof.graph.types import (
    AttributeValue,
    Constant,
    DType,
    Graph,
    GraphInput,
    Node,
    SymbolicDim,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import onnx

    from onnxroof.graph.types import Payload

Attributes = tuple[tuple[str, AttributeValue], ...]
Subgraphs = tuple[tuple[str, Graph], ...]

MOST_NODES = 1_000_000
MOST_CALLS = 100_000
"""Functions that call functions can expand without end; beyond this the file is refused."""

_DEEPEST_CALL = 64
_DEEPEST_BODY = 64
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = range(1, 9)
_TENSORS, _GRAPHS, _SPARSE, _SPARSES, _TYPE, _TYPES = range(9, 15)
_NOTHING: tuple[Attributes, Subgraphs] = ((), ())
_UNWANTED = ("",)
"""The outputs of a node that lists none: one that nobody wants."""

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
"""Key under which an exporter names the modules a node stands in."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the conversion stands: names and attributes of the function call around a node."""

    opsets: Mapping[str, int]
    rename: dict[str, str] | None = None
    prefix: str = ""
    scope: str = ""
    attributes: Mapping[str, onnx.AttributeProto] | None = None
    depth: int = 0

    def name(self, inner: str) -> str:
        """The name in the expanded graph of a name in the function's body."""
        if self.rename is None or not inner:
            return inner
        known = self.rename.get(inner)
        if known is None:
            known = self.rename[inner] = f"{self.prefix}/{inner}"
        return known


class Converter:
    """Translates one ModelProto; collects assumptions and external files on the way.

    Args:
        proto: The model, without large payloads.
        payloads: What was left out of it.
        records_scopes: Whether some node's metadata may name its module; False spares looking.
    """

    def __init__(
        self, proto: onnx.ModelProto, payloads: tuple[Payload, ...], *, records_scopes: bool = True
    ) -> None:
        self.assumptions: list[str] = []
        self.opsets = {_domain(entry.domain): entry.version for entry in proto.opset_import}
        self._proto = proto
        self._tensors = TensorReader(payloads)
        self._functions = {
            (_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in proto.functions
        }
        self._function_constants: dict[int, tuple[object, Constant]] = {}
        self._call_names: dict[str, int] = {}
        self._calls = 0
        self._expanded = 0
        self._depth = 0
        self._records_scopes = records_scopes

    @property
    def external_files(self) -> tuple[str, ...]:
        """Names of the external data files, in order of first use."""
        return self._tensors.external_files

    def main_graph(self) -> Graph:
        """The model's graph."""
        _check_versions(self.opsets)
        graph = self._graph(self._proto.graph, _Frame(self.opsets), outermost=True)
        check_names((), (*self.opsets, *_dim_names(graph.inputs)))
        if graph.captures:
            name = graph.captures[0]
            reader = next((node for node in graph.nodes if name in node.reads), None)
            where = f"node {quoted(reader.label)} ({reader.op_type})" if reader else "the graph"
            raise InvalidGraphError(
                where, f"needs tensor {quoted(name)}, which no node, input or initializer provides"
            )
        return graph

    # -- graphs ----------------------------------------------------------------------------

    def _graph(self, proto: onnx.GraphProto, frame: _Frame, *, outermost: bool = False) -> Graph:
        self._depth += 1
        if self._depth > _DEEPEST_BODY:
            raise InvalidGraphError(
                f"subgraph {quoted(proto.name)}", f"subgraphs nest deeper than {_DEEPEST_BODY}"
            )
        constants = self._initializers(proto, frame)
        inputs = tuple(
            GraphInput(frame.name(value.name), value_type(value.type, value.name))
            for value in proto.input
            if frame.name(value.name) not in constants
        )
        if outermost and len(inputs) < len(proto.input) and self._proto.ir_version < 4:
            self.assumptions.append(
                "initializers that this old file also lists as inputs are weights, not inputs"
            )
        nodes: list[Node] = []
        for node in proto.node:
            self._emit(node, frame, nodes, constants)
        outputs = tuple(frame.name(value.name) for value in proto.output)
        defined = {*constants, *(graph_input.name for graph_input in inputs)}
        ordered, captures, was_sorted = in_order(nodes, defined, outputs)
        if not was_sorted:
            where = "the graph" if outermost else f"subgraph {quoted(proto.name)}"
            self.assumptions.append(
                f"nodes of {where} were not topologically sorted; a stable sort put them in order"
            )
        for index, node in enumerate(ordered):
            node.index = index
        self._depth -= 1
        return Graph(
            name=proto.name,
            nodes=tuple(ordered),
            inputs=inputs,
            outputs=outputs,
            constants=constants,
            declared=DeclaredTypes(proto, frame.name),
            captures=captures,
        )

    def _initializers(self, proto: onnx.GraphProto, frame: _Frame) -> dict[str, Constant]:
        constants: dict[str, Constant] = {}
        for tensor in proto.initializer:
            known = self._function_constants.get(id(tensor)) if frame.depth else None
            name = frame.name(tensor.name)
            if known is not None:
                constants[name] = known[1].under(name)
                continue
            constants[name] = self._tensors.dense(tensor, name, "initializer")
            if frame.depth:
                self._function_constants[id(tensor)] = (tensor, constants[name])
        for sparse in proto.sparse_initializer:
            name = frame.name(sparse.values.name)
            constants[name] = self._tensors.sparse(sparse, name, "initializer")
        if len(constants) < len(proto.initializer) + len(proto.sparse_initializer):
            names = [t.name for t in proto.initializer]
            names += [t.values.name for t in proto.sparse_initializer]
            _refuse_repeated(names)
        return constants

    # -- nodes -----------------------------------------------------------------------------

    def _emit(
        self,
        proto: onnx.NodeProto,
        frame: _Frame,
        nodes: list[Node],
        constants: dict[str, Constant],
    ) -> None:
        """Append one node: itself, or the body of the function it calls."""
        domain, op_type = proto.domain, proto.op_type
        if domain == "ai.onnx":
            domain = ""
        if op_type == "Constant" and not domain:
            constant = self._constant_node(proto, frame)
            if constant.name in constants:
                _refuse_repeated([constant.name, constant.name])
            constants[constant.name] = constant
            return
        if self._functions:
            function = self._functions.get((domain, op_type, getattr(proto, "overload", "")))
            if function is not None:
                self._inline(proto, function, frame, nodes, constants)
                return
        opset = frame.opsets.get(domain)
        if opset is None:
            raise _no_opset(proto.name or op_type, op_type, domain)
        name = proto.name
        scope = _recorded_scope(proto) if self._records_scopes else None
        attributes, subgraphs = _NOTHING
        written = proto.attribute[:]
        if written:
            attributes, subgraphs = self._attributes(written, frame)
        inputs, outputs = tuple(proto.input[:]), tuple(proto.output[:]) or _UNWANTED
        if frame.rename is not None:
            inputs, outputs = tuple(map(frame.name, inputs)), tuple(map(frame.name, outputs))
            inner = name.rpartition("/")[0].lstrip("/") if scope is None else scope
            scope = f"{frame.scope}/{inner}".rstrip("/")
            name = f"{frame.prefix}/{name or op_type}"
        nodes.append(
            Node(
                name, domain, op_type, opset, inputs, outputs, attributes, subgraphs, scope,
            )
        )  # fmt: skip

    def _inline(
        self,
        call: onnx.NodeProto,
        function: onnx.FunctionProto,
        frame: _Frame,
        nodes: list[Node],
        constants: dict[str, Constant],
    ) -> None:
        """Expand a call of a model-local function."""
        if frame.depth >= _DEEPEST_CALL:
            raise InvalidGraphError(
                f"function {quoted(function.name)}",
                f"calls nest deeper than {_DEEPEST_CALL} (does it call itself?)",
            )
        label = frame.prefix + "/" * bool(frame.prefix) + (call.name or call.op_type)
        seen = self._call_names[label] = self._call_names.get(label, 0) + 1
        if seen > 1 or not call.name:
            label = f"{label}#{seen}"
        rename = dict.fromkeys(function.input, "")
        rename |= {formal: frame.name(a) for formal, a in zip(function.input, call.input)}  # noqa: B905
        for formal, actual in zip(function.output, call.output, strict=False):
            if actual:
                rename[formal] = frame.name(actual)
        given = {a.name: _resolve(a, frame) for a in function.attribute_proto}
        given |= {a.name: _resolve(a, frame) for a in call.attribute}
        imported = {_domain(entry.domain): entry.version for entry in function.opset_import}
        _check_versions(imported)
        inner = _Frame(
            opsets={**frame.opsets, **imported},
            rename=rename,
            prefix=label,
            scope="/".join(filter(None, (frame.scope, call.name.strip("/") or call.op_type))),
            attributes={name: value for name, value in given.items() if value is not None},
            depth=frame.depth + 1,
        )
        self._calls += 1
        self._expanded += len(function.node)
        if self._calls > MOST_CALLS or self._expanded > MOST_NODES:
            raise InvalidGraphError(
                f"function {quoted(function.name)}",
                f"expands to more than {MOST_CALLS} calls or {MOST_NODES} nodes",
            )
        for node in function.node:
            self._emit(node, inner, nodes, constants)

    def _attributes(
        self, protos: Sequence[onnx.AttributeProto], frame: _Frame
    ) -> tuple[Attributes, Subgraphs]:
        attributes: list[tuple[str, AttributeValue]] = []
        subgraphs: list[tuple[str, Graph]] = []
        for proto in protos:
            name = proto.name
            if frame.rename is not None:
                found = _resolve(proto, frame)
                if found is None:
                    continue
                proto = found  # noqa: PLW2901 - the caller's attribute takes its place
            kind = proto.type or _guessed_type(proto)
            if kind == _INT:
                attributes.append((name, proto.i))
            elif kind == _INTS:
                attributes.append((name, tuple(proto.ints[:])))
            elif kind == _STRING:
                attributes.append((name, _text(proto.s)))
            elif kind == _FLOAT:
                attributes.append((name, proto.f))
            elif kind == _GRAPH:
                subgraphs.append((name, self._graph(proto.g, frame)))
            elif kind == _GRAPHS:
                subgraphs.extend((name, self._graph(graph, frame)) for graph in proto.graphs)
            else:
                attributes.append((name, self._plain_attribute(proto, kind)))
        return tuple(attributes), tuple(subgraphs)

    def _plain_attribute(self, proto: onnx.AttributeProto, kind: int) -> AttributeValue:
        readers: dict[int, Callable[[], AttributeValue]] = {
            _TENSOR: lambda: self._tensors.dense(proto.t, proto.name, "attribute"),
            _FLOATS: lambda: tuple(proto.floats),
            _STRINGS: lambda: tuple(map(_text, proto.strings)),
            _TENSORS: lambda: tuple(
                self._tensors.dense(t, proto.name, "attribute") for t in proto.tensors
            ),
            _SPARSE: lambda: self._tensors.sparse(proto.sparse_tensor, proto.name, "attribute"),
            _SPARSES: lambda: tuple(
                self._tensors.sparse(t, proto.name, "attribute") for t in proto.sparse_tensors
            ),
            _TYPE: lambda: value_type(proto.tp, proto.name),
            _TYPES: lambda: tuple(value_type(tp, proto.name) for tp in proto.type_protos),
        }
        reader = readers.get(kind)
        return reader() if reader is not None else ()

    # -- tensors ---------------------------------------------------------------------------

    def _constant_node(self, proto: onnx.NodeProto, frame: _Frame) -> Constant:
        made, written = proto.output[:], proto.attribute[:]
        name = frame.name(made[0]) if made else ""
        attribute = _resolve(written[0], frame) if written else None
        if not name or attribute is None:
            raise InvalidGraphError(
                f"Constant node {quoted(proto.name or name)}", "has no output or no value"
            )
        known = self._function_constants.get(id(attribute)) if frame.depth else None
        if known is not None:
            return known[1].under(name)
        kind = attribute.type or _guessed_type(attribute)
        if kind == _TENSOR:
            constant = self._tensors.dense(attribute.t, name, "Constant")
        elif kind == _SPARSE:
            constant = self._tensors.sparse(attribute.sparse_tensor, name, "Constant")
        else:
            constant = _scalar_constant(attribute, kind, name)
        if frame.depth:
            # The attribute is kept, or another one would be given its address, so its id.
            self._function_constants[id(attribute)] = (attribute, constant)
        return constant


def _dim_names(inputs: tuple[GraphInput, ...]) -> Iterator[str]:
    for item in inputs:
        for dim in item.type.shape or ():
            if isinstance(dim, SymbolicDim):
                yield dim.name


def _domain(domain: str) -> str:
    """The default domain has two spellings; "" is ours."""
    return "" if domain == "ai.onnx" else domain


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _guessed_type(proto: onnx.AttributeProto) -> int:
    """Files older than IR 3 may leave the attribute type out: the field that is set tells it."""
    for kind, field in ((_FLOAT, "f"), (_INT, "i"), (_STRING, "s"), (_TENSOR, "t"), (_GRAPH, "g")):
        if proto.HasField(field):
            return kind
    for kind, field in ((_FLOATS, "floats"), (_INTS, "ints"), (_STRINGS, "strings")):
        if len(getattr(proto, field)):
            return kind
    return _INTS


def _scalar_constant(attribute: onnx.AttributeProto, kind: int, name: str) -> Constant:
    """A Constant node whose value is a plain number, list of numbers or text."""
    import numpy as np

    if kind in (_STRING, _STRINGS):
        shape = () if kind == _STRING else (len(attribute.strings),)
        return Constant(name, DType.STRING, shape, None, origin="Constant")
    number = {_FLOAT: "f", _INT: "i", _FLOATS: "floats", _INTS: "ints"}.get(kind, "ints")
    is_float = kind in (_FLOAT, _FLOATS)
    value = np.array(getattr(attribute, number), dtype=np.float32 if is_float else np.int64)
    if kind in (_FLOATS, _INTS):
        value = value.reshape(-1)
    dtype = DType.FLOAT if is_float else DType.INT64
    return Constant(name, dtype, value.shape, value.nbytes, value=value, origin="Constant")


def _refuse_repeated(names: list[str]) -> None:
    """Raise for a name that several constants have."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidGraphError(f"tensor {quoted(name)}", "is defined a second time")
        seen.add(name)


def _check_versions(opsets: Mapping[str, int]) -> None:
    """Refuse versions in which no operator exists."""
    for domain, version in opsets.items():
        if version < 1:
            raise InvalidGraphError(
                f"opset import of domain {quoted(domain or 'ai.onnx')}",
                f"version {version} does not exist: versions begin at 1",
            )


def _no_opset(name: str, op_type: str, domain: str) -> InvalidGraphError:
    return InvalidGraphError(
        f"node {quoted(name)} ({op_type})",
        f"its domain {quoted(domain or 'ai.onnx')} has no opset import; "
        "add the domain to the model's opset_import",
    )


def _resolve(proto: onnx.AttributeProto, frame: _Frame) -> onnx.AttributeProto | None:
    """The attribute itself, or for a reference the caller's attribute; None when not given."""
    if not proto.ref_attr_name:
        return proto
    return None if frame.attributes is None else frame.attributes.get(proto.ref_attr_name)


def _recorded_scope(proto: onnx.NodeProto) -> str | None:
    """The module path an exporter left in the node's metadata; None when there is none."""
    for entry in proto.metadata_props[:]:
        if entry.key == SCOPES_KEY:
            modules = entry.value.strip("[]").replace("'", "").split(", ")
            return modules[-2].replace(".", "/") if len(modules) > 1 else ""
    return None
