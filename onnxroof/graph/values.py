"""The elements of the tiny tensors that stay in the graph, as numpy arrays.

Only shape constants, scales and flags pass here: everything above a kilobyte was left in the file.
Types numpy does not know (bfloat16, 8-bit floats, packed 4-bit) have no value; nothing that sizes
a tensor has such a type.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

NUMPY_TYPE: Mapping[DType, type[np.generic]] = {
    DType.FLOAT: np.float32,
    DType.DOUBLE: np.float64,
    DType.FLOAT16: np.float16,
    DType.INT8: np.int8,
    DType.INT16: np.int16,
    DType.INT32: np.int32,
    DType.INT64: np.int64,
    DType.UINT8: np.uint8,
    DType.UINT16: np.uint16,
    DType.UINT32: np.uint32,
    DType.UINT64: np.uint64,
    DType.BOOL: np.bool_,
}
"""Element types whose values are evaluated."""

TYPE_OF_NUMPY: Mapping[type[np.generic], DType] = {
    numpy_type: dtype for dtype, numpy_type in NUMPY_TYPE.items()
}
"""The other way round."""


def decode_raw(data: bytes, dtype: DType, shape: tuple[int, ...]) -> NDArray[np.generic] | None:
    """The elements stored as little-endian bytes.

    None when the type has no numpy equivalent or the data do not fill the shape.
    """
    target = NUMPY_TYPE.get(dtype)
    if target is None:
        return None
    stored = np.dtype(target).newbyteorder("<")
    if len(data) != stored.itemsize * math.prod(shape):
        return None
    return np.frombuffer(data, dtype=stored).astype(target).reshape(shape)


def decode_numbers(
    numbers: list[int] | list[float], dtype: DType, shape: tuple[int, ...]
) -> NDArray[np.generic] | None:
    """The elements stored one by one in a typed field; fp16 comes as its bit pattern.

    None when the type has no numpy equivalent, cannot hold a number or the shape is not filled.
    """
    target = NUMPY_TYPE.get(dtype)
    if target is None or len(numbers) != math.prod(shape):
        return None
    try:
        if dtype is DType.FLOAT16:
            return np.array(numbers, dtype=np.uint16).view(np.float16).reshape(shape)
        return np.array(numbers, dtype=target).reshape(shape)
    except (OverflowError, ValueError):
        return None
