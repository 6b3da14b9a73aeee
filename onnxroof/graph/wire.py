"""First stage: protobuf bytes → the same message without weight payloads, and where each lies.

A model file is almost all weights, and no count needs them. This reader follows the protobuf wire
format (tags and lengths, nothing else), copies what is small and leaves out the data fields of
every TensorProto above `LARGEST_KEPT_BYTES`, wherever it stands: initializers, attributes,
subgraphs, functions. What remains opens in the time of its graph. A tensor that lost its data
gets one `external_data` entry with `PAYLOAD_KEY`, whose value is the index of its `Payload`.

Field numbers are those of onnx.proto. Does not decode anything else and knows no operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.errors import OnnxroofError
from onnxroof.graph.types import Payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Buffer = memoryview

LARGEST_KEPT_BYTES = 1024
"""Tensors with no more data than this stay: shape arithmetic may need their values."""

PAYLOAD_KEY = "\0payload"
"""Key of the marker entry; no external data key of a real file begins with a NUL."""

_DEEPEST = 100
"""Message nesting beyond this is refused, as protobuf itself does."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR, _SPARSE, _FUNCTION = range(7)

_CHILDREN: Mapping[int, Mapping[int, int]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
}

_UNREAD: Mapping[int, frozenset[int]] = {_MODEL: frozenset({0, 20})}
"""Fields left out whole: training_info holds graphs that inference never runs.

No field has the number 0, which is what a hole in a file reads as.
"""

_ILLEGAL = frozenset({0})

_LONG = 1 << 64
"""No length: one that needs more than two bytes, or none at all."""

_DATA_FIELDS: Mapping[int, str] = {
    4: "float_data",
    5: "int32_data",
    6: "string_data",
    7: "int64_data",
    9: "raw",
    10: "double_data",
    11: "uint64_data",
}


class WireError(OnnxroofError):
    """The bytes are not a protobuf message; the message says where reading stopped."""

    exit_code = 3


def skeleton(buffer: Buffer) -> tuple[bytes, tuple[Payload, ...]]:
    """The model's bytes without weight payloads, and the payloads left out, in file order.

    Raises:
        WireError: A tag or length runs past the end of its message.
    """
    payloads: list[Payload] = []
    chunks = _strip(buffer, 0, len(buffer), _MODEL, payloads, 0)
    return b"".join(chunks), tuple(payloads)


def _varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The varint at `position` and the position after it."""
    value = shift = 0
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise WireError(f"not a protobuf message: broken number at byte {position}")


def _field_end(buffer: Buffer, wire_type: int, position: int, end: int) -> tuple[int, int]:
    """Where the field's content begins and ends."""
    begin = position
    if wire_type == _BYTES:
        length, begin = _varint(buffer, position, end)
        stop = begin + length
    elif wire_type == _VARINT:
        _, stop = _varint(buffer, position, end)
    elif wire_type == _FIXED32:
        stop = position + 4
    elif wire_type == _FIXED64:
        stop = position + 8
    else:
        raise WireError(f"not an ONNX model: wire type {wire_type} at byte {position}")
    if stop > end:
        raise WireError(
            f"truncated: a field at byte {position} needs {stop - end} bytes more than there are"
        )
    return begin, stop


def message_fields(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, start, content begin, end) of each field of the message at [start, end).

    Raises:
        WireError: A tag or length runs past the end of its message.
    """
    position = start
    while position < end:
        field_start = position
        tag, position = _varint(buffer, position, end)
        begin, position = _field_end(buffer, tag & 7, position, end)
        yield tag >> 3, field_start, begin, position


def _strip(
    buffer: Buffer, start: int, end: int, kind: int, payloads: list[Payload], depth: int
) -> list[bytes | Buffer]:
    """Chunks of the message at [start, end) without payloads; descends only into large children."""
    if depth > _DEEPEST:
        raise WireError(f"not an ONNX model: messages nested deeper than {_DEEPEST}")
    children, unread = _CHILDREN[kind], _UNREAD.get(kind, _ILLEGAL)
    chunks: list[bytes | Buffer] = []
    position = kept_from = start
    while position < end:
        field_start = position
        tag = buffer[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = _varint(buffer, position, end)
        begin, length = position, _LONG
        if tag & 7 == _BYTES and position + 1 < end:  # the usual case, spared two calls
            length, begin = buffer[position], position + 1
            if length >= 0x80:
                high, begin = buffer[begin], begin + 1
                length = length & 0x7F | high << 7 if high < 0x80 else _LONG
        if begin + length <= end:
            position = begin + length
        else:
            begin, position = _field_end(buffer, tag & 7, position, end)
        number = tag >> 3
        if number in unread:
            if not number:
                raise WireError(f"not an ONNX model: zeros at byte {field_start}")
            chunks.append(buffer[kept_from:field_start])
            kept_from = position
            continue
        if position - begin <= LARGEST_KEPT_BYTES or number not in children or tag & 7 != _BYTES:
            continue
        child = children[number]
        read = _strip_tensor if child == _TENSOR else _strip
        inner = read(buffer, begin, position, child, payloads, depth + 1)
        chunks.append(buffer[kept_from:field_start])
        chunks.append(_encode(tag) + _encode(sum(map(len, inner))))
        chunks.extend(inner)
        kept_from = position
    chunks.append(buffer[kept_from:end])
    return chunks


def _strip_tensor(
    buffer: Buffer, start: int, end: int, kind: int, payloads: list[Payload], depth: int
) -> list[bytes | Buffer]:
    """Chunks of a TensorProto without its data fields, when those are large; notes the payload."""
    del kind, depth
    chunks: list[bytes | Buffer] = []
    found: tuple[int, int, str] | None = None
    data_bytes = 0
    position = kept_from = start
    while position < end:
        field_start = position
        tag, position = _varint(buffer, position, end)
        begin, position = _field_end(buffer, tag & 7, position, end)
        encoding = _DATA_FIELDS.get(tag >> 3)
        if encoding is None:
            continue
        chunks.append(buffer[kept_from:field_start])
        kept_from = position
        data_bytes += position - begin
        if found is None:
            found = (begin, position - begin, encoding)
        else:  # unpacked or repeated data: the whole message, to be decoded by protobuf
            found = (start, end - start, "message")
    if found is None or data_bytes <= LARGEST_KEPT_BYTES:
        return [buffer[start:end]]
    chunks.append(buffer[kept_from:end])
    chunks.append(_marker(len(payloads)))
    payloads.append(Payload(None, found[0], found[1], found[2]))
    return chunks


def _encode(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _marker(index: int) -> bytes:
    """An `external_data` field (13) with {key (1): PAYLOAD_KEY, value (2): index}."""
    key, value = PAYLOAD_KEY.encode(), str(index).encode()
    entry = b"\x0a" + _encode(len(key)) + key + b"\x12" + _encode(len(value)) + value
    return b"\x6a" + _encode(len(entry)) + entry
