"""NodeProto and AttributeProto → names and values, each distinct piece of bytes read once.

Nodes of a graph differ in the names they begin with; what follows (operator and attributes) is the
same bytes again and again, and so are the names: written where a tensor is made and where it is
read. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.graph.wire import BYTES, Message, Source, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxroof.graph.types import AttributeValue, Constant
    from onnxroof.graph.wire import Span

_LARGEST_COPIED_BYTES = 2048
"""Nodes up to this size are read from a copy of a part of the file: names are slices of it."""

_WINDOW_BYTES = 1 << 16
"""Size of such a part; no node that is read from it is larger."""

_LONGEST_SHARED_BYTES = 256
"""What follows a node's names is looked up by its bytes up to this length."""

_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN, _OVERLOAD, _METADATA = 1, 2, 3, 4, 5, 7, 8, 9
_INPUT_TAG, _OUTPUT_TAG, _NAME_TAG = 1 << 3 | BYTES, 2 << 3 | BYTES, 3 << 3 | BYTES
_KIND_TAGS = frozenset(f << 3 | BYTES for f in (_OP_TYPE, _ATTRIBUTE, _DOMAIN, _OVERLOAD))
_DOCUMENTATION_TAG, _METADATA_TAG = 6 << 3 | BYTES, _METADATA << 3 | BYTES

FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = range(1, 9)
TENSORS, GRAPHS, SPARSE, SPARSES, TYPE, TYPES = range(9, 15)
"""AttributeProto.AttributeType."""

_ATTRIBUTE_NAME, _ATTRIBUTE_KIND, _REFERENCE = 1, 20, 21
ATTRIBUTE_FIELD = {
    FLOAT: 2, INT: 3, STRING: 4, TENSOR: 5, GRAPH: 6, FLOATS: 7, INTS: 8, STRINGS: 9, TENSORS: 10,
    GRAPHS: 11, TYPE: 14, TYPES: 15, SPARSE: 22, SPARSES: 23,
}  # fmt: skip
"""Kind of an attribute → the field its value stands in."""

PLAIN = frozenset({FLOAT, INT, STRING, FLOATS, INTS, STRINGS})
"""Kinds that `plain_value` reads."""

_GUESSES = (FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS)

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
"""Key under which an exporter names the modules a node stands in."""

_SCOPES_ENTRY = b"\x0a" + bytes([len(SCOPES_KEY)]) + SCOPES_KEY.encode()
_ENTRY_VALUE, _ENTRY_VALUE_TAG = 2, 2 << 3 | BYTES


class Kind:
    """What a node says after its names.

    Attributes:
        op_type: The operator.
        domain: "" for ai.onnx.
        overload: Which of the functions of one name it calls.
        attributes: (name, value) pairs; None where one has still to be read: a tensor once; a
            graph, a type, or a reference to an attribute of the function around it for each node.
        fixed: Whether they are the same for each node.
        written: Where the attributes lie.
        constant: What an earlier Constant node of the same bytes holds.
        shared: Whether other nodes may be found to be of this kind.
    """

    __slots__ = (
        "attributes", "constant", "domain", "fixed", "op_type", "overload", "shared", "written",
    )  # fmt: skip

    def __init__(self, op_type: str, domain: str, overload: str) -> None:
        self.op_type = op_type
        self.domain = domain
        self.overload = overload
        self.attributes: tuple[tuple[str, AttributeValue], ...] | None = ()
        self.written: list[Span] = []
        self.fixed = False
        self.constant: Constant | None = None
        self.shared = False


WrittenNode = tuple[str, tuple[str, ...], tuple[str, ...], Kind, str | None]
"""Name, inputs, outputs, the rest, and the module path in the metadata; None where none is."""


_PLAIN_KINDS: dict[bytes, Kind] = {}
"""What readers of this process share: pure functions of bytes, at most `_MOST_KINDS`.

Texts that are not UTF-8 are never among them.
"""

_MOST_KINDS = 20_000


class NodeReader:
    """Reads the nodes of one file.

    Args:
        source: The file.
        share_constants: Whether Constant nodes of the same bytes may be one kind.
        share_files: Whether kinds may be those of other files: such as have no tensor, graph or
            reference, and Constant nodes that hold their elements. Their `written` is not known.
    """

    def __init__(
        self, source: Source, *, share_constants: bool = True, share_files: bool = False
    ) -> None:
        self._source = source
        if len(_PLAIN_KINDS) >= _MOST_KINDS:
            _PLAIN_KINDS.clear()
        self._plain_kinds = _PLAIN_KINDS if share_files else {}
        self._share_constants = share_constants
        self._names: dict[str, str] = {}  # by their bytes as Latin-1; most are their own keys
        self._kinds: dict[bytes, Kind] = {}
        self._attributes: dict[bytes, tuple[str, AttributeValue]] = {}

    def name(self, raw: bytes) -> str:
        """The name in some bytes: one object, however often it is written."""
        text = raw.decode("latin-1")
        known = self._names.get(text)
        if known is None:
            known = self._names[text] = text if text.isascii() else self._decoded(text)
        return known

    def _decoded(self, text: str) -> str:
        """The text whose bytes were read as Latin-1."""
        return text.encode("latin-1").decode("utf-8", self._source.errors)

    def read(  # noqa: C901, PLR0912 - the one loop over all names of a file
        self, spans: Sequence[Span]
    ) -> Iterator[WrittenNode]:
        """The nodes at some places, each when it is asked for.

        Raises:
            WireError: A message is broken.
        """
        source, names, kinds = self._source.data, self._names, self._kinds
        data, written, first, last = b"", "", 0, 0
        for begin, end in spans:
            if not 0 < end - begin <= _LARGEST_COPIED_BYTES:
                yield self._in_any_order(begin, end)
                continue
            if begin < first or end > last:
                first, last = begin, min(begin + _WINDOW_BYTES, spans[-1][1])
                data = source[first:last]
                written = data.decode("latin-1")
            inputs: list[str] = []
            outputs: list[str] = []
            name = ""
            position, stop = begin - first, end - first
            try:
                for tag, found in ((_INPUT_TAG, inputs), (_OUTPUT_TAG, outputs)):
                    while data[position] == tag:
                        length, start = data[position + 1], position + 2
                        if length > 0x7F:
                            length, start = varint(data, position + 1, stop)
                        position = start + length
                        text = written[start:position]
                        known = names.get(text)
                        if known is None:
                            known = names[text] = text if text.isascii() else self._decoded(text)
                        found.append(known)
                if data[position] == _NAME_TAG:  # read once, so not kept
                    length, start = data[position + 1], position + 2
                    if length > 0x7F:
                        length, start = varint(data, position + 1, stop)
                    position = start + length
                    text = written[start:position]
                    name = text if text.isascii() else self._decoded(text)
            except IndexError:
                position = stop
            if position >= stop:  # ends early, or has nothing but names
                yield self._in_any_order(begin, end)
                continue
            rest = data[position:stop]
            kind = None
            if stop - position <= _LONGEST_SHARED_BYTES:
                kind = kinds.get(rest) or self._seen_before(rest)
            if kind is not None:
                yield name, tuple(inputs), tuple(outputs), kind, None
                continue
            kind_and_scope = self._kind_and_scope(rest, first + position)
            if kind_and_scope is None:
                yield self._in_any_order(begin, end)
            else:
                yield name, tuple(inputs), tuple(outputs), *kind_and_scope

    def _kind_and_scope(self, rest: bytes, begin: int) -> tuple[Kind, str | None] | None:
        """What follows the names at `begin`; None where it does not stand in the usual order."""
        position, stop = 0, len(rest)
        kind_end = 0
        scope = None
        try:
            while position < stop:
                at, tag, length = position, rest[position], rest[position + 1]
                start = position + 2
                if length > 0x7F:  # what takes more than two bytes ends behind the node
                    length, start = length + (rest[start] << 7) - 0x80, start + 1
                position = start + length
                if tag == _METADATA_TAG:
                    if rest.startswith(_SCOPES_ENTRY, start):
                        scope = self._scope(rest[start:position])
                elif tag in _KIND_TAGS and at == kind_end:
                    kind_end = position
                elif tag != _DOCUMENTATION_TAG:
                    return None
        except IndexError:
            return None
        if position > stop or not stop:
            return None
        return self._shared_kind(rest[:kind_end], begin), scope

    def _shared_kind(self, written: bytes, begin: int) -> Kind:
        """The kind in some bytes at `begin`, read where no node was found to be of it before."""
        if len(written) > _LONGEST_SHARED_BYTES:
            return self._kind(Message(self._source, begin, begin + len(written)))
        known = self._kinds.get(written) or self._seen_before(written)
        if known is not None:
            return known
        kind = self._kind(Message(self._source, begin, begin + len(written)))
        if kind.shared:
            self._kinds[written] = kind
            is_read = kind.attributes is not None or kind.op_type == "Constant"
            if is_read and len(self._plain_kinds) < _MOST_KINDS:
                self._plain_kinds[written] = kind
        return kind

    def _seen_before(self, written: bytes) -> Kind | None:
        """The kind in some bytes as another file's reader found it; None where there is none.

        A Constant node is the same only where its elements were kept: the path of external data
        has to be checked for each file.
        """
        kind = self._plain_kinds.get(written)
        if kind is None:
            return None
        constant = kind.constant
        if kind.op_type == "Constant" and (constant is None or not constant.may_have_value):
            return None
        self._kinds[written] = kind
        return kind

    def _in_any_order(self, begin: int, end: int) -> WrittenNode:
        """A node whose fields do not stand in the usual order, or a large one."""
        message = Message(self._source, begin, end)
        inputs = tuple(map(self.name, message.raws(_INPUT)))
        outputs = tuple(map(self.name, message.raws(_OUTPUT)))
        kind = self._kind(message)
        kind.shared = False
        data, scope = self._source.data, None
        for start, stop in message.spans(_METADATA):
            if data[start : start + len(_SCOPES_ENTRY)] == _SCOPES_ENTRY:
                scope = self._scope(data[start:stop])
        return message.text(_NAME), inputs, outputs, kind, scope

    def _kind(self, message: Message) -> Kind:
        op_type, domain = self.name(message.raw(_OP_TYPE)), own_spelling(message.text(_DOMAIN))
        kind = Kind(op_type, domain, message.text(_OVERLOAD))
        kind.written = message.spans(_ATTRIBUTE)
        data, known = self._source.data, self._attributes
        values: list[tuple[str, AttributeValue]] = []
        for begin, end in kind.written:
            raw = data[begin:end] if end - begin <= _LONGEST_SHARED_BYTES else b""
            value = known.get(raw)
            if value is None:
                attribute = Message(self._source, begin, end)
                held, is_reference = attribute_kind(attribute), attribute.has(_REFERENCE)
                if held not in PLAIN or is_reference:
                    kind.attributes = None
                    if held not in (TENSOR, SPARSE) or is_reference:
                        return kind
                    continue
                value = self.name(attribute.raw(_ATTRIBUTE_NAME)), plain_value(attribute)
                if raw:
                    known[raw] = value
            values.append(value)
        if kind.attributes is not None:
            kind.attributes = tuple(values)
        kind.fixed = True
        kind.shared = self._share_constants or kind.op_type != "Constant"
        return kind

    def _scope(self, entry: bytes) -> str:
        """The module path in an entry of a node's metadata."""
        errors, value = self._source.errors, entry[len(_SCOPES_ENTRY) :]
        written = None
        if value and value[0] == _ENTRY_VALUE_TAG:
            length, start = varint(value, 1, len(value))
            if start + length == len(value):
                written = value[start:].decode("utf-8", errors)
        if written is None:
            written = Message(Source(entry, errors), 0, len(entry)).text(_ENTRY_VALUE)
        modules = written.rsplit(", ", 2)
        return _plain(modules[-2]) if len(modules) > 1 else ""


@lru_cache(maxsize=4096)
def _plain(module: str) -> str:
    """A module's name as a path: without the signs around it in a list of names."""
    return module.strip("[]").replace("'", "").replace(".", "/")


def own_spelling(domain: str) -> str:
    """The default domain has two spellings; "" is ours."""
    return "" if domain == "ai.onnx" else domain


def attribute_kind(attribute: Message) -> int:
    """Its type. Files older than IR 3 may leave it out: the field that is set tells it."""
    kind = attribute.integer(_ATTRIBUTE_KIND)
    if kind in ATTRIBUTE_FIELD:
        return kind
    return next((guess for guess in _GUESSES if attribute.has(ATTRIBUTE_FIELD[guess])), INTS)


def attribute_name(attribute: Message) -> str:
    """What it is called."""
    return attribute.text(_ATTRIBUTE_NAME)


def attribute_reference(attribute: Message) -> str:
    """The attribute of the function around it that it stands for; "" for a value of its own."""
    return attribute.text(_REFERENCE)


def plain_value(attribute: Message) -> AttributeValue:
    """A number, a text or several."""
    kind = attribute_kind(attribute)
    field = ATTRIBUTE_FIELD[kind]
    if kind == INT:
        return attribute.integer(field)
    if kind == INTS:
        return attribute.integers(field)
    if kind == FLOAT:
        numbers = attribute.floats(field)
        return numbers[-1] if numbers else 0.0
    if kind == FLOATS:
        return attribute.floats(field)
    if kind == STRING:
        return _text(attribute.raw(field))
    return tuple(map(_text, attribute.raws(field)))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
