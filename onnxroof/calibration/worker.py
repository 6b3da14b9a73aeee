"""The part of `hw bench` that runs in a process of its own, with a number of threads.

A BLAS library fixes its threads when it is loaded, so each number of threads needs a process.
Run as `python -m onnxroof.calibration.worker REQUEST`: a JSON request in, one JSON line a
measurement out.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from onnxroof.calibration.sampling import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from onnxroof.calibration.sampling import Measurement

    Job = Callable[[], object]
    Array = NDArray[np.float32]

TYPES: dict[str, type[np.floating]] = {"fp32": np.float32, "fp64": np.float64}
SMALL_PRODUCT = 128
"""Rows of a product so small that starting the threads shows."""

CALLS = 1000
"""Tiny calls in one sample of the launch floor."""

_SAMPLE_SECONDS = 3e-3
"""Aim for a run: long against the clock, short against a scheduler's time slice."""

_LARGEST_PRODUCT = 4096

_CALL_BYTES = 2**24
"""Bytes of an array that one call goes through, the same small array again and again."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure.

    Attributes:
        threads: Threads to use; the BLAS library was told so by the environment.
        working_sets: Bytes of each bandwidth measurement, all threads together.
        far_bytes: The working set in main memory.
        seconds: Time for one measurement.
    """

    threads: int
    working_sets: tuple[int, ...]
    far_bytes: int
    seconds: float

    def count(self) -> int:
        """How many measurements it makes."""
        return len(TYPES) + 2 + len(self.working_sets) + len(_FAR_KERNELS)


def run(request: Request) -> Iterator[tuple[str, Measurement]]:
    """Every measurement with its name, such as fp32, small, call, scale 49152 or read."""
    for name, dtype in TYPES.items():
        yield name, _product_rate(dtype, request.seconds)
    yield "small", _product(np.float32, SMALL_PRODUCT, request.seconds / 2)
    yield "call", _call_rate(request.seconds / 2)
    with ThreadPoolExecutor(request.threads) as pool:
        for nbytes in request.working_sets:
            yield f"scale {nbytes}", _bandwidth("scale", nbytes, request, pool)
        for kernel in _FAR_KERNELS:
            yield kernel, _bandwidth(kernel, request.far_bytes, request, pool)


def _product_rate(dtype: type[np.floating], seconds: float) -> Measurement:
    """FLOP/s of square products large enough for a run of a few milliseconds."""
    n = 256
    while n < _LARGEST_PRODUCT and _fastest_of(_product_job(dtype, n)) < _SAMPLE_SECONDS / 2:
        n *= 2
    return _product(dtype, n, seconds)


def _fastest_of(job: Job, runs: int = 5) -> float:
    """Seconds of the fastest of a few runs."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - start)
    return best


def _product(dtype: type[np.floating], n: int, seconds: float) -> Measurement:
    return measure(_product_job(dtype, n), 2.0 * n**3, seconds)


def _product_job(dtype: type[np.floating], n: int) -> Job:
    left, right, out = np.ones((n, n), dtype), np.ones((n, n), dtype), np.empty((n, n), dtype)
    return lambda: np.matmul(left, right, out=out)


def _call_rate(seconds: float) -> Measurement:
    """Calls a second of an operation on one element: the least a library call takes."""
    one, out = np.ones(1, np.float32), np.ones(1, np.float32)

    def calls() -> None:
        for _ in range(CALLS):
            np.add(one, one, out)

    return measure(calls, CALLS, seconds)


# -- bandwidth -------------------------------------------------------------------------------


def _scale(source: Array, target: Array) -> None:
    np.multiply(source, _FACTOR, out=target)


def _copy(source: Array, target: Array) -> None:
    np.copyto(target, source)


def _read(source: Array, _target: Array) -> None:
    np.add.reduce(source, axis=None)


_FACTOR = np.float32(0.999)
_KERNELS: dict[str, tuple[Callable[[Array, Array], None], int]] = {
    "scale": (_scale, 2), "copy": (_copy, 2), "read": (_read, 1),
}  # fmt: skip
"""What is done with two arrays, and how many of them it moves, as STREAM counts."""

_FAR_KERNELS = ("scale", "copy", "read")


def _bandwidth(kernel: str, nbytes: int, request: Request, pool: ThreadPoolExecutor) -> Measurement:
    """Bytes a second on a working set, split over the threads.

    Small sets are gone through many times in one call, by a repeated axis of stride 0, so that
    calling costs little. The repeated axis stays the shorter one: numpy runs along the longer.
    """
    function, moved = _KERNELS[kernel]
    arrays = 2 if moved == 2 else 1
    length = max(nbytes // (arrays * 4 * request.threads), 64)
    repeats = max(min(_CALL_BYTES // (length * 4), length // 2), 1)
    parts = [_pair(length, repeats) for _ in range(request.threads)]
    once = float(length * 4 * moved * request.threads * repeats)

    def go_through(part: tuple[Array, Array], times: int) -> None:
        for _ in range(times):
            function(*part)

    def job(times: int) -> Job:
        if request.threads == 1:
            return lambda: go_through(parts[0], times)
        return lambda: list(pool.map(go_through, parts, [times] * request.threads))

    times = 1
    while _fastest_of(job(times)) < _SAMPLE_SECONDS / 2:
        times *= 2
    return measure(job(times), once * times, request.seconds)


def _pair(length: int, repeats: int) -> tuple[Array, Array]:
    """Source and target, half a page apart modulo pages.

    Processors take a load for dependent on a recent store to the same place of another page; at
    equal offsets a small set would measure that.
    """
    page, line = 1024, 16
    apart = -(-length // page) * page + page // 2
    values = np.ones(apart + length + line, np.float32)
    first = -(values.ctypes.data // 4) % line
    source = values[first : first + length]
    target = values[first + apart : first + apart + length]
    return _repeated(source, repeats), _repeated(target, repeats)


def _repeated(values: Array, repeats: int) -> Array:
    return as_strided(values, (repeats, values.size), (0, values.itemsize))


def main() -> None:
    """Read the request, measure, write."""
    given = json.loads(sys.argv[1])
    request = Request(**{**given, "working_sets": tuple(given["working_sets"])})
    for name, found in run(request):
        sys.stdout.write(json.dumps({"name": name, **asdict(found)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
