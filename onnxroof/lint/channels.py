"""Channels of a weight that are zero throughout, or equal to another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.graph.weights import CHUNK_ELEMENTS
from onnxroof.lint.statistics import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.graph.types import DType
    from onnxroof.graph.weights import Bits

_SAMPLES = 16
"""Elements of a channel compared before whole channels are."""

SHORTEST = 4
"""Channels with fewer elements are equal by chance."""


def by_channel(bits: Bits, shape: tuple[int, ...], axis: int) -> Bits:
    """A view [channels, elements of a channel] of a weight, axis 0 or 1 being the channels'."""
    if axis == 0:
        return bits.reshape(shape[0], -1)
    return np.swapaxes(bits.reshape(shape[0], shape[1], -1), 0, 1).reshape(shape[1], -1)


def zero_channels(channels: Bits, dtype: DType) -> tuple[int, ...]:
    """Indices of the channels that hold nothing but zeros."""
    layout = FORMATS.get(dtype)
    mask = None if layout is None else channels.dtype.type(layout.magnitude_mask)
    length = channels.shape[1]
    alive = np.zeros(channels.shape[0], bool)
    step = max(CHUNK_ELEMENTS // max(channels.shape[0], 1), 1)
    for start in range(0, length, step):
        part = channels[:, start : start + step]
        alive |= (part & mask).any(axis=1) if mask is not None else part.any(axis=1)
        if alive.all():
            return ()
    return tuple(np.flatnonzero(~alive).tolist()) if length else ()


def equal_channels(channels: Bits, zero: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of two or more channels, none of them zero, with the same elements.

    A few elements of every channel are compared first; only channels that agree in them are
    compared as a whole.
    """
    count, length = channels.shape
    if length < SHORTEST or count < 2:
        return ()
    places = np.unique(np.linspace(0, length - 1, _SAMPLES).astype(np.int64))
    sample = np.ascontiguousarray(channels[:, places])
    groups: dict[bytes, list[int]] = {}
    for index, row in enumerate(sample):
        groups.setdefault(row.tobytes(), []).append(index)
    skip = set(zero)
    return tuple(
        same
        for group in groups.values()
        if len(group) > 1
        for same in _equal([index for index in group if index not in skip], channels)
    )


def _equal(candidates: list[int], channels: Bits) -> Iterator[tuple[int, ...]]:
    groups: dict[bytes, list[int]] = {}
    for index in candidates:
        groups.setdefault(channels[index].tobytes(), []).append(index)
    yield from (tuple(group) for group in groups.values() if len(group) > 1)


def channel_length(shape: tuple[int, ...], axis: int) -> int:
    """Elements of one channel."""
    return math.prod(shape) // shape[axis] if shape[axis] else 0
