"""First stage, second half: a file's bytes → `Graph`, with functions expanded and nodes in order.

Model-local functions are expanded in place: their inner names get the caller's name in front, and
the call stays visible as the scope of the nodes it became. Constant nodes become constants, as
initializers are. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted
from onnxroof.graph.declared import INFOS, DeclaredTypes, WrittenTypes, value_type
from onnxroof.graph.nodes import (
    ATTRIBUTE_FIELD,
    FLOAT,
    FLOATS,
    GRAPH,
    GRAPHS,
    INT,
    INTS,
    PLAIN,
    SPARSE,
    SPARSES,
    STRING,
    STRINGS,
    TENSOR,
    TENSORS,
    TYPE,
    TYPES,
    NodeReader,
    attribute_kind,
    attribute_name,
    attribute_reference,
    own_spelling,
    plain_value,
)
from onnxroof.graph.order import in_order
from onnxroof.graph.tensors import TensorReader
from onnxroof.graph.types import AttributeValue, Constant, DType, Graph, GraphInput, Node
from onnxroof.graph.wire import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnxroof.graph.nodes import WrittenNode
    from onnxroof.graph.wire import Source, Span

    ReadTensor = Callable[[Span, str | None, str], Constant]

Attributes = tuple[tuple[str, AttributeValue], ...]
Subgraphs = tuple[tuple[str, Graph], ...]

MOST_NODES = 1_000_000
MOST_CALLS = 100_000
MOST_NAMES = 5_000_000
"""Functions that call functions can expand without end; beyond this the file is refused. Names are
those of the tensors and attributes that calls repeat: five for each of the nodes."""

_READ_AGAIN = 10
"""Names as costly as an attribute that is read anew for each call."""

_DEEPEST_CALL = 64
_DEEPEST_BODY = 64

_NO_SUBGRAPHS: Subgraphs = ()
_UNWANTED = ("",)
"""The outputs of a node that lists none: one that nobody wants."""

_IR_VERSION, _MODEL_GRAPH, _MODEL_OPSETS, _MODEL_FUNCTIONS = 1, 7, 8, 25
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2
_NODES, _GRAPH_NAME, _INITIALIZERS, _INPUTS, _OUTPUTS, _SPARSES = 1, 2, 5, 11, 12, 15
_VALUE_NAME, _VALUE_TYPE = 1, 2
_FUNCTION_NAME, _PARAMETERS, _RESULTS, _BODY, _IMPORTS = 1, 4, 5, 7, 9
_FUNCTION_DOMAIN, _DEFAULTS, _OVERLOAD = 10, 11, 13

MODEL_FIELDS = frozenset({1, 2, 3, _MODEL_GRAPH, _MODEL_OPSETS, _MODEL_FUNCTIONS})
_GRAPH_FIELDS = frozenset({_NODES, _GRAPH_NAME, _INITIALIZERS, _INPUTS, _OUTPUTS, _SPARSES})
_GRAPH_RUNS = frozenset({INFOS})
_FUNCTION_FIELDS = frozenset(
    {_FUNCTION_NAME, _PARAMETERS, _RESULTS, _BODY, _IMPORTS, _FUNCTION_DOMAIN, _DEFAULTS, _OVERLOAD}
)
"""What is read of a message; the rest must not cost memory."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the conversion stands: names and attributes of the function call around a node."""

    opsets: Mapping[str, int]
    rename: dict[str, str] | None = None
    prefix: str = ""
    scope: str = ""
    attributes: Mapping[str, Message] | None = None
    depth: int = 0

    def name(self, inner: str) -> str:
        """The name in the expanded graph of a name in the function's body."""
        rename = self.rename
        if rename is None or not inner:
            return inner
        known = rename.get(inner)
        if known is None:
            known = rename[inner] = f"{self.prefix}/{inner}"
        return known


class _Function:
    """A model-local function, read when it is first called."""

    def __init__(self, source: Source, span: Span, reader: NodeReader) -> None:
        self._message = message = Message(source, *span, _FUNCTION_FIELDS)
        self._reader = reader
        self.name = message.text(_FUNCTION_NAME)
        self.key = (
            own_spelling(message.text(_FUNCTION_DOMAIN)),
            self.name,
            message.text(_OVERLOAD),
        )

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return self._message.texts(_PARAMETERS)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of its results."""
        return self._message.texts(_RESULTS)

    @cached_property
    def opsets(self) -> dict[str, int]:
        """The versions it imports, by domain."""
        return _opsets(self._message.messages(_IMPORTS))

    @cached_property
    def defaults(self) -> list[Message]:
        """Attributes with the values they have where a call gives none."""
        return self._message.messages(_DEFAULTS)

    @cached_property
    def nodes(self) -> list[WrittenNode]:
        """Its body."""
        return list(self._reader.read(self._message.spans(_BODY)))


class Converter:
    """Translates one model; collects assumptions on the way.

    Args:
        source: The model's bytes.
        model: The fields of its ModelProto.
    """

    def __init__(self, source: Source, model: Message) -> None:
        self.assumptions: list[str] = []
        self.opsets = _opsets(model.messages(_MODEL_OPSETS))
        self._model = model
        self._source = source
        self._function_nodes = reader = NodeReader(source, share_constants=False)
        functions = [_Function(source, span, reader) for span in model.spans(_MODEL_FUNCTIONS)]
        self._functions = {function.key: function for function in functions}
        plain = not functions and source.errors == "strict"
        self._nodes = NodeReader(source, share_files=plain)
        self._tensors = TensorReader(source, self._nodes.name)
        self._function_constants: dict[int, tuple[str, Constant]] = {}
        self._given_values: dict[int, AttributeValue] = {}
        self._bodies: dict[int, tuple[Message, WrittenTypes]] = {}
        self._call_names: dict[str, int] = {}
        self._calls = 0
        self._expanded = 0
        self._names_expanded = 0
        self._depth = 0

    @property
    def external_files(self) -> tuple[str, ...]:
        """Names of the external data files, in order of first use."""
        return self._tensors.external_files

    def main_graph(self) -> Graph:
        """The model's graph.

        Raises:
            InvalidGraphError: It has none, or one that cannot be repaired.
            WireError: A message is broken.
            UnicodeDecodeError: A text is not UTF-8, and the source is strict.
        """
        _check_versions(self.opsets)
        span = self._model.span(_MODEL_GRAPH) or (0, 0)
        graph = self._graph(span, _Frame(self.opsets), outermost=True)
        if graph.captures:
            name = graph.captures[0]
            reader = next((node for node in graph.nodes if name in node.reads), None)
            where = f"node {quoted(reader.label)} ({reader.op_type})" if reader else "the graph"
            raise InvalidGraphError(
                where, f"needs tensor {quoted(name)}, which no node, input or initializer provides"
            )
        return graph

    # -- graphs ----------------------------------------------------------------------------

    def _graph(self, span: Span, frame: _Frame, *, outermost: bool = False) -> Graph:
        message, infos = self._body(span)
        graph_name = message.text(_GRAPH_NAME)
        self._depth += 1
        if self._depth > _DEEPEST_BODY:
            raise InvalidGraphError(
                f"subgraph {quoted(graph_name)}", f"subgraphs nest deeper than {_DEEPEST_BODY}"
            )
        constants = self._initializers(message, frame)
        listed = [(self._value_name(value, frame), value) for value in message.messages(_INPUTS)]
        inputs = tuple(
            [
                GraphInput(name, value_type(value.message(_VALUE_TYPE), value.text(_VALUE_NAME)))
                for name, value in listed
                if name not in constants
            ]
        )
        if outermost and len(inputs) < len(listed) and self._model.integer(_IR_VERSION) < 4:
            self.assumptions.append(
                "initializers that this old file also lists as inputs are weights, not inputs"
            )
        nodes: list[Node] = []
        reader = self._function_nodes if frame.depth else self._nodes
        if frame.depth:
            parts = (_NODES, _INITIALIZERS, _SPARSES, _INPUTS, _OUTPUTS)
            self._count_expanded(graph_name, sum([len(message.spans(part)) for part in parts]))
        self._emit(reader.read(message.spans(_NODES)), frame, nodes, constants)
        outputs = tuple([self._value_name(value, frame) for value in message.messages(_OUTPUTS)])
        defined = {*constants, *(graph_input.name for graph_input in inputs)}
        ordered, captures, was_sorted = in_order(nodes, defined, outputs)
        if not was_sorted:
            where = "the graph" if outermost else f"subgraph {quoted(graph_name)}"
            self.assumptions.append(
                f"nodes of {where} were not topologically sorted; a stable sort put them in order"
            )
            for index, moved in enumerate(ordered):
                moved.index = index
        self._depth -= 1
        return Graph(
            name=graph_name,
            nodes=tuple(ordered),
            inputs=inputs,
            outputs=outputs,
            constants=constants,
            declared=DeclaredTypes(infos, frame.rename, frame.prefix),
            captures=captures,
        )

    def _body(self, span: Span) -> tuple[Message, WrittenTypes]:
        """The fields of a graph, and the types it declares: once for all calls of a function."""
        known = self._bodies.get(span[0])
        if known is None:
            message = Message(self._source, *span, _GRAPH_FIELDS, _GRAPH_RUNS)
            infos = WrittenTypes(self._source, message.spans(INFOS), message.spans(_OUTPUTS))
            known = self._bodies[span[0]] = message, infos
        return known

    def _value_name(self, value: Message, frame: _Frame) -> str:
        """The name in a ValueInfoProto."""
        return frame.name(self._nodes.name(value.raw(_VALUE_NAME)))

    def _initializers(self, graph: Message, frame: _Frame) -> dict[str, Constant]:
        dense: ReadTensor = self._tensors.dense
        sparse: ReadTensor = self._tensors.sparse
        if frame.depth:
            dense, sparse = self._once(dense, frame), self._once(sparse, frame)
        found = [dense(span, None, "initializer") for span in graph.spans(_INITIALIZERS)]
        found += [sparse(span, None, "initializer") for span in graph.spans(_SPARSES)]
        constants = {constant.name: constant for constant in found}
        if len(constants) < len(found):
            names = Counter([constant.name for constant in found])
            raise _repeated(next(name for name, count in names.items() if count > 1))
        return constants

    def _once(self, read: ReadTensor, frame: _Frame) -> ReadTensor:
        """The reader for a function's body: in a further call the same tensor, renamed."""

        def renamed(span: Span, name: str | None, origin: str) -> Constant:
            known = self._function_constants.get(span[0])
            if known is not None:
                inner, constant = known
                return constant.under(frame.name(inner))
            constant = read(span, name, origin)
            self._function_constants[span[0]] = (constant.name, constant)
            constant.name = frame.name(constant.name)
            return constant

        return renamed

    # -- nodes -----------------------------------------------------------------------------

    def _emit(
        self,
        body: Iterable[WrittenNode],
        frame: _Frame,
        nodes: list[Node],
        constants: dict[str, Constant],
    ) -> None:
        """Append the nodes of a body: themselves, or the bodies of the functions they call."""
        opsets, functions, is_main = frame.opsets, self._functions, frame.rename is None
        for written in body:
            name, inputs, outputs, kind, scope = written
            domain, op_type, attributes = kind.domain, kind.op_type, kind.attributes
            if op_type == "Constant" and not domain:
                constant = self._constant_node(written, frame)
                if constant.name in constants:
                    raise _repeated(constant.name)
                constants[constant.name] = constant
                continue
            if functions:
                function = functions.get((domain, op_type, kind.overload))
                if function is not None:
                    self._inline(written, function, frame, nodes, constants)
                    continue
            opset = opsets.get(domain)
            if opset is None:
                raise _no_opset(name or op_type, op_type, domain)
            if not is_main:
                weight = _READ_AGAIN if attributes is None else 1
                names = len(inputs) + len(outputs) + weight * len(kind.written)
                self._count_expanded(frame.prefix, names=names)
                inputs, outputs = tuple(map(frame.name, inputs)), tuple(map(frame.name, outputs))
                inner = name.rpartition("/")[0].lstrip("/") if scope is None else scope
                scope = f"{frame.scope}/{inner}".rstrip("/")
                name = f"{frame.prefix}/{name or op_type}"
            subgraphs = _NO_SUBGRAPHS
            if attributes is None:
                attributes, subgraphs = self._attributes(kind.written, frame)
                if kind.fixed:
                    kind.attributes = attributes
            nodes.append(
                Node(
                    name, domain, op_type, opset, inputs, outputs or _UNWANTED, attributes,
                    subgraphs, scope, len(nodes),
                )
            )  # fmt: skip

    def _inline(
        self,
        call: WrittenNode,
        function: _Function,
        frame: _Frame,
        nodes: list[Node],
        constants: dict[str, Constant],
    ) -> None:
        """Expand a call of a model-local function."""
        call_name, read, made, kind, _ = call
        if frame.depth >= _DEEPEST_CALL:
            raise InvalidGraphError(
                f"function {quoted(function.name)}",
                f"calls nest deeper than {_DEEPEST_CALL} (does it call itself?)",
            )
        self._calls += 1
        parts = (
            function.inputs, function.outputs, function.defaults, function.opsets, kind.written
        )  # fmt: skip
        self._count_expanded(function.name, len(function.nodes), names=sum(map(len, parts)))
        label = frame.prefix + "/" * bool(frame.prefix) + (call_name or kind.op_type)
        seen = self._call_names[label] = self._call_names.get(label, 0) + 1
        if seen > 1 or not call_name:
            label = f"{label}#{seen}"
        rename = dict.fromkeys(function.inputs, "")
        rename |= {formal: frame.name(a) for formal, a in zip(function.inputs, read)}  # noqa: B905
        for formal, actual in zip(function.outputs, made, strict=False):
            if actual:
                rename[formal] = frame.name(actual)
        written = [Message(self._source, *span) for span in kind.written]
        given = {attribute_name(default): default for default in function.defaults}
        for attribute in written:  # what the caller itself was not given leaves the default
            value = _resolve(attribute, frame)
            if value is not None:
                given[attribute_name(attribute)] = value
        _check_versions(function.opsets)
        inner = _Frame(
            opsets={**frame.opsets, **function.opsets},
            rename=rename,
            prefix=label,
            scope="/".join(filter(None, (frame.scope, call_name.strip("/") or kind.op_type))),
            attributes=given,
            depth=frame.depth + 1,
        )
        self._emit(function.nodes, inner, nodes, constants)

    def _count_expanded(self, name: str, nodes: int = 0, *, names: int = 0) -> None:
        """Refuse functions that call functions, or hold bodies, without end."""
        self._expanded += nodes
        self._names_expanded += names
        too_many = self._expanded > MOST_NODES or self._names_expanded > MOST_NAMES
        if too_many or self._calls > MOST_CALLS:
            raise InvalidGraphError(
                f"function {quoted(name)}",
                f"expands to more than {MOST_CALLS} calls, {MOST_NODES} nodes or {MOST_NAMES}"
                " names",
            )

    def _attributes(self, written: Sequence[Span], frame: _Frame) -> tuple[Attributes, Subgraphs]:
        attributes: list[tuple[str, AttributeValue]] = []
        subgraphs: list[tuple[str, Graph]] = []
        for span in written:
            own = attribute = Message(self._source, *span)
            name = attribute_name(own)
            if frame.rename is not None:
                found = _resolve(own, frame)
                if found is None:
                    continue
                attribute = found
            kind = attribute_kind(attribute)
            if kind in (GRAPH, GRAPHS):
                spans = attribute.spans(ATTRIBUTE_FIELD[kind])
                if kind == GRAPH:
                    spans = [attribute.span(ATTRIBUTE_FIELD[kind]) or (0, 0)]
                subgraphs.extend((name, self._graph(graph, frame)) for graph in spans)
            elif kind not in PLAIN:
                attributes.append((name, self._value(attribute, kind)))
            elif attribute is own:
                attributes.append((name, plain_value(attribute)))
            else:
                attributes.append((name, self._given(attribute)))
        return tuple(attributes), tuple(subgraphs)

    def _given(self, attribute: Message) -> AttributeValue:
        """The value of a caller's attribute, read once for all nodes that refer to it."""
        known = self._given_values.get(attribute.begin)
        if known is None:
            known = self._given_values[attribute.begin] = plain_value(attribute)
        return known

    def _value(self, attribute: Message, kind: int) -> AttributeValue:
        """The tensors or types an attribute holds."""
        name, field = attribute_name(attribute), ATTRIBUTE_FIELD[kind]
        if kind == TYPE:
            return value_type(attribute.message(field), name)
        if kind == TYPES:
            return tuple([value_type(message, name) for message in attribute.messages(field)])
        read = self._tensors.sparse if kind in (SPARSE, SPARSES) else self._tensors.dense
        if kind in (TENSORS, SPARSES):
            return tuple([read(span, name, "attribute") for span in attribute.spans(field)])
        return read(attribute.span(field) or (0, 0), name, "attribute")

    # -- tensors ---------------------------------------------------------------------------

    def _constant_node(self, written: WrittenNode, frame: _Frame) -> Constant:
        node, _, outputs, kind, _ = written
        name = frame.name(outputs[0]) if outputs else ""
        known = kind.constant
        if known is not None and name:
            return known.again(name)
        attribute = Message(self._source, *kind.written[0]) if kind.written else None
        if attribute is not None:
            attribute = _resolve(attribute, frame)
        if not name or attribute is None:
            raise InvalidGraphError(
                f"Constant node {quoted(node or name)}", "has no output or no value"
            )
        if frame.depth and attribute.begin in self._function_constants:
            return self._function_constants[attribute.begin][1].under(name)
        value = attribute_kind(attribute)
        span = (
            attribute.span(ATTRIBUTE_FIELD[value]) or (0, 0) if value in (TENSOR, SPARSE) else None
        )
        if span is None:
            constant = _scalar_constant(attribute, value, name)
        elif value == TENSOR:
            constant = self._tensors.dense(span, name, "Constant")
        else:
            constant = self._tensors.sparse(span, name, "Constant")
        if frame.depth:
            self._function_constants[attribute.begin] = (name, constant)
        elif kind.shared:
            kind.constant = constant
        return constant


def _opsets(imports: Sequence[Message]) -> dict[str, int]:
    """Versions by domain."""
    return {
        own_spelling(item.text(_OPSET_DOMAIN)): item.integer(_OPSET_VERSION) for item in imports
    }


def _scalar_constant(attribute: Message, kind: int, name: str) -> Constant:
    """A Constant node whose value is a plain number, list of numbers or text."""
    import numpy as np

    if kind in (STRING, STRINGS):
        texts = attribute.spans(ATTRIBUTE_FIELD[kind])
        shape = () if kind == STRING else (len(texts),)
        return Constant(name, DType.STRING, shape, None, origin="Constant")
    is_float = kind in (FLOAT, FLOATS)
    numbers = plain_value(attribute) if kind in (FLOAT, INT, FLOATS, INTS) else ()
    value = np.array(numbers, dtype=np.float32 if is_float else np.int64)
    dtype = DType.FLOAT if is_float else DType.INT64
    return Constant(name, dtype, value.shape, value.nbytes, value=value, origin="Constant")


def _repeated(name: str) -> InvalidGraphError:
    """The error for a name that several constants have."""
    return InvalidGraphError(f"tensor {quoted(name)}", "is defined a second time")


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


def _resolve(attribute: Message, frame: _Frame) -> Message | None:
    """The attribute itself, or for a reference the caller's attribute; None when not given."""
    reference = attribute_reference(attribute)
    if not reference:
        return attribute
    return None if frame.attributes is None else frame.attributes.get(reference)
