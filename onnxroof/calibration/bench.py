"""`onnxroof hw bench`: what the machine this runs on sustains. No model is executed.

Matrix products through BLAS by type and number of threads; bandwidth by working set, so that the
levels of cache show; the time of the smallest call. Each number of threads is measured in a
process of its own (`onnxroof.calibration.worker`).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxroof.calibration.host import THREAD_VARIABLES, Host, inspect_host
from onnxroof.calibration.sampling import Measurement
from onnxroof.calibration.worker import SMALL_PRODUCT, Request
from onnxroof.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxroof.calibration.host import Cache

DEFAULT_SECONDS = 20.0
"""Time to spend, on a machine with nothing else to do."""

PASSES = 3
"""Everything is measured so often, one pass after the other; of each figure the calmest pass
counts, the one with the highest median, since other programs only ever slow a run down."""

LARGE_SPREAD = 0.1
"""Spread from which a figure is called noisy."""

TOO_LARGE_SPREAD = 0.5
"""Spread of a figure that times rest on at which no profile is written unasked."""

_NO_GAIN = 0.9
"""All threads together below this share of one thread: something else held the cores."""

_LONGEST_SECONDS = 0.6
_SMALLEST_SET = 24 * 2**10
"""Bytes a thread; numpy goes through smaller arrays more slowly than a cache delivers them."""

_FAR_CACHES = 4
_FAR_LEAST, _FAR_MOST = 64 * 2**20, 2**30
_STEP = 2


@dataclass(frozen=True, slots=True)
class Level:
    """One level of memory and the measurement that stands for it.

    Attributes:
        name: "l1" …, "dram".
        cache: Its size; None for main memory.
        working_set: Bytes gone through.
        found: Bandwidth of all threads.
    """

    name: str
    cache: Cache | None
    working_set: int
    found: Measurement


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured.

    Attributes:
        host: The machine.
        runs: Measurements by name, by number of threads; see `worker.run`.
        levels: The levels of memory with all threads, the nearest first.
        far_bytes: The working set that stands for main memory.
    """

    host: Host
    runs: dict[int, dict[str, Measurement]]
    levels: tuple[Level, ...]
    far_bytes: int

    @property
    def threads(self) -> int:
        """The most threads measured: a thread a core."""
        return max(self.runs)

    def curve(self, threads: int) -> list[tuple[int, Measurement]]:
        """Bandwidth by working set, in bytes; main memory last."""
        run = self.runs[threads]
        points = [
            (int(name.removeprefix("scale ")), found)
            for name, found in run.items()
            if name.startswith("scale ")
        ]
        return [*sorted(points, key=lambda point: point[0]), (self.far_bytes, run["scale"])]

    def launch_seconds(self) -> float:
        """Time of a call that computes one element, with one thread."""
        return 1 / self.runs[min(self.runs)]["call"].rate_per_second

    def fork_join_seconds(self) -> float | None:
        """Time of a small product on the library's threads beyond its share of the time on one.

        None with one thread only, or where no difference shows.
        """
        if self.threads == 1:
            return None
        work = 2.0 * SMALL_PRODUCT**3
        alone = work / self.runs[min(self.runs)]["small"].rate_per_second
        together = work / self.runs[self.threads]["small"].rate_per_second
        beyond = together - alone / self.threads
        return beyond if beyond > 0 else None

    def warnings(self) -> list[str]:
        """What makes the figures less certain, in sentences."""
        host = self.host
        said: list[str] = []
        if host.load is not None and host.load > host.logical * 0.25:
            said.append(
                f"a load of {host.load:.1f} on {host.logical} hardware threads: other programs ran"
                " beside the measurement"
            )
        if host.quota is not None and host.quota < host.cores:
            said.append(f"a limit of {host.quota:g} cores is set for this process")
        noisy = [
            f"{name} on {threads} threads ({found.spread:.0%})"
            for threads, run in self.runs.items()
            for name, found in run.items()
            if found.spread > LARGE_SPREAD and name in _KEY_FIGURES
        ]
        if noisy:
            said.append(f"quartiles lie far apart, over the median: {', '.join(noisy)}")
        return said

    def refusal(self) -> str:
        """Why the figures are too uncertain for a profile; "" when they are not."""
        run, alone = self.runs[self.threads], self.runs[min(self.runs)]
        bad = [
            f"quartiles of {_TITLES[name]} lie {run[name].spread:.0%} of the median apart"
            for name in ("fp32", "scale")
            if run[name].spread > TOO_LARGE_SPREAD
        ]
        if run["fp32"].rate_per_second < alone["fp32"].rate_per_second * _NO_GAIN:
            bad.append(f"products on {self.threads} threads are slower than on one")
        if not bad:
            return ""
        return (
            f"{' and '.join(bad)}: stop other programs and run again, or take the figures as they"
            " are with --accept-noise"
        )


_TITLES = {"fp32": "fp32 products", "scale": "main memory"}
_KEY_FIGURES = ("fp32", "fp64", "scale")


def thread_counts(cores: int) -> list[int]:
    """1, 2, 4 … and all cores."""
    counts = [2**power for power in range(cores.bit_length()) if 2**power < cores]
    return [*counts, cores]


def working_sets(host: Host, threads: int) -> list[int]:
    """Powers of two from the first level of cache to beyond the last."""
    first = _SMALLEST_SET * threads
    last = _far_bytes(host)
    count = max(math.ceil(math.log2(last / first)), 1)
    return [first * _STEP**step for step in range(count) if first * _STEP**step < last]


def _far_bytes(host: Host) -> int:
    """A working set several times the last cache, and no more than an eighth of memory."""
    last = max((cache.nbytes * cache.instances for cache in host.caches), default=0)
    room = (host.memory_bytes or 8 * _FAR_MOST) // 8
    return max(min(max(_FAR_CACHES * last, _FAR_LEAST), _FAR_MOST, room), 2**20)


def bench(
    seconds: float = DEFAULT_SECONDS,
    *,
    host: Host | None = None,
    plan: Callable[[int], None] | None = None,
    progress: Callable[[], None] | None = None,
) -> Bench:
    """Measure the machine.

    Args:
        seconds: Time to spend; up to three times as much where other programs interfere.
        host: The machine; None asks the operating system.
        plan: Called once with the number of measurements.
        progress: Called after each.

    Raises:
        MeasurementError: The measuring process failed.
    """
    host = host or inspect_host()
    requests = _requests(host, seconds)
    if plan is not None:
        plan(PASSES * sum(request.count() for request in requests))
    runs: dict[int, dict[str, Measurement]] = {}
    for request in requests * PASSES:
        run = runs.setdefault(request.threads, {})
        for name, found in _measured(request):
            known = run.get(name)
            if known is None or found.rate_per_second > known.rate_per_second:
                run[name] = found
            if progress is not None:
                progress()
    far = _far_bytes(host)
    return Bench(host, runs, tuple(_levels(host, runs[max(runs)], far)), far)


def _requests(host: Host, seconds: float) -> list[Request]:
    """One for each number of threads; the curve over working sets for one and for all.

    The last leaves products to the threads of the BLAS library, to see what sharing one costs.
    """
    counts = thread_counts(host.cores)
    far = _far_bytes(host)
    sets = {
        count: tuple(working_sets(host, count)) if count in (1, counts[-1]) else ()
        for count in counts
    }
    requests = [Request(count, sets[count], far, 1.0, host.places) for count in counts]
    if host.cores > 1:
        requests.append(Request(host.cores, (), far, 1.0, blas_threads=host.cores))
    measurements = PASSES * sum(request.count() for request in requests)
    each = min(seconds / measurements, _LONGEST_SECONDS)
    return [replace(request, seconds=each) for request in requests]


def _measured(request: Request) -> Iterator[tuple[str, Measurement]]:
    """The measurements of a process, as they come."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(request.blas_threads))}
    package = str(Path(__file__).resolve().parents[2])
    earlier = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = package + (os.pathsep + earlier if earlier else "")
    command = [sys.executable, "-m", "onnxroof.calibration.worker", json.dumps(asdict(request))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        lines = process.stdout or ()
        try:
            for line in lines:
                record = json.loads(line)
                yield record.pop("name"), Measurement(**record)
        except BaseException:
            process.terminate()
            raise
        said = process.stderr.read() if process.stderr else ""
    if process.returncode:
        last = said.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise MeasurementError(f"measuring with {request.threads} threads failed", last[0])


def _levels(host: Host, run: dict[str, Measurement], far: int) -> Iterator[Level]:
    """For each cache the working set in the middle of what only it holds, by ratio."""
    inner = 0
    points = {
        int(name.removeprefix("scale ")): found
        for name, found in run.items()
        if name.startswith("scale ")
    }
    for cache in host.caches:
        outer = cache.nbytes * cache.instances
        middle = math.sqrt(max(inner, outer / 8) * outer) if inner < outer else outer / 2
        inside = [nbytes for nbytes in points if inner < nbytes < outer]
        if inside:
            chosen = min(inside, key=lambda nbytes: abs(math.log(nbytes / middle)))
            yield Level(f"l{cache.level}", cache, chosen, points[chosen])
        inner = max(inner, outer)
    yield Level("dram", None, far, run["scale"])
