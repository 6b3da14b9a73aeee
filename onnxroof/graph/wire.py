"""First stage: the protobuf wire format: where each field of a message lies, and what it holds.

A model file is almost all weights, and no count needs them. This reader follows tags and lengths
and copies only what is asked for, so a file opens in the time of its graph. It knows the wire
format and no message of ONNX; field numbers are with those who ask.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from onnxroof.errors import OnnxroofError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Container, Iterator

    Buffer = bytes | memoryview | mmap.mmap
    Span = tuple[int, int]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types: the lower three bits of a tag; above them stands the field's number."""


class WireError(OnnxroofError):
    """The bytes are not a protobuf message; the message says where reading stopped."""

    exit_code = 3


class Source:
    """The bytes of a file and how its texts are read.

    Attributes:
        data: All of it; a slice of it is `bytes`.
        errors: What to do with a text that is not UTF-8, as `str` takes it.
    """

    __slots__ = ("data", "errors")

    def __init__(self, data: bytes | mmap.mmap, errors: str = "strict") -> None:
        self.data = data
        self.errors = errors


class Message:
    """The fields of one message, found but not read; asked for by their numbers.

    A field that may stand once is the last one written, as protobuf has it.

    Attributes:
        source: The bytes it is part of.
        begin: Where it begins there.
        end: Where it ends.
    """

    __slots__ = ("_found", "begin", "end", "source")

    def __init__(  # noqa: C901, PLR0912 - the one loop over all fields of a file
        self,
        source: Source,
        begin: int,
        end: int,
        fields: Container[int] | None = None,
        runs: Container[int] = (),
    ) -> None:
        """Find the fields, or those of some numbers: others must not cost memory.

        Args:
            source: The bytes the message is part of.
            begin: Where it begins there.
            end: Where it ends.
            fields: Numbers of the fields to find; None for all.
            runs: Numbers of further fields with lengths, of which all that stand in a row, tags
                included, are found as one: a message in itself, read when it is needed.

        Raises:
            WireError: A tag or length runs past the end.
        """
        self.source = source
        self.begin = begin
        self.end = end
        self._found: dict[int, list[Span]] = {}
        found, data = self._found, source.data
        position = begin
        try:
            while position < end:
                first, tag = position, data[position]
                if 8 <= tag < 0x80 and tag & 7 == BYTES:  # nearly always, and many in a row
                    spans = None
                    if fields is None or tag >> 3 in fields:
                        spans = found.setdefault(tag, [])
                    while position < end and data[position] == tag:
                        size, start = data[position + 1], position + 2
                        if size > 0x7F:
                            high = data[start]
                            if high > 0x7F:
                                size, start = varint(data, position + 1, end)
                            else:
                                size, start = size + (high << 7) - 0x80, start + 1
                        position = start + size
                        if spans is not None:
                            spans.append((start, position))
                    if spans is None and tag >> 3 in runs:
                        found.setdefault(tag, []).append((first, position))
                    continue
                tag, start = varint(data, position, end)
                if tag < 8:
                    raise WireError(f"not an ONNX model: zeros at byte {position}")
                span = _, position = field_end(data, tag & 7, start, end)
                if fields is None or tag >> 3 in fields:
                    found.setdefault(tag, []).append(span)
                elif tag >> 3 in runs:
                    found.setdefault(tag, []).append((first, position))
        except IndexError:
            position = len(data) + 1
        if position > end:
            raise truncated(begin, position - end)

    def has(self, field: int) -> bool:
        """Whether the field was written as a number, with a length or in 32 bits."""
        tag = field << 3
        found = self._found
        return tag in found or tag | BYTES in found or tag | FIXED32 in found

    def spans(self, field: int) -> list[Span]:
        """Where the contents of a field with a length lie."""
        return self._found.get(field << 3 | BYTES, [])

    def pieces(self, fields: Container[int]) -> list[tuple[int, int, int]]:
        """(field, begin, end) of all that was written for some fields, in whatever form."""
        return [
            (tag >> 3, *span)
            for tag, spans in self._found.items()
            if tag >> 3 in fields
            for span in spans
        ]

    def messages(self, field: int) -> list[Message]:
        """The messages in a repeated field."""
        return [Message(self.source, *span) for span in self.spans(field)]

    def span(self, field: int) -> Span | None:
        """Where the message in a field that may stand once lies; None where it does not stand.

        Raises:
            WireError: It stands several times: protobuf would merge what no writer splits.
        """
        spans = self.spans(field)
        if len(spans) > 1:
            raise WireError(f"not an ONNX model: a part stands a second time at byte {spans[1][0]}")
        return spans[0] if spans else None

    def message(self, field: int) -> Message | None:
        """The message in a field that may stand once; None where it does not stand."""
        span = self.span(field)
        return None if span is None else Message(self.source, *span)

    def raws(self, field: int) -> list[bytes]:
        """The contents of a field with a length."""
        data = self.source.data
        return [data[start:stop] for start, stop in self.spans(field)]

    def raw(self, field: int) -> bytes:
        """The content of a field with a length; empty where it does not stand."""
        spans = self.spans(field)
        return self.source.data[spans[-1][0] : spans[-1][1]] if spans else b""

    def texts(self, field: int) -> tuple[str, ...]:
        """The texts in a repeated field."""
        errors = self.source.errors
        return tuple([str(raw, "utf-8", errors) for raw in self.raws(field)])

    def text(self, field: int) -> str:
        """The text in a field; "" where it does not stand."""
        return str(self.raw(field), "utf-8", self.source.errors)

    def integers(self, field: int) -> tuple[int, ...]:
        """The signed integers in a repeated field, written one by one or packed."""
        data = self.source.data
        numbers: list[int] = []
        for position, stop in sorted((*self._found.get(field << 3, ()), *self.spans(field))):
            written = data[position:stop]
            if written.isascii():  # each byte is a number
                numbers.extend(written)
                continue
            while position < stop:
                number, position = varint(data, position, stop)  # noqa: PLW2901
                numbers.append(signed(number))
        return tuple(numbers)

    def integer(self, field: int) -> int:
        """The signed integer in a field; 0 where it does not stand."""
        spans = self._found.get(field << 3)
        return signed(varint(self.source.data, *spans[-1])[0]) if spans else 0

    def floats(self, field: int, layout: str = "f") -> tuple[float, ...]:
        """The numbers of fixed width in a repeated field, written one by one or packed.

        Args:
            field: The field's number.
            layout: "f" for 32 bits, "d" for 64.
        """
        wire_type = FIXED32 if layout == "f" else FIXED64
        data, width = self.source.data, struct.calcsize(layout)
        numbers: list[float] = []
        written = *self._found.get(field << 3 | wire_type, ()), *self.spans(field)
        for start, stop in sorted(written):
            count, rest = divmod(stop - start, width)
            if rest:
                raise truncated(start, width - rest)
            numbers.extend(struct.unpack(f"<{count}{layout}", data[start:stop]))
        return tuple(numbers)


def signed(number: int) -> int:
    """A 64-bit pattern as the signed integer it stands for."""
    return number - (1 << 64) if number >> 63 else number


def varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """The number of 64 bits at `position` and the position after it."""
    if position + 1 < end:  # one or two bytes: nearly always
        low, high = buffer[position], buffer[position + 1]
        if low < 0x80:
            return low, position + 1
        if high < 0x80:
            return low + (high << 7) - 0x80, position + 2
    value = shift = 0
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise WireError(f"not a protobuf message: broken number at byte {position}")


def field_end(buffer: Buffer, wire_type: int, position: int, end: int) -> tuple[int, int]:
    """Where the field's content begins and ends."""
    begin = position
    if wire_type == BYTES:
        length, begin = varint(buffer, position, end)
        stop = begin + length
    elif wire_type == VARINT:
        _, stop = varint(buffer, position, end)
    elif wire_type == FIXED32:
        stop = position + 4
    elif wire_type == FIXED64:
        stop = position + 8
    else:
        raise WireError(f"not an ONNX model: wire type {wire_type} at byte {position}")
    if stop > end:
        raise truncated(position, stop - end)
    return begin, stop


def message_fields(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, start, content begin, end) of each field of the message at [start, end).

    Raises:
        WireError: A tag or length runs past the end of its message.
    """
    position = start
    while position < end:
        field_start = position
        tag, position = varint(buffer, position, end)
        begin, position = field_end(buffer, tag & 7, position, end)
        yield tag >> 3, field_start, begin, position


def truncated(position: int, missing: int) -> WireError:
    """The error for a field that needs more bytes than its message has."""
    return WireError(
        f"truncated: a field at byte {position} needs {missing} bytes more than there are; was the"
        " file copied whole?"
    )


def encoded(number: int, content: bytes) -> bytes:
    """A field with a length, as it is written."""
    header = bytearray([number << 3 | BYTES])
    length = len(content)
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header) + content
