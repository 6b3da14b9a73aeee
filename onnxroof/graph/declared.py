"""Declared types: what a file says of a value before anything is inferred.

Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnxroof.errors import quoted
from onnxroof.graph.types import DTYPE_BY_CODE, SymbolicDim, ValueType
from onnxroof.graph.wire import (
    BYTES,
    VARINT,
    Message,
    Source,
    WireError,
    encoded,
    message_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnxroof.graph.wire import Span

_NOT_A_NAME = frozenset({"", "?", "-1", "None", "*"})
"""What exporters write for a dimension without a name: two of them need not be equal."""

_TENSOR, _SEQUENCE, _MAP, _OPAQUE, _SPARSE, _OPTIONAL = 1, 4, 5, 7, 8, 9
_KINDS = dict.fromkeys((_TENSOR, _SEQUENCE, _MAP, _OPAQUE, _SPARSE, _OPTIONAL), BYTES)
_AROUND = {_SEQUENCE: "sequence", _OPTIONAL: "optional", _MAP: "map"}
_ELEMENT, _SHAPE, _DIM, _MAP_VALUE = 1, 2, 1, 2
_DIM_VALUE, _DIM_NAME = 1, 2
_SIZES = {_DIM_VALUE: VARINT, _DIM_NAME: BYTES}
_NAME, _TYPE = 1, 2

INFOS = 13
"""The field of a GraphProto in which value_info stands."""

_HIGHEST_RANK = 10_000
"""A type of more dimensions is refused: runtimes have a few dozen at most."""

_DEEPEST = 30
"""Types within types beyond this are refused."""


def encoded_type(encoded: bytes, name: str) -> ValueType:
    """The type in the bytes of a TypeProto."""
    return value_type(Message(Source(encoded), 0, len(encoded)), name)


def value_type(message: Message | None, name: str, depth: int = 0) -> ValueType:
    """The type in a TypeProto. A dimension without a name or a size becomes a fresh SymbolicDim.

    Raises:
        WireError: The message is broken or nested too deep.
    """
    if depth > _DEEPEST:
        raise WireError(f"not an ONNX model: types nested deeper than {_DEEPEST}")
    kind = 0 if message is None else _last(message, _KINDS)
    inner = None if message is None else message.message(kind)
    if inner is None or kind == _OPAQUE:
        return ValueType("opaque")
    if kind in _AROUND:
        element = inner.message(_MAP_VALUE if kind == _MAP else _ELEMENT)
        return ValueType(_AROUND[kind], element=value_type(element, name, depth + 1))
    dtype = DTYPE_BY_CODE.get(inner.integer(_ELEMENT))
    shape = inner.message(_SHAPE)
    if shape is None:
        return ValueType("tensor", dtype)
    rank = len(shape.spans(_DIM))
    if rank > _HIGHEST_RANK:
        raise WireError(f"not an ONNX model: {quoted(name)} has {rank} dimensions")
    dims = [_dim(dim, f"?{name}.{axis}") for axis, dim in enumerate(shape.messages(_DIM))]
    return ValueType("tensor", dtype, tuple(dims))


def _dim(message: Message, fresh: str) -> int | SymbolicDim:
    if _last(message, _SIZES) == _DIM_VALUE:
        size = message.integer(_DIM_VALUE)
        return size if size >= 0 else SymbolicDim(fresh, named=False)
    written = message.text(_DIM_NAME)
    if written.strip("?") not in _NOT_A_NAME:
        return SymbolicDim(written)
    return SymbolicDim(fresh, named=False)


def _last(message: Message, fields: Mapping[int, int]) -> int:
    """Of fields of which one can be set, the one that is: the last one written; 0 for none.

    Args:
        message: Where they stand.
        fields: Number → wire type.
    """
    found, data = 0, message.source.data
    for number, start, *_ in message_fields(data, message.begin, message.end):
        if fields.get(number) == data[start] & 7:
            found = number
    return found


class WrittenTypes:
    """The bytes of some ValueInfoProtos, copied and not read before somebody asks."""

    __slots__ = ("_data",)

    def __init__(self, source: Source, runs: Sequence[Span], others: Sequence[Span]) -> None:
        """Copy them.

        Args:
            source: The file.
            runs: Where value_info fields lie, tags included.
            others: Where further ValueInfoProtos lie.
        """
        data = source.data
        written = [data[start:stop] for start, stop in runs]
        written += [encoded(INFOS, data[start:stop]) for start, stop in others]
        self._data = b"".join(written)

    def messages(self) -> list[Message]:
        """All of them, in the order given."""
        source = Source(self._data, "backslashreplace")
        return Message(source, 0, len(self._data)).messages(INFOS)


class DeclaredTypes(Mapping[str, ValueType]):
    """The file's value_info, read when somebody asks: few models ever need it."""

    def __init__(self, infos: WrittenTypes, rename: Callable[[str], str]) -> None:
        """Keep what was written, and how names in it are to be changed."""
        self._infos = infos
        self._rename = rename
        self._index: dict[str, Message] | None = None

    def _by_name(self) -> dict[str, Message]:
        if self._index is None:
            messages = self._infos.messages()
            self._index = {self._rename(message.text(_NAME)): message for message in messages}
        return self._index

    def __getitem__(self, name: str) -> ValueType:
        return value_type(self._by_name()[name].message(_TYPE), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())

    def __reduce__(self) -> tuple[type[dict[str, ValueType]], tuple[dict[str, ValueType]]]:
        return (dict, (dict(self),))
