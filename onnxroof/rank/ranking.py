"""Model files → analyses in several processes → the best first."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.api import analyze, memo_for
from onnxroof.batches import run_batches
from onnxroof.bindings import free_names
from onnxroof.errors import OnnxroofError, UnknownDimensionError, UsageError, quoted
from onnxroof.graph.load import load_model
from onnxroof.hardware.read import load_profile
from onnxroof.metrics import METRICS, exactness, find_metric
from onnxroof.report.render import DEFAULT_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.graph.types import Model
    from onnxroof.hardware.profile import PeakKind

PER_MODEL = ("macs", "parameters", "peak_memory_bytes")
"""Metrics shown besides the latencies."""


class RankFormat(Enum):
    """What a ranking is written as."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class RankOptions:
    """What the command line said.

    Attributes:
        hardware: Devices, a column each.
        by: Metric to rank by, on the first device; "": latency, without a device FLOPs.
        jobs: Processes; None: one for every core.
        top: Models to show, 0 for all.
        dims: Sizes of free dimensions, for the models that have them.
        input_shapes: Whole shapes of inputs.
        precision: As for `analyze`.
        runtime: As for `analyze`.
        peak: As for `analyze`.
        threads: As for `analyze`.
        operators: As for `analyze`.
        strict: Whether a model that cannot be ranked, or only by a lower bound, fails.
        format_: What to write.
        width: Columns of the terminal, for text.
    """

    hardware: Sequence[str] = ()
    by: str = ""
    jobs: int | None = None
    top: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    precision: str = ""
    runtime: str | None = None
    peak: PeakKind = "vendor"
    threads: int | None = None
    operators: str | None = None
    strict: bool = False
    format_: RankFormat = RankFormat.TEXT
    width: int = DEFAULT_WIDTH

    @property
    def metric(self) -> str:
        """Name of the metric ranked by."""
        return self.by or ("latency_seconds" if self.hardware else "flops")


@dataclass(frozen=True, slots=True)
class Ranked:
    """One model.

    Attributes:
        path: Its file.
        key: The metric ranked by; None when it cannot be analysed.
        latencies: Seconds on each device.
        figures: `PER_MODEL`.
        is_lower_bound: Something could not be counted.
        exactness: Of its totals, see `metrics.exactness`.
        problem: Why it cannot be analysed; "" when it can.
        without: Names of dimensions to be bound that it does not have.
    """

    path: str
    key: float | None
    latencies: tuple[float, ...] = ()
    figures: tuple[float | None, ...] = ()
    is_lower_bound: bool = False
    exactness: str = "exact"
    problem: str = ""
    without: tuple[str, ...] = ()


def rank(paths: Iterable[str], options: RankOptions) -> list[Ranked]:
    """Analyse models and put the best first; those that cannot be analysed come last.

    Raises:
        UsageError: The metric does not exist, or needs a device; no model has one of the
            dimensions to be bound.
        ProfileError: A profile is unknown or invalid.
    """
    metric = find_metric(options.metric)
    if metric.per_device and not options.hardware:
        raise UsageError(f"ranking by {metric.name} needs a device: --hw NAME")
    memo_for(options.precision, options.operators)
    for name in options.hardware:
        load_profile(name)
    listed = sorted(dict.fromkeys(paths))
    jobs = min(options.jobs or os.cpu_count() or 1, max(len(listed), 1))
    setting = pickle.dumps(options)
    chunk = max(min(len(listed) // (4 * jobs), 32), 1)
    if jobs == 1:
        found = _in_this_process(setting, listed)
    else:
        found = list(
            run_batches(_rank_chunk, setting, listed, None, chunk, workers=jobs, total=len(listed))
        )
    for name in options.dims:
        if found and all(name in item.without for item in found):
            raise UsageError(f"none of the models has a free dimension named {quoted(name)}")
    sign = -1 if metric.name == "throughput" else 1
    return sorted(found, key=lambda item: (item.key is None, sign * (item.key or 0), item.path))


def _in_this_process(setting: bytes, paths: Sequence[str]) -> list[Ranked]:
    from onnxroof.progress import Progress

    found: list[Ranked] = []
    with Progress(len(paths), "models") as progress:
        for path in paths:
            found += _rank_chunk(setting, [path])
            progress.advance()
    return found


@lru_cache(maxsize=4)
def _worker(setting: bytes) -> Callable[[str], Ranked]:
    """What ranks one file in this process, with a memo for all of them."""
    options: RankOptions = pickle.loads(setting)
    profiles = [load_profile(name) for name in options.hardware]
    memo = memo_for(options.precision, options.operators)

    def analyzed(model: Model, dims: dict[str, int]) -> Analysis:
        """The model's analysis; sizes that it has no dimension for are taken out of `dims`."""
        while True:
            try:
                return analyze(
                    model, profiles, dims=dims, input_shapes=options.input_shapes,
                    precision=options.precision, runtime=options.runtime, peak=options.peak,
                    threads=options.threads, memo=memo,
                )  # fmt: skip
            except UnknownDimensionError as error:
                if error.kind != "free dimension" or error.name not in dims:
                    raise
                del dims[error.name]

    def ranked(path: str) -> Ranked:
        dims, problem, model = dict(options.dims), "", None
        try:
            model = load_model(path)
            analysis = analyzed(model, dims)
        except OnnxroofError as error:
            problem = str(error)
        without = tuple(
            [n for n in options.dims if n not in dims or (problem and not _may_have(model, n))]
        )
        if problem:
            return Ranked(path, None, problem=problem, without=without)
        metrics = METRICS
        return Ranked(
            path,
            metrics[options.metric].of(analysis, 0),
            tuple(
                [metrics["latency_seconds"].of(analysis, at) or 0.0 for at in range(len(profiles))]
            ),
            tuple([metrics[name].of(analysis, 0) for name in PER_MODEL]),
            analysis.totals.is_lower_bound,
            exactness(analysis),
            without=without,
        )

    return ranked


def _may_have(model: Model | None, name: str) -> bool:
    """Whether a model that could not be analysed has a dimension of this name, for all we know."""
    if model is None:
        return False
    if name.rpartition(".")[2].isdecimal():  # what only a run tells: a tensor's name and the axis
        return True
    return name in free_names(model.graph.inputs)


def _rank_chunk(setting: bytes, paths: Sequence[str]) -> list[Ranked]:
    return [_worker(setting)(path) for path in paths]
