"""TensorProto → `Constant`: type, shape, tiny values, and where the bytes of the rest lie.

External data are never opened here; a path that leaves the model's folder is refused at once.
Field numbers are those of onnx.proto.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted
from onnxroof.graph.types import DTYPE_BY_CODE, Constant, DType, Payload, is_countable
from onnxroof.graph.values import decode_numbers
from onnxroof.graph.wire import BYTES, Message, Source, WireError, encoded, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from onnxroof.graph.wire import Span

    Place = tuple[str | None, int, int | None, str]
    _Fields = tuple[bytes | None, int, int, int, int]

LARGEST_KEPT_BYTES = 1024
"""Tensors with no more data than this keep them: shape arithmetic may need their values."""

_DIMS, _TYPE, _NAME, _RAW, _EXTERNAL = 1, 2, 8, 9, 13
_DATA_FIELDS: Mapping[int, str] = {
    4: "float_data",
    5: "int32_data",
    6: "string_data",
    7: "int64_data",
    _RAW: "raw",
    10: "double_data",
    11: "uint64_data",
}
_IS_RAW = {4: DType.FLOAT, 10: DType.DOUBLE}
"""Typed fields whose packed form is the raw form, for tensors of their own type."""

_KEY, _VALUE = 1, 2
_SPARSE_VALUES, _SPARSE_INDICES, _SPARSE_DIMS = 1, 2, 3

_NAME_TAG, _EXTERNAL_TAG = _NAME << 3 | BYTES, _EXTERNAL << 3 | BYTES
_DATA_TAGS = frozenset(field << 3 | BYTES for field in _DATA_FIELDS)
_NO_ENTRY = b"\0"
"""No entry begins so."""
_IS_EXTERNAL_TAG = 14 << 3
"""Says that data are external, which the entries tell too."""

_LONGEST_HEAD = 512
"""Bytes of a message in which everything but its data is looked for at first."""

_HEAD = re.compile(
    rb"((?:\x08[\x80-\xff]{0,9}[\x00-\x7f])*\x10[\x00-\x7f])(?:B([\x00-\x7f]))?", re.DOTALL
)
"""Dimensions and type, then the tag of the name and its length: how nearly all tensors begin."""


_HEADS: dict[bytes, tuple[DType, tuple[int, ...], int | None]] = {}
"""Type, shape and stored bytes of what tensors begin with: what readers of this process share."""

_MOST_HEADS = 20_000


class TensorReader:
    """Reads the tensors of one model; notes the external files they name.

    Args:
        source: The file.
        name_of: What makes a name of its bytes.
    """

    def __init__(self, source: Source, name_of: Callable[[bytes], str]) -> None:
        self._source = source
        self._name_of = name_of
        self._external: dict[str, None] = {}
        self._checked = _NO_ENTRY
        if len(_HEADS) >= _MOST_HEADS:
            _HEADS.clear()

    @property
    def external_files(self) -> tuple[str, ...]:
        """Names of the external data files, in order of first use."""
        return tuple(self._external)

    def dense(self, span: Span, name: str | None, origin: str) -> Constant:
        """A dense tensor.

        Args:
            span: Where its message lies.
            name: What to call it; None for the name it has.
            origin: See `Constant`.

        Raises:
            InvalidGraphError: An unknown type or a size no tensor has.
            WireError: The message is broken.
        """
        begin, end = span
        size = end - begin
        head = self._source.data[begin : min(end, begin + _LONGEST_HEAD)]
        found = _HEAD.match(head)
        if found is None:
            return self._in_any_order(span, name, origin)
        type_and_shape, name_size = found.groups(b"\0")
        name_begin = found.end()
        name_end = name_begin + name_size[0]
        fields = _fields(head, name_end, size)
        if fields is None:
            return self._in_any_order(span, name, origin)
        own, field, start, stop, entries = fields
        if name is None:
            name = self._name_of(head[name_begin:name_end] if own is None else own)
        known = _HEADS.get(type_and_shape)
        dtype, shape, stored_bytes = known or self._new_type_and_shape(type_and_shape, name)
        raw = value = None
        place: Place | bytes | None = None
        if entries:
            place = head[entries:]
            self._locate(place, name)
        elif stop - start > LARGEST_KEPT_BYTES:
            place = (None, begin + start, stop - start, _DATA_FIELDS[field])
        elif stored_bytes is not None and stored_bytes <= LARGEST_KEPT_BYTES:
            fills = stop - start == stored_bytes
            if stop > start and (field == _RAW or (fills and _IS_RAW.get(field) is dtype)):
                raw = self._source.data[begin + start : begin + stop]
            elif field or not stored_bytes:
                written = self._source.data[begin + start : begin + stop]
                try:
                    value = _typed_elements(field, written, dtype, shape)
                except WireError:  # says where in the file
                    value = _typed_data(Message(self._source, begin, end), dtype, shape)
        return Constant(name, dtype, shape, stored_bytes, raw, value, place, None, origin)

    def _in_any_order(self, span: Span, name: str | None, origin: str) -> Constant:
        """A tensor whose fields do not stand as they usually do."""
        message = Message(self._source, *span)
        if name is None:
            name = self._name_of(message.raw(_NAME))
        dtype, shape, stored_bytes = self._type_and_shape(message, name)
        pieces = message.pieces(_DATA_FIELDS)
        raw = value = None
        place: Place | bytes | None = None
        if message.spans(_EXTERNAL):
            place = b"".join([encoded(_EXTERNAL, entry) for entry in message.raws(_EXTERNAL)])
            self._locate(place, name)
        elif sum(stop - start for _, start, stop in pieces) > LARGEST_KEPT_BYTES:
            field, start, stop = pieces[0]
            place = (None, start, stop - start, _DATA_FIELDS[field])
            if len(pieces) > 1:  # unpacked or repeated: the whole message, for protobuf to decode
                place = (None, span[0], span[1] - span[0], "message")
        elif stored_bytes is not None and stored_bytes <= LARGEST_KEPT_BYTES:
            raw = message.raw(_RAW) or None
            if raw is None:
                value = _typed_data(message, dtype, shape)
        return Constant(name, dtype, shape, stored_bytes, raw, value, place, None, origin)

    def _new_type_and_shape(
        self, written: bytes, name: str
    ) -> tuple[DType, tuple[int, ...], int | None]:
        """The same as `_type_and_shape`, from bytes that hold nothing else."""
        message = Message(Source(written, self._source.errors), 0, len(written))
        read = self._type_and_shape(message, name)
        if len(_HEADS) < _MOST_HEADS:
            _HEADS[written] = read
        return read

    def _type_and_shape(
        self, message: Message, name: str
    ) -> tuple[DType, tuple[int, ...], int | None]:
        """(type, shape, bytes as stored) of a tensor. Raises InvalidGraphError."""
        code = message.integer(_TYPE)
        dtype = DTYPE_BY_CODE.get(code)
        if dtype is None:
            raise InvalidGraphError(
                f"tensor {quoted(name)}", f"has an unknown element type ({code})"
            )
        shape = message.integers(_DIMS)
        _check_sizes(name, shape)
        return dtype, shape, dtype.nbytes(math.prod(shape))

    def sparse(self, span: Span, name: str | None, origin: str) -> Constant:
        """A sparse tensor: stored bytes are those of its values and its int64 indices."""
        message = Message(self._source, *span)
        parts = message.span(_SPARSE_VALUES), message.span(_SPARSE_INDICES)
        values, indices = [self.dense(part or (0, 0), name, origin) for part in parts]
        name = values.name
        shape = message.integers(_SPARSE_DIMS)
        _check_sizes(name, shape)
        stored = (values.stored_bytes or 0) + (indices.stored_bytes or 0)
        return Constant(
            name,
            values.dtype,
            shape,
            stored,
            payload=values.payload,
            nonzeros=math.prod(values.shape),
            origin=origin,
        )

    def _locate(self, entries: bytes, name: str) -> None:
        """Note the external file that is named; refuse what is outside the model's folder."""
        if entries.startswith(self._checked):  # nearly always the same in one file
            return
        read = _entries(entries, self._source.errors)
        location = next((value for key, value in read if key == "location"), "")
        if location not in self._external:
            _refuse_escape(location, name)
            self._external[location] = None
        if read[0][0] == "location" and entries[1] < 0x80:
            self._checked = entries[: entries[1] + 2]


@lru_cache(maxsize=1024)
def _typed_elements(
    field: int, written: bytes, dtype: DType, shape: tuple[int, ...]
) -> NDArray[np.generic] | None:
    """The elements of a tiny tensor with this one data field; zero points are nearly all alike."""
    data = encoded(field, written) if field else b""
    return _typed_data(Message(Source(data), 0, len(data)), dtype, shape)


def _typed_data(
    message: Message, dtype: DType, shape: tuple[int, ...]
) -> NDArray[np.generic] | None:
    """The elements of a tiny tensor whose data stand in a typed field."""
    short, half = message.integers(5), 1 << 31
    if short and not -half <= min(short) <= max(short) < half:  # only the lower half counts
        short = tuple([(number + half) % (2 * half) - half for number in short])
    integers = list(message.integers(7) or short)
    if integers:
        return decode_numbers(integers, dtype, shape)
    for field, layout in ((4, "f"), (10, "d")):
        floats = message.floats(field, layout)
        if floats:
            return decode_numbers(list(floats), dtype, shape)
    unsigned = [number % (1 << 64) for number in message.integers(11)]
    return decode_numbers(unsigned, dtype, shape) if unsigned or 0 in shape else None


def _fields(head: bytes, position: int, size: int) -> _Fields | None:
    """What follows a tensor's type, and its name if that is next, where it stands as usual.

    Args:
        head: The message, or its beginning.
        position: Where the type or the name ends.
        size: Bytes of the whole message.

    Returns:
        The name, None where it does not stand here; field of the data, where they begin and end,
        where the entries of external data begin: 0 where there are none.
    """
    own: bytes | None = None
    field = start = stop = entries = 0
    try:
        while position < size:
            tag, length, at = head[position], head[position + 1], position + 2
            if length > 0x7F:
                length, at = varint(head, position + 1, len(head))
            if tag == _EXTERNAL_TAG:
                entries = entries or position
                position = at + length
                while position < size and head[position] == tag and head[position + 1] < 0x80:
                    position += head[position + 1] + 2
                continue
            if tag == _IS_EXTERNAL_TAG:
                length = 0  # it was the number itself
            elif tag in _DATA_TAGS and not field and not entries:
                field, start, stop = tag >> 3, at, at + length
            elif tag == _NAME_TAG:
                own = head[at : at + length]
            else:
                return None
            position = at + length
    except (IndexError, WireError):
        return None
    if position != size or (size > len(head) and stop != size):
        return None
    return own, field, start, stop, entries


def external_payload(entries: bytes) -> Payload:
    """Where external data lie, from the entries that say so; of several the first counts."""
    said = dict(reversed(_entries(entries, "backslashreplace")))
    offset = _number(said.get("offset", ""))
    return Payload(said.get("location", ""), offset or 0, _number(said.get("length", "")))


def _entries(encoded: bytes, errors: str) -> list[tuple[str, str]]:
    """(key, value) of each entry of a tensor's external data."""
    message = Message(Source(encoded, errors), 0, len(encoded))
    entries = message.messages(_EXTERNAL)
    return [(entry.text(_KEY), entry.text(_VALUE)) for entry in entries]


def _check_sizes(name: str, shape: tuple[int, ...]) -> None:
    """Refuse sizes that no tensor has."""
    if min(shape, default=0) < 0:
        raise InvalidGraphError(
            f"tensor {quoted(name)}", f"has a negative dimension: {shape!s:.200}"
        )
    if not is_countable(shape):
        raise InvalidGraphError(
            f"tensor {quoted(name)}", f"has more than 2^63 elements: {shape!s:.200}"
        )


def _number(text: str) -> int | None:
    """A byte count as text; None for what cannot be one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _refuse_escape(location: str, name: str) -> None:
    """External data must lie in the model's folder or below it."""
    parts = location.replace("\\", "/").split("/")
    if not location or ".." in parts or parts[0] == "" or ":" in parts[0]:
        raise InvalidGraphError(
            f"tensor {quoted(name)}",
            f"its external data path {quoted(location)} leaves the model's folder; "
            "refused (move the file beside the model and write a relative path)",
        )
