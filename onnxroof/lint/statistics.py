"""One pass over a tensor's values: what the weight rules want to know, counted exactly.

Works on bit patterns. With the sign bit cleared, floating-point numbers of one format are ordered
as their bits are, so zeros, subnormal numbers, infinities, NaNs and whatever a narrower format
cannot hold are ranges of unsigned integers. A chunk is first asked for its largest and smallest
magnitude, and only counted where these say that there is something to count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.graph.types import DType
from onnxroof.graph.weights import CHUNK_ELEMENTS, chunks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.graph.weights import Bits

TINY = 1e-30
"""Below this magnitude a product with a small activation is likely to be subnormal in fp32."""

FP16_OVERFLOW = 65520.0
"""The smallest magnitude that rounds to infinity in fp16: halfway from 65504 to 65536."""

FP16_UNDERFLOW = 2.0**-25
"""The largest magnitude that rounds to zero in fp16: half of the smallest subnormal number."""


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format with sign, exponent and mantissa.

    `has_infinity` is False where the largest exponent also holds numbers, as in fp8e4m3fn.
    """

    bits: int
    mantissa_bits: int
    has_infinity: bool = True

    @property
    def magnitude_mask(self) -> int:
        """All bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def smallest_normal(self) -> int:
        """Bit pattern of the smallest normal number."""
        return 1 << self.mantissa_bits

    @property
    def infinity(self) -> int:
        """Bit pattern of infinity; what is above is NaN."""
        return self.magnitude_mask >> self.mantissa_bits << self.mantissa_bits


FORMATS: Mapping[DType, FloatFormat] = {
    DType.FLOAT: FloatFormat(32, 23),
    DType.DOUBLE: FloatFormat(64, 52),
    DType.FLOAT16: FloatFormat(16, 10),
    DType.BFLOAT16: FloatFormat(16, 7),
    DType.FLOAT8E5M2: FloatFormat(8, 2),
}
"""Element types that have subnormal numbers, infinities and NaNs in the IEEE 754 way."""


@dataclass(frozen=True, slots=True)
class WeightStatistics:
    """What one tensor's values are like.

    Attributes:
        elements: Stored elements; bytes for types narrower than 8 bits.
        zeros: Elements that are exactly zero, of either sign.
        subnormals: Nonzero elements below the smallest normal number of their type.
        tiny: Normal elements with a magnitude below `TINY`.
        nans: Elements that are not a number.
        infinities: Infinite elements.
        fp16_overflows: Finite elements that are infinite in fp16.
        fp16_underflows: Nonzero elements that are zero in fp16.
    """

    elements: int
    zeros: int
    subnormals: int = 0
    tiny: int = 0
    nans: int = 0
    infinities: int = 0
    fp16_overflows: int = 0
    fp16_underflows: int = 0

    def share(self, count: int) -> float:
        """A count as a share of the elements; 0 for an empty tensor."""
        return count / self.elements if self.elements else 0.0


def measure(bits: Bits, dtype: DType) -> WeightStatistics:
    """Count over all elements in one pass, chunk by chunk.

    Args:
        bits: Bit patterns of the elements, flat.
        dtype: Their type; zeros alone are counted for one that is not in `FORMATS`.
    """
    layout = FORMATS.get(dtype)
    if layout is None:
        zeros = sum(int(part.size - np.count_nonzero(part)) for part in chunks(bits))
        return WeightStatistics(int(bits.size), zeros)
    counter = _Counter(layout, bits)
    for part in chunks(bits):
        counter.add(part)
    return counter.statistics(int(bits.size))


class _Counter:
    """Counts so far, and the format's limits as bit patterns."""

    def __init__(self, layout: FloatFormat, bits: Bits) -> None:
        kind = bits.dtype.type
        self._mask = kind(layout.magnitude_mask)
        self._buffer: Bits = np.empty(min(CHUNK_ELEMENTS, max(bits.size, 1)), bits.dtype)
        self._normal = kind(layout.smallest_normal)
        self._infinity = kind(layout.infinity)
        is_wider = layout.bits > 16 or layout.mantissa_bits < 10
        self._overflow = kind(_first_at_least(FP16_OVERFLOW, layout) if is_wider else 0)
        self._underflow = kind(_first_at_least(FP16_UNDERFLOW, layout, above=True))
        self._tiny = kind(max(_first_at_least(TINY, layout), layout.smallest_normal))
        self._watch_below = max(self._underflow, self._normal, self._tiny)
        self._watch_above = self._overflow or self._infinity
        self._is_wider = is_wider
        self.zeros = self.below_normal = self.below_tiny = self.below_underflow = 0
        self.nans = self.from_infinity = self.from_overflow = 0

    def add(self, part: Bits) -> None:
        """Count one chunk."""
        magnitudes = self._buffer[: part.size]
        np.bitwise_and(part, self._mask, out=magnitudes)
        if magnitudes.min() < self._watch_below:
            self.zeros += int(part.size - np.count_nonzero(magnitudes))
            self.below_normal += int(np.count_nonzero(magnitudes < self._normal))
            self.below_tiny += int(np.count_nonzero(magnitudes < self._tiny))
            self.below_underflow += int(np.count_nonzero(magnitudes < self._underflow))
        if magnitudes.max() >= self._watch_above:
            self.nans += int(np.count_nonzero(magnitudes > self._infinity))
            self.from_infinity += int(np.count_nonzero(magnitudes >= self._infinity))
            self.from_overflow += int(np.count_nonzero(magnitudes >= self._watch_above))

    def statistics(self, elements: int) -> WeightStatistics:
        """The counts as ranges between the limits."""
        is_wider = self._is_wider
        return WeightStatistics(
            elements=elements,
            zeros=self.zeros,
            subnormals=self.below_normal - self.zeros,
            tiny=self.below_tiny - self.below_normal,
            nans=self.nans,
            infinities=self.from_infinity - self.nans,
            fp16_overflows=self.from_overflow - self.from_infinity if is_wider else 0,
            fp16_underflows=self.below_underflow - self.zeros if is_wider else 0,
        )


def _first_at_least(value: float, layout: FloatFormat, *, above: bool = False) -> int:
    """Bit pattern of the smallest number of the format that is at least (or above) the value.

    Pattern p stands for (1 + m / 2^M) · 2^(e − bias), or below the normal numbers for
    m / 2^M · 2^(1 − bias), with m the mantissa, M its bits, e the exponent.
    """
    exponent_bits = layout.bits - 1 - layout.mantissa_bits
    bias = (1 << (exponent_bits - 1)) - 1
    _, power = math.frexp(value)
    exponent = max(power - 1, 1 - bias)
    if exponent > bias:
        return layout.infinity
    steps = value / 2.0 ** (exponent - layout.mantissa_bits)
    ceiling = math.floor(steps) + 1 if above else math.ceil(steps)
    return ((exponent + bias - 1) << layout.mantissa_bits) + ceiling
