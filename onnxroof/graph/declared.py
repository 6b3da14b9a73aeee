"""Declared types: what a file says of a value before anything is inferred.

Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
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
    from collections.abc import Sequence

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
        self._source = Source(b"".join(written), "backslashreplace")

    @cached_property
    def places(self) -> Mapping[str, Span]:
        """Where each of them lies in the copy, by the value's name; of several the last counts."""
        infos = Message(self._source, 0, len(self._source.data)).spans(INFOS)
        return {Message(self._source, *span).text(_NAME): span for span in infos}

    def type_of(self, written_as: str, name: str) -> ValueType:
        """The type of a value.

        Args:
            written_as: Its name here.
            name: What to call it.

        Raises:
            KeyError: None is declared.
            WireError: It is broken.
        """
        message = Message(self._source, *self.places[written_as])
        return value_type(message.message(_TYPE), name)


class DeclaredTypes(Mapping[str, ValueType]):
    """The file's value_info, read when somebody asks: few models ever need it.

    Args:
        infos: What was written; the same for all calls of a function.
        rename: Names within a function → those in the expanded graph; None outside of functions,
            where a name stays what it is.
        prefix: What stands in front of a name that is not among these.
    """

    def __init__(
        self, infos: WrittenTypes, rename: Mapping[str, str] | None = None, prefix: str = ""
    ) -> None:
        self._infos = infos
        self._rename = rename or {}
        self._prefix = "" if rename is None else f"{prefix}/"

    @cached_property
    def _written_as(self) -> Mapping[str, str]:
        """Names in the expanded graph → names within the function."""
        return {outer: inner for inner, outer in self._rename.items()}

    def __getitem__(self, name: str) -> ValueType:
        inner = self._written_as.get(name)
        if inner is None:
            if not name.startswith(self._prefix):
                raise KeyError(name)
            inner = name.removeprefix(self._prefix)
        try:
            return self._infos.type_of(inner, name)
        except WireError as error:
            raise WireError(f"the declared type of {quoted(name)} is broken: {error}") from None

    def __iter__(self) -> Iterator[str]:
        rename, prefix = self._rename, self._prefix
        return (rename.get(inner) or prefix + inner for inner in self._infos.places)

    def __len__(self) -> int:
        return len(self._infos.places)

    def __reduce__(self) -> tuple[type[dict[str, ValueType]], tuple[dict[str, ValueType]]]:
        return (dict, (dict(self),))
