"""Weight values, for lint alone: read-only views of the bytes where they lie, never copies.

Files are mapped into memory, so reading touches only what is looked at. Values come from the model
file itself or from external data in its folder; a path that leaves the folder, also by a symbolic
link, is refused. What cannot be read (data missing, too short, in an encoding without a view) is
an answer with a reason, not an error: see `WeightsUnavailable`.
"""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.errors import quoted
from onnxroof.graph.types import DType
from onnxroof.graph.wire import encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from numpy.typing import NDArray

    from onnxroof.graph.types import Constant, Payload

    Bits = NDArray[np.unsignedinteger]
    Buffer = bytes | mmap.mmap

CHUNK_ELEMENTS = 1 << 17
"""Elements looked at at once: half a megabyte of fp32 stays in a core's cache."""

_UNSIGNED: Mapping[int, str] = {8: "<u1", 16: "<u2", 32: "<u4", 64: "<u8"}
"""Bits of an element → the unsigned type its bit pattern is seen as."""

_PACKED_FIELDS: Mapping[str, int] = {"float_data": 32, "double_data": 64}
"""Typed protobuf fields whose packed form is the raw form: bits of an element."""

_FIELD_NUMBERS: Mapping[str, int] = {"int32_data": 5, "int64_data": 7, "uint64_data": 11}
"""Typed protobuf fields that hold numbers of variable length, which protobuf has to decode."""


class WeightsUnavailable(Exception):  # noqa: N818 - an answer, not a failure
    """The values of a tensor cannot be read; the message says why. Never leaves the package."""


class WeightReader:
    """Views of the values of a model's constants.

    Use as a context manager, or call `close`; views must not outlive the reader.
    """

    def __init__(self, path: str | None, content: bytes | None = None) -> None:
        """Read from a model file, or from the bytes a model was loaded from.

        Args:
            path: Path of the model file; None for a model from memory.
            content: The model's bytes when there is no file.
        """
        self._path = path
        self._content = content
        self._maps: dict[str, Buffer] = {}

    def __enter__(self) -> WeightReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the files; a map that is still looked at is left to the garbage collector."""
        for buffer in self._maps.values():
            if isinstance(buffer, mmap.mmap):
                try:
                    buffer.close()
                except BufferError:
                    continue
        self._maps.clear()

    def bits(self, constant: Constant) -> Bits:
        """Bit patterns of the stored elements, flat, in row-major order.

        Elements of 8 bits and more are one unsigned integer each; narrower ones come as the bytes
        they are packed in. Of a sparse tensor only the stored elements are seen.

        Raises:
            WeightsUnavailable: The values cannot be read.
        """
        width = constant.dtype.bits
        if width is None:
            raise WeightsUnavailable(f"{constant.dtype.label} values have no fixed size")
        count = math.prod(constant.shape) if constant.nonzeros is None else constant.nonzeros
        payload = constant.payload
        if payload is None:
            return self._kept(constant)
        unsigned = _UNSIGNED.get(width)
        nbytes = constant.dtype.nbytes(count) or 0
        if unsigned is None:
            unsigned, count = "<u1", nbytes
        if payload.encoding not in ("raw", *_PACKED_FIELDS):
            return self._decoded(constant, payload, unsigned, count)
        if payload.encoding != "raw" and _PACKED_FIELDS[payload.encoding] != width:
            raise WeightsUnavailable(f"{constant.dtype.label} values in {payload.encoding}")
        buffer = self._buffer(payload)
        length = nbytes if payload.length_bytes is None else payload.length_bytes
        if length != nbytes:
            raise WeightsUnavailable(f"{length} bytes are stored where its shape needs {nbytes}")
        if payload.offset_bytes + nbytes > len(buffer):
            raise WeightsUnavailable(
                f"its data end at byte {payload.offset_bytes + nbytes}, the file at {len(buffer)}"
            )
        return np.frombuffer(buffer, unsigned, count, payload.offset_bytes)

    def _kept(self, constant: Constant) -> Bits:
        """The bit patterns of a tiny tensor that was kept with the graph."""
        value = constant.value
        if value is None:
            raise WeightsUnavailable(
                f"its {constant.dtype.label} values are not at hand: a type without a decoder, or a"
                " model that was not read from a file"
            )
        unsigned = _UNSIGNED[value.dtype.itemsize * 8]
        bits: Bits = np.ascontiguousarray(value).reshape(-1).view(unsigned)
        return bits

    def _decoded(self, constant: Constant, payload: Payload, unsigned: str, count: int) -> Bits:
        """Values in a form that only protobuf can read: decoded into an array of their own."""
        from google.protobuf.message import DecodeError
        from onnx import TensorProto, numpy_helper

        stop = payload.offset_bytes + (payload.length_bytes or 0)
        content = self._buffer(payload)[payload.offset_bytes : stop]
        try:
            if payload.encoding == "message":
                array = numpy_helper.to_array(TensorProto.FromString(content))
                return np.ascontiguousarray(array).reshape(-1).view(unsigned)
            number = _FIELD_NUMBERS.get(payload.encoding)
            if number is None:
                raise WeightsUnavailable(f"values in {payload.encoding} cannot be viewed")
            tensor = TensorProto.FromString(encoded(number, content))
        except (DecodeError, ValueError, TypeError):
            raise WeightsUnavailable(f"its {payload.encoding} cannot be decoded") from None
        numbers = np.array(getattr(tensor, payload.encoding))
        if numbers.size != count:
            raise WeightsUnavailable(f"{numbers.size} values are stored for {count} elements")
        if constant.dtype is DType.BOOL or not numbers.size:
            return numbers.astype(unsigned)
        return numbers.astype(f"<i{np.dtype(unsigned).itemsize}").view(unsigned)

    def _buffer(self, payload: Payload) -> Buffer:
        name = payload.file
        if name is None and self._content is not None:
            return self._content
        if self._path is None:
            raise WeightsUnavailable(
                "the model was not read from a file, and its bytes are not at hand"
                if name is None
                else "the model came from memory, its data lie in a file"
            )
        path = self._path if name is None else _inside(Path(self._path).parent, name)
        if path not in self._maps:
            self._maps[path] = _mapped(path, name)
        return self._maps[path]


def chunks(bits: Bits) -> Iterator[Bits]:
    """Consecutive parts of a flat array that fit a core's cache."""
    for start in range(0, bits.size, CHUNK_ELEMENTS):
        yield bits[start : start + CHUNK_ELEMENTS]


def _inside(folder: Path, name: str) -> str:
    """The real path of an external data file, which must lie in the model's folder.

    Raises:
        WeightsUnavailable: The path, or a link on it, leaves the folder.
    """
    try:
        root = Path(os.path.realpath(folder))
        path = Path(os.path.realpath(root / name))
    except (OSError, ValueError):
        raise WeightsUnavailable(f"external data path {quoted(name)} cannot be followed") from None
    if not path.is_relative_to(root):
        raise WeightsUnavailable(
            f"external data file {quoted(name)} leads out of the model's folder: refused"
        )
    return str(path)


def _mapped(path: str, name: str | None) -> Buffer:
    what = "the model file" if name is None else f"external data file {quoted(name)}"
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on long names
        raise WeightsUnavailable(f"{what} is missing")
    try:
        with Path(path).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WeightsUnavailable(f"{what} cannot be read: {reason}") from None
