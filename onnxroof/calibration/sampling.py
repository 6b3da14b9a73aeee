"""Timing a call again and again: the median of undisturbed runs, and how far they spread."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FEWEST_SAMPLES = 7
MOST_SAMPLES = 400

PATIENCE = 3
"""On a busy machine a measurement may take so many times as long, until enough runs are calm."""

WARMING_CALLS = 2
"""Calls before the first that counts: they fault pages in and start threads."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A rate measured many times.

    Attributes:
        rate_per_second: The median.
        best_per_second: The fastest run.
        spread: Distance between the quartiles over the median: 0 when all runs agree.
        samples: Runs it rests on.
        disturbed: Runs left out because the system took a core away in the middle of them.
    """

    rate_per_second: float
    best_per_second: float
    spread: float
    samples: int
    disturbed: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its seconds, and whether nothing took a core away meanwhile."""

    seconds: float
    is_calm: bool


def timed(call: Callable[[], object], *, of_thread: bool = False) -> Run:
    """Run a call once.

    Args:
        call: What to run.
        of_thread: Look at switches of the calling thread alone, not of the whole process.
    """
    switches = _switches(of_thread=of_thread)
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    return Run(seconds, _switches(of_thread=of_thread) == switches)


def measure(once: Callable[[], Run], work: float, seconds: float) -> Measurement:
    """Run something again and again for so many seconds.

    Runs in which the system switched the process out are left out, where the system says so and
    enough others remain.

    Args:
        once: Runs it once; short against a scheduler's time slice, a few milliseconds.
        work: What one run does, in the unit of the rate (FLOP, bytes, calls).
        seconds: How long to go on; up to `PATIENCE` times as long while fewer than
            `FEWEST_SAMPLES` runs were undisturbed.
    """
    for _ in range(WARMING_CALLS):
        once()
    runs: list[Run] = []
    start = time.perf_counter()
    while _goes_on(runs, (time.perf_counter() - start) / seconds):
        runs.append(once())
    calm = [run for run in runs if run.is_calm]
    kept = calm if len(calm) >= FEWEST_SAMPLES else runs
    return summarize([work / max(run.seconds, 1e-9) for run in kept], len(runs) - len(kept))


def _goes_on(runs: Sequence[Run], elapsed: float) -> bool:
    """Whether more runs are needed when so many times the planned time has passed."""
    if len(runs) < FEWEST_SAMPLES:
        return True
    if len(runs) >= MOST_SAMPLES:
        return False
    calm = sum(run.is_calm for run in runs)
    return elapsed < (1 if calm >= FEWEST_SAMPLES else PATIENCE)


def summarize(rates: Sequence[float], disturbed: int = 0) -> Measurement:
    """Median, best and spread of at least two rates."""
    median = statistics.median(rates)
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
    return Measurement(median, max(rates), (high - low) / median, len(rates), disturbed)


def _switches(*, of_thread: bool) -> int:
    """How often the system took a core from this process or thread; 0 where it does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    who = getattr(resource, "RUSAGE_THREAD", None) if of_thread else resource.RUSAGE_SELF
    return 0 if who is None else resource.getrusage(who).ru_nivcsw
