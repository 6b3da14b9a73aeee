"""Time of multiply-accumulates: tiles, waves, vectors, and the algorithms a runtime can choose.

Every function returns seconds of arithmetic; traffic is counted elsewhere. Rates are operations
per second with a multiply-accumulate counted as two, so `rate / 2` multiply-accumulates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from onnxroof.latency.constants import Constants
    from onnxroof.latency.machine import Machine
    from onnxroof.latency.runtime import Execution
    from onnxroof.latency.work import Product

_TILES = (
    (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32),
)  # fmt: skip
"""Rows and columns of the result that one multiprocessor computes at a time, as GPU libraries
have them; the fastest is taken, as their heuristics do."""

_DIRECT_TILES = ((128, 128), (128, 64), (64, 64))
"""Tiles of implicit-GEMM convolution that heuristics choose: at least 64 output channels wide."""

_TIMED_TILES = (*_DIRECT_TILES, (128, 32), (64, 32), (32, 32), (128, 16))
"""Tiles among which timing finds the best (DeepBench, convolutions of 16 to 48 filters)."""

_WINOGRAD_TILES = ((128, 128), (128, 64), (128, 32), (64, 64), (64, 32), (32, 32))

_SPLIT_K = 256
"""Steps of K below which a sum is not split over idle cores."""

_FFT_TILE = 32
_FFT_LEAST_WINDOW = 25
"""Convolution by Fourier transform works on tiles of 32 × 32 and pays from 5 × 5 windows."""


class Timed(NamedTuple):
    """Seconds of arithmetic, by which algorithm, and elements moved besides operands."""

    seconds: float
    algorithm: str
    extra_elements: int = 0


def product_seconds(
    batch: int, m: int, n: int, k: int, rate: float, machine: Machine, constants: Constants
) -> float:
    """Seconds of `batch` matrix products [M, K] · [K, N]."""
    if machine.is_cpu:
        share, prologue = constants.product_share, constants.tile_prologue
        return _blocked(batch, m, n, k + prologue, rate * share, machine, constants)
    return _tiled(
        batch, m, n, k, rate * constants.product_share, machine.cores, _products(constants)
    )


def _products(constants: Constants) -> _Tiling:
    return _Tiling(_TILES, constants.tile_prologue, constants.operand_load, splits=True)


def _convolutions(tiles: tuple[tuple[int, int], ...], constants: Constants) -> _Tiling:
    return _Tiling(tiles, constants.convolution_prologue, constants.operand_load, splits=False)


def convolution(
    product: Product,
    rate: float,
    machine: Machine,
    execution: Execution,
    constants: Constants,
    *,
    on_matrix_engine: bool = False,
) -> Timed:
    """The fastest algorithm that the runtime has for an ungrouped or grouped convolution.

    Matrix engines take wide tiles only, and libraries have no Winograd kernels for them, since
    half precision loses too much in the transforms.
    """
    if execution.lowers_convolutions:
        return _lowered(product, rate, machine, constants)
    narrow = execution.times_kernels and not on_matrix_engine
    tiles = _TIMED_TILES if narrow else _DIRECT_TILES
    options = [_direct(product, rate, machine, tiles, constants)]
    has_winograd = not on_matrix_engine and is_winograd(product)
    tile = execution.winograd_tile if has_winograd else 0
    if tile and product.channels >= machine.hardware.winograd_channels:
        options.append(_winograd(product, rate, machine, tile, constants))
    if execution.has_fft and _is_fft(product):
        options.append(_fft(product, rate, machine, constants))
    return min(options)


def is_winograd(product: Product) -> bool:
    """Whether Winograd's minimal filtering applies: 3 × 3, stride 1, no dilation, no groups."""
    return (
        product.window == (3, 3)
        and set(product.stride) <= {1}
        and not product.dilated
        and not product.transposed
        and product.batch == 1
        and len(product.pixels) == 2
    )


def _is_fft(product: Product) -> bool:
    return (
        len(product.window) == 2
        and math.prod(product.window) >= _FFT_LEAST_WINDOW
        and max(product.window) < _FFT_TILE
        and set(product.stride) <= {1}
        and not product.dilated
        and not product.transposed
        and product.batch == 1
    )


def _direct(
    product: Product,
    rate: float,
    machine: Machine,
    tiles: tuple[tuple[int, int], ...],
    constants: Constants,
) -> Timed:
    share, prologue = constants.convolution_share, constants.convolution_prologue
    batch, m, n, k = product.batch, product.m, product.n, product.k
    if machine.is_cpu:
        channels = product.channels
        lanes = machine.lanes
        if channels > lanes and channels % lanes:
            k = k * _up(channels, lanes) // channels
        seconds = _blocked(batch, m, n, k + prologue, rate * share, machine, constants)
        return Timed(seconds, "direct")
    tiling = _convolutions(tiles, constants)
    seconds = _tiled(batch, m, n, k, rate * share, machine.cores, tiling)
    return Timed(seconds, "implicit GEMM")


def _winograd(
    product: Product, rate: float, machine: Machine, tile: int, constants: Constants
) -> Timed:
    """(T + 2)² products over channels in place of 9 · T² (Lavin and Gray, 2016).

    GPU libraries transform the filters at every call; runtimes on processors once.
    """
    side = tile + 2
    tiles = product.images * math.prod(-(-size // tile) for size in product.pixels)
    k, n = product.channels, product.n
    rate_here = rate * constants.winograd_share
    prologue = constants.convolution_prologue
    if machine.is_cpu:
        seconds = _blocked(side * side, tiles, n, k + prologue, rate_here, machine, constants)
        touched = side * side * tiles * (k + n)
        seconds += touched * constants.transform_slots * 2 / rate
    else:
        tiling = _convolutions(_WINOGRAD_TILES, constants)
        seconds = _tiled(side * side, tiles, n, k, rate_here, machine.cores, tiling)
    filters = 0 if machine.is_cpu else 2 * side * side * k * n
    return Timed(seconds, f"Winograd F({tile}×{tile})", filters)


def _fft(product: Product, rate: float, machine: Machine, constants: Constants) -> Timed:
    """Complex products per frequency over channels, and the transforms (Mathieu et al., 2014)."""
    steps = [_FFT_TILE - size + 1 for size in product.window]
    tiles = product.images * math.prod(
        -(-size // step) for size, step in zip(product.pixels, steps, strict=True)
    )
    frequencies = _FFT_TILE * (_FFT_TILE // 2 + 1)
    share = rate * constants.convolution_share
    k, n = product.channels, product.n
    per_transform = 5 * _FFT_TILE**2 * math.log2(_FFT_TILE**2) / 2
    transforms = (tiles * (k + n) + k * n) * per_transform
    if machine.is_cpu:
        seconds = 4 * _blocked(frequencies, tiles, n, k, share, machine, constants)
    else:
        tiling = _products(constants)
        seconds = 4 * _tiled(frequencies, tiles, n, k, share, machine.cores, tiling)
    moved = 2 * 2 * frequencies * (tiles * (k + n) + k * n)
    return Timed(seconds + transforms / share, "FFT", moved)


def _lowered(product: Product, rate: float, machine: Machine, constants: Constants) -> Timed:
    """One product an image and group, on the im2col matrix, which is written and read."""
    m = max(product.m // max(product.images, 1), 1)
    once = product_seconds(1, m, product.n, product.k, rate, machine, constants)
    seconds = once * product.images * product.batch
    unrolled = math.prod(product.window) > 1 or not set(product.stride) <= {1}
    moved = 2 * product.m * product.k * product.batch if unrolled else 0
    return Timed(seconds, "im2col", moved)


def depthwise_seconds(
    product: Product, rate: float, machine: Machine, constants: Constants
) -> float:
    """Seconds of a depthwise convolution on the vector engine: no operand is used twice."""
    slots = rate / 2
    if not machine.is_cpu:
        index = (machine.index_rate() or rate) / 2
        return product.macs * (
            constants.depthwise_slots / slots + constants.depthwise_index_slots / index
        )
    groups = _up(product.batch, machine.lanes)
    rows = product.pixels[0] if product.pixels else 1
    tasks = product.images * (groups // machine.lanes) * max(rows, 1)
    idle = max(1.0, machine.cores / tasks)
    macs = product.macs * groups // product.batch
    return macs * constants.depthwise_slots / slots * idle


def serial_seconds(product: Product, rate: float, machine: Machine, constants: Constants) -> float:
    """Seconds of a small convolution lowered and multiplied on one core."""
    shared = 1.0 + constants.parallel_loss * (machine.cores - 1)
    core = rate * shared / 2 / machine.cores * constants.serial_share
    columns = _up(product.n, max(machine.lanes // 2, 1))
    seconds = product.m * columns * (product.k + 20) / core
    if math.prod(product.window) > 1:
        seconds += product.m * product.k * 8 / machine.core_bandwidth
    return seconds


class _Tiling(NamedTuple):
    """How an engine cuts products: tiles to choose from, costs of a tile, sums split or not."""

    tiles: tuple[tuple[int, int], ...]
    prologue: float
    load: float
    splits: bool


def _tiled(batch: int, m: int, n: int, k: int, rate: float, cores: int, tiling: _Tiling) -> float:
    """Whole tiles, at least one wave of them; idle cores take parts of long sums."""
    per_core = rate / 2 / cores
    best = math.inf
    for rows, columns in tiling.tiles:
        count = batch * -(-m // rows) * -(-n // columns)
        parts = 1
        if tiling.splits and count < cores and k >= 2 * _SPLIT_K:
            parts = max(min(cores // count, k // _SPLIT_K), 1)
        waves = max(count * parts / cores, 1.0)
        slots = rows * columns + tiling.load * (rows + columns)
        best = min(best, waves * slots * (k / parts + tiling.prologue))
    return best / per_core


def _blocked(
    batch: int, m: int, n: int, k: float, rate: float, machine: Machine, constants: Constants
) -> float:
    """Whole vectors of results, in blocks that are dealt to the cores."""
    lanes = machine.lanes
    if n >= lanes or n >= m:
        columns, rows = _up(n, lanes) if n > 1 else n, m
    else:
        columns, rows = n, _up(m, lanes)
    tasks = batch * -(-rows // constants.row_block) * -(-columns // constants.column_block)
    idle = -(-tasks // machine.cores) * machine.cores / tasks
    return batch * rows * columns * k * idle / (rate / 2)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
