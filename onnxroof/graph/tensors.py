"""TensorProto → `Constant`: type, shape, tiny values, and where the bytes of the rest lie.

External data are never opened here; a path that leaves the model's folder is refused at once.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted
from onnxroof.graph.types import DTYPE_BY_CODE, Constant, DType, Payload, is_countable
from onnxroof.graph.values import decode_numbers
from onnxroof.graph.wire import LARGEST_KEPT_BYTES, PAYLOAD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import onnx
    from numpy.typing import NDArray


class TensorReader:
    """Reads the tensors of one model; notes the external files they name."""

    def __init__(self, payloads: tuple[Payload, ...]) -> None:
        self._payloads = payloads
        self._external: dict[str, None] = {}

    @property
    def external_files(self) -> tuple[str, ...]:
        """Names of the external data files, in order of first use."""
        return tuple(self._external)

    def dense(self, proto: onnx.TensorProto, name: str, origin: str) -> Constant:
        """A dense tensor. Raises InvalidGraphError for an unknown type or a negative size."""
        dtype = DTYPE_BY_CODE.get(proto.data_type)
        if dtype is None:
            dtype = _dtype(proto.data_type, name)
        shape = tuple(proto.dims[:])
        if shape:
            _check_sizes(name, shape)
        stored_bytes = dtype.nbytes(math.prod(shape))
        raw = value = payload = None
        if proto.external_data:
            payload = self._located(proto, name)
        elif stored_bytes is not None and stored_bytes <= LARGEST_KEPT_BYTES:
            raw = proto.raw_data or None
            if raw is None:
                value = _typed_data(proto, dtype, shape)
        return Constant(name, dtype, shape, stored_bytes, raw, value, payload, None, origin)

    def sparse(self, proto: onnx.SparseTensorProto, name: str, origin: str) -> Constant:
        """A sparse tensor: stored bytes are those of its values and its int64 indices."""
        values = self.dense(proto.values, name, origin)
        indices = self.dense(proto.indices, name, origin)
        shape = tuple(proto.dims)
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

    def _located(
        self, proto: onnx.TensorProto, name: str
    ) -> Payload | Callable[[], Payload | None] | None:
        """Where the bytes lie, or how to find out; refuses what is outside the model's folder."""
        first = proto.external_data[0]
        if first.key == PAYLOAD_KEY:
            return self._left_out(first.value)
        location = first.value if first.key == "location" else _location(proto)
        if location not in self._external:
            _refuse_escape(location, name)
            self._external[location] = None
        return partial(self._payload, proto)

    def _left_out(self, index: str) -> Payload | None:
        """What stood where the marker is; None where a file only imitates one."""
        number = _number(index)
        return None if number is None or number >= len(self._payloads) else self._payloads[number]

    def _payload(self, proto: onnx.TensorProto) -> Payload | None:
        """Where the bytes of a tensor lie, read on demand."""
        entries = {entry.key: entry.value for entry in reversed(proto.external_data)}
        if PAYLOAD_KEY in entries:
            return self._left_out(entries[PAYLOAD_KEY])
        offset = _number(entries.get("offset", ""))
        return Payload(_location(proto), offset or 0, _number(entries.get("length", "")))


def _typed_data(
    proto: onnx.TensorProto, dtype: DType, shape: tuple[int, ...]
) -> NDArray[np.generic] | None:
    for field in ("int64_data", "int32_data", "float_data", "double_data", "uint64_data"):
        numbers = getattr(proto, field)
        if len(numbers):
            return decode_numbers(list(numbers), dtype, shape)
    return decode_numbers([], dtype, shape) if 0 in shape else None


def _dtype(code: int, name: str) -> DType:
    dtype = DTYPE_BY_CODE.get(code)
    if dtype is None:
        raise InvalidGraphError(f"tensor {quoted(name)}", f"has an unknown element type ({code})")
    return dtype


def _check_sizes(name: str, shape: tuple[int, ...]) -> None:
    """Refuse sizes that no tensor has."""
    if min(shape, default=0) < 0:
        raise InvalidGraphError(f"tensor {quoted(name)}", f"has a negative dimension: {shape}")
    if not is_countable(shape):
        raise InvalidGraphError(
            f"tensor {quoted(name)}", f"has more than 2^63 elements: {shape!s:.200}"
        )


def _location(proto: onnx.TensorProto) -> str:
    """The data file a tensor names; of several the first, the one that was checked."""
    return next((entry.value for entry in proto.external_data if entry.key == "location"), "")


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
