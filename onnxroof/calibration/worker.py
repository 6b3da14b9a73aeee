"""The part of `hw bench` that runs in a process of its own, with a number of threads.

A BLAS library fixes its threads when it is loaded, so each number of them needs a process.
Run as `python -m onnxroof.calibration.worker REQUEST`: a JSON request in, one JSON line a
measurement out.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from onnxroof.calibration.sampling import Run, measure, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from onnxroof.calibration.sampling import Measurement

    Job = Callable[[], object]
    Array = NDArray[np.float32]
    Pair = tuple[Array, Array]

Part = TypeVar("Part")

TYPES: dict[str, type[np.floating]] = {"fp32": np.float32, "fp64": np.float64}
SMALL_PRODUCT = 128
"""Rows of a product so small that starting the threads shows."""

CALLS = 1000
"""Tiny calls in one sample of the launch floor."""

_SAMPLE_SECONDS = 3e-3
"""Aim for a run: long against the clock, short against a scheduler's time slice."""

_PRODUCT, _LARGEST_PRODUCT = 384, 4096

_SHARED_PATIENCE = 3
"""A product that a library shares over its threads needs all cores calm at once, so longer."""

_LATEST = 0.25
"""How much later than the first the last thread may start, over the time of a run."""

_CALL_BYTES = 2**24
"""Bytes of an array that one call goes through, the same small array again and again."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure.

    Attributes:
        threads: Threads to use.
        working_sets: Bytes of each bandwidth measurement, all threads together.
        far_bytes: The working set in main memory.
        seconds: Time for one measurement.
        places: Hardware threads to go through memory on, one a thread; () leaves the choice to
            the system, which may put two threads on one core.
        blas_threads: Threads the BLAS library was told to use, by the environment.
    """

    threads: int
    working_sets: tuple[int, ...]
    far_bytes: int
    seconds: float
    places: tuple[int, ...] = ()
    blas_threads: int = 1

    def count(self) -> int:
        """How many measurements it makes."""
        if self.blas_threads > 1:
            return 2
        alone = 2 if self.threads == 1 else 0
        return len(TYPES) + alone + len(self.working_sets) + len(_FAR_KERNELS)


def run(request: Request) -> Iterator[tuple[str, Measurement]]:
    """Every measurement with its name, such as fp32, small, call, scale 49152 or read.

    With one BLAS thread, every thread of the crew multiplies and moves arrays of its own; with
    several, one product after the other is left to the library's own threads.
    """
    seconds = request.seconds
    if request.blas_threads > 1:
        size = _shared_size(np.float32)
        yield "product", _shared_product(np.float32, size, seconds * _SHARED_PATIENCE)
        yield "small", _shared_product(np.float32, SMALL_PRODUCT, seconds)
        return
    with _Crew(request) as crew:
        for name, dtype in TYPES.items():
            yield name, _products(dtype, request, crew)
        if request.threads == 1:
            yield "small", _shared_product(np.float32, SMALL_PRODUCT, seconds)
            yield "call", _call_rate(seconds)
        for nbytes in request.working_sets:
            yield f"scale {nbytes}", _bandwidth("scale", nbytes, request, crew)
        for kernel in _FAR_KERNELS:
            yield kernel, _bandwidth(kernel, request.far_bytes, request, crew)


def _products(dtype: type[np.floating], request: Request, crew: _Crew) -> Measurement:
    """FLOP/s of square products, each thread with its own."""
    jobs = [_product_job(dtype, _PRODUCT) for _ in range(request.threads)]
    return measure(
        lambda: crew.do(lambda job: job(), jobs), 2.0 * _PRODUCT**3 * len(jobs), request.seconds
    )


def _shared_size(dtype: type[np.floating]) -> int:
    """Rows of a square product that takes the library's threads a few milliseconds."""
    n = _PRODUCT
    while n < _LARGEST_PRODUCT and _fastest_of(_product_job(dtype, n)) < _SAMPLE_SECONDS / 2:
        n *= 2
    return n


def _fastest_of(job: Job, runs: int = 5) -> float:
    """Seconds of the fastest of a few runs."""
    return min(timed(job).seconds for _ in range(runs))


def _shared_product(dtype: type[np.floating], n: int, seconds: float) -> Measurement:
    job = _product_job(dtype, n)
    return measure(lambda: timed(job), 2.0 * n**3, seconds)


def _product_job(dtype: type[np.floating], n: int) -> Job:
    left, right, out = np.ones((n, n), dtype), np.ones((n, n), dtype), np.empty((n, n), dtype)
    return lambda: np.matmul(left, right, out=out)


def _call_rate(seconds: float) -> Measurement:
    """Calls a second of an operation on one element: the least a library call takes."""
    one, out = np.ones(1, np.float32), np.ones(1, np.float32)

    def calls() -> None:
        for _ in range(CALLS):
            np.add(one, one, out)

    return measure(lambda: timed(calls), CALLS, seconds)


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


class _Crew:
    """One thread a place, each staying there where the system allows to say so."""

    def __init__(self, request: Request) -> None:
        places: list[int | None] = list(request.places[: request.threads])
        places += [None] * (request.threads - len(places))
        self._threads = [
            ThreadPoolExecutor(1, initializer=_stay, initargs=(place,)) for place in places
        ]

    def do(self, work: Callable[[Part], object], parts: Sequence[Part]) -> Run:
        """Work on the parts, one a thread.

        Each thread takes its own time, so that waking it costs nothing; the rate is the sum of
        theirs. A run in which they hardly overlapped is no run of all together, thus disturbed.
        """

        def own(part: Part) -> tuple[float, Run]:
            return time.perf_counter(), timed(lambda: work(part), of_thread=True)

        pending = [t.submit(own, part) for t, part in zip(self._threads, parts, strict=True)]
        runs = [done.result() for done in pending]
        seconds = len(runs) / sum(1 / max(run.seconds, 1e-9) for _, run in runs)
        starts = [start for start, _ in runs]
        together = max(starts) - min(starts) <= _LATEST * seconds
        return Run(seconds, together and all(run.is_calm for _, run in runs))

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.shutdown()


def _stay(place: int | None) -> None:
    """Bind the calling thread to a hardware thread; without effect where that is not possible."""
    if place is None or not hasattr(os, "sched_setaffinity"):
        return
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {place})


def _bandwidth(kernel: str, nbytes: int, request: Request, crew: _Crew) -> Measurement:
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

    def run(times: int) -> Run:
        def go_through(part: Pair) -> None:
            for _ in range(times):
                function(*part)

        return crew.do(go_through, parts)

    times = 1
    while min(run(times).seconds for _ in range(5)) < _SAMPLE_SECONDS / 2:
        times *= 2
    return measure(lambda: run(times), once * times, request.seconds)


def _pair(length: int, repeats: int) -> Pair:
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
    lists = {name: tuple(given[name]) for name in ("working_sets", "places")}
    request = Request(**{**given, **lists})
    for name, found in run(request):
        sys.stdout.write(json.dumps({"name": name, **asdict(found)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
