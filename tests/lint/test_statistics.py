"""Counts of special values, at the limits of every format."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxroof.graph.types import DType
from onnxroof.graph.weights import CHUNK_ELEMENTS
from onnxroof.lint.channels import by_channel, equal_channels, zero_channels
from onnxroof.lint.statistics import WeightStatistics, measure

if TYPE_CHECKING:
    from pathlib import Path

NORMAL = float(np.finfo(np.float32).tiny)  # 2^-126, the smallest normal number
HALF_STEP = 2.0**-25  # half of fp16's smallest subnormal number: rounds to even, to zero

ABOVE_HALF_STEP = float(np.nextafter(np.float32(HALF_STEP), np.float32(1)))


def of(values: list[float], dtype: type = np.float32) -> WeightStatistics:
    array = np.array(values, dtype)
    kind = {np.float32: DType.FLOAT, np.float64: DType.DOUBLE, np.float16: DType.FLOAT16}[dtype]
    return measure(array.view(f"u{array.itemsize}"), kind)


def test_zeros_and_the_smallest_normal_number_are_not_subnormal() -> None:
    below = float(np.nextafter(np.float32(NORMAL), np.float32(0)))
    seen = of([0.0, -0.0, NORMAL, -NORMAL, below, -below, 1e-45, 1.0])
    assert (seen.zeros, seen.subnormals) == (2, 3)


def test_nan_and_infinity_are_told_apart() -> None:
    seen = of([np.nan, -np.nan, np.inf, -np.inf, np.inf, 3.4e38])
    assert (seen.nans, seen.infinities) == (2, 3)


def test_fp16_limits_are_those_of_rounding() -> None:
    with np.errstate(over="ignore"):
        values = np.array(
            [65504, 65519.996, 65520, -1e30, HALF_STEP, ABOVE_HALF_STEP, 1e-20, 0, 1], np.float32
        )
        half = values.astype(np.float16)
    seen = measure(values.view(np.uint32), DType.FLOAT)
    assert seen.fp16_overflows == np.isinf(half).sum() == 2
    assert seen.fp16_underflows == ((half == 0) & (values != 0)).sum() == 2


def test_tiny_normal_numbers_are_counted_apart() -> None:
    seen = of([9e-31, -1e-37, 1.1e-30, 1e-40])
    assert (seen.tiny, seen.subnormals) == (2, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_random_bit_patterns_agree_with_numpy(dtype: type) -> None:
    width = np.dtype(dtype).itemsize
    rng = np.random.default_rng(7)
    bits = np.frombuffer(rng.bytes(5000 * width), f"u{width}")
    values = bits.view(dtype)
    smallest = np.finfo(dtype).tiny
    kind = {2: DType.FLOAT16, 4: DType.FLOAT, 8: DType.DOUBLE}[width]
    seen = measure(bits, kind)
    assert seen.nans == np.isnan(values).sum()
    assert seen.infinities == np.isinf(values).sum()
    assert seen.subnormals == ((np.abs(values) < smallest) & (values != 0)).sum()


@pytest.mark.parametrize("bits", [0x0001, 0x007F])
def test_bfloat16_has_the_exponents_of_fp32(bits: int) -> None:
    # 0x0080 is 2^-126; everything below, but zero, is subnormal
    seen = measure(np.array([bits, 0x0080, 0x0000, 0x7F80, 0x7FC0], np.uint16), DType.BFLOAT16)
    assert (seen.subnormals, seen.zeros, seen.infinities, seen.nans) == (1, 1, 1, 1)


def test_one_odd_value_in_the_last_chunk_is_found() -> None:
    values = np.full(CHUNK_ELEMENTS * 2 + 5, 0.1, np.float32)
    values[-1] = 1e-40
    assert measure(values.view(np.uint32), DType.FLOAT).subnormals == 1


def test_integers_have_zeros_only() -> None:
    seen = measure(np.array([0, 1, 255, 0], np.uint8), DType.INT8)
    assert (seen.zeros, seen.subnormals, seen.nans) == (2, 0, 0)


def test_an_empty_tensor_has_no_share_of_anything() -> None:
    seen = of([])
    assert (seen.elements, seen.share(seen.zeros)) == (0, 0.0)


@pytest.mark.parametrize("axis", [0, 1])
def test_zero_and_equal_channels_are_found_along_either_axis(axis: int) -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((6, 8, 3, 3)).astype(np.float32)
    channel = [weights[i] if axis == 0 else weights[:, i] for i in range(6)]
    channel[1][...] = -0.0
    channel[4][...] = channel[2]
    seen = by_channel(weights.ravel().view(np.uint32), weights.shape, axis)
    assert zero_channels(seen, DType.FLOAT) == (1,)
    assert equal_channels(seen, (1,)) == ((2, 4),)


def test_channels_that_agree_in_the_samples_only_are_not_equal() -> None:
    weights = np.full((2, 1000), 0.5, np.float32)
    weights[1, 1] = 0.25  # not among the sixteen places that are compared first
    assert equal_channels(weights.view(np.uint32), ()) == ()


@pytest.mark.slow
def test_half_a_gigabyte_is_searched_in_under_a_second(tmp_path: Path) -> None:
    values = np.lib.format.open_memmap(
        tmp_path / "w.npy", mode="w+", dtype=np.float32, shape=(125_000_000,)
    )
    values[:] = 0.1
    values[77_777_777] = np.nan
    values[100_000_000:100_000_090] = 1e-40
    started = time.perf_counter()
    seen = measure(values.view(np.uint32), DType.FLOAT)
    assert time.perf_counter() - started < 1.0
    assert (seen.nans, seen.subnormals) == (1, 90)
