"""One model at many sizes: time, throughput, memory and intensity at each, and the knee.

The model is loaded once, and operators priced at one point are not priced again at the next.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from onnxroof.api import analyze, memo_for
from onnxroof.bounded import is_exact, upper
from onnxroof.errors import OnnxroofError, UsageError, quoted
from onnxroof.graph.load import load_model
from onnxroof.metrics import find_metric

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.plan import KernelPlan
    from onnxroof.graph.load import ModelSource
    from onnxroof.hardware.profile import HardwareProfile, PeakKind
    from onnxroof.roofline import Bound

    Sizes = Mapping[str, int]

KNEE_SHARE = 0.9
"""The knee: the smallest size that reaches this share of the best throughput."""

MOST_POINTS = 4096
"""Points of one sweep; more is a mistake in a range."""

_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})(?:([*+])(\d{1,9}))?")
_WHOLE = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class DevicePoint:
    """One device at one point of a sweep.

    Attributes:
        latency_seconds: Expected time of a run.
        bound_seconds: What it takes at least: the roofline bound.
        throughput_per_second: Samples a second: the batch size over the latency.
        bound: The term that bounds the largest part of the time.
        is_lower_bound: A kernel's time is not known and left out.
        fusion: The fusion set of its runtime.
        traffic_bytes: What the kernels of its runtime move.
        arithmetic_intensity: Their FLOP per byte; None when nothing moves.
    """

    latency_seconds: float
    bound_seconds: float
    throughput_per_second: float
    bound: Bound
    is_lower_bound: bool
    fusion: str
    traffic_bytes: int
    arithmetic_intensity: float | None


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A model at one set of sizes.

    Attributes:
        sizes: Every dimension that was given, by name.
        macs, flops, traffic_bytes: Totals after fusion, with devices by the runtime of the first.
        arithmetic_intensity: FLOP per byte of these; None when nothing moves.
        peak_memory_bytes: Weights, and the activations alive at once.
        is_at_most: Sizes known only by their bounds were taken at the upper end.
        is_at_least: Something could not be counted.
        devices: One entry a device, in the order asked for.
        problem: Why there are no figures; "" when there are.
    """

    sizes: Sizes
    macs: int = 0
    flops: int = 0
    traffic_bytes: int = 0
    arithmetic_intensity: float | None = None
    peak_memory_bytes: int = 0
    is_at_most: bool = False
    is_at_least: bool = False
    devices: tuple[DevicePoint, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Knee:
    """Where throughput stops growing with one dimension, the others held.

    The rate at a size is size over latency. The knee is the smallest size whose rate is at least
    `KNEE_SHARE` of the best rate in the sweep. There is none when, at the end of the sweep,
    twice the size would still bring more than 1 / `KNEE_SHARE` times the rate.

    Attributes:
        device: Index of the device.
        dimension: Which one grows.
        others: The sizes of the others.
        size: The knee; None where the rate still grows at the end of the sweep.
        rate_per_second: The rate at the knee, else at the last size.
        best_per_second: The best rate.
    """

    device: int
    dimension: str
    others: Sizes
    size: int | None
    rate_per_second: float
    best_per_second: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """All points, in the order of the ranges, the last dimension changing fastest."""

    model: str
    hardware: tuple[HardwareProfile, ...]
    ranges: Mapping[str, tuple[int, ...]]
    points: tuple[SweepPoint, ...]
    knees: tuple[Knee, ...]


def parse_ranges(options: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Sizes by dimension from `batch=1,2,4`, `batch=1..256*2` and `seq=128..512+128`.

    `A..B*F` multiplies by F up to B, `A..B+S` adds S (1 when left out); parts may be joined by
    commas. Sizes that repeat count once; they are sorted.

    Raises:
        UsageError: An option that means nothing, a dimension given twice, or too many points.
    """
    ranges: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, equals, text = option.rpartition("=")
        name = name.strip()
        if not equals or not name:
            raise _bad_range(option)
        if name in ranges:
            raise UsageError(f"--dim {quoted(name)} is given twice; list all its sizes in one")
        sizes = {size for part in text.split(",") for size in _part(part.strip(), option)}
        ranges[name] = tuple(sorted(sizes))
    points = math.prod(map(len, ranges.values()))
    if points > MOST_POINTS:
        raise UsageError(f"{points:,} points are more than {MOST_POINTS:,}: sweep fewer sizes")
    return ranges


def _part(text: str, option: str) -> list[int]:
    """The sizes of one part between commas."""
    if _WHOLE.fullmatch(text):
        return [int(text)]
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _bad_range(option)
    size, last, sign, by = int(found[1]), int(found[2]), found[3], int(found[4] or 1)
    if last < size:
        raise UsageError(f"--dim {quoted(option)}: {text} ends before it begins")
    if by < 1 or (sign == "*" and (by < 2 or size < 1)):
        raise _bad_range(option)
    sizes: list[int] = []
    while size <= last and len(sizes) <= MOST_POINTS:
        sizes.append(size)
        size = size * by if sign == "*" else size + by
    return sizes


def _bad_range(option: str) -> UsageError:
    return UsageError(
        f"--dim {quoted(option)}: a name and sizes are meant, for example --dim batch=1,2,4,"
        " --dim batch=1..256*2 or --dim seq=128..1024+128"
    )


def sweep(  # noqa: PLR0913 - every argument is one choice of the caller
    source: ModelSource,
    hardware: Sequence[str | HardwareProfile] | str | HardwareProfile = (),
    *,
    ranges: Mapping[str, Sequence[int]],
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    precision: str = "",
    runtime: str | None = None,
    peak: PeakKind = "vendor",
    threads: int | None = None,
    operators: str | os.PathLike[str] | None = None,
    progress: Callable[[], None] | None = None,
) -> Sweep:
    """Analyze a model at every combination of sizes.

    Args:
        source: Path, bytes or ModelProto.
        hardware: Devices, as for `analyze`; none for counts only.
        ranges: The sizes of each dimension.
        input_shapes: As for `analyze`.
        precision: As for `analyze`.
        runtime: As for `analyze`.
        peak: As for `analyze`.
        threads: As for `analyze`.
        operators: As for `analyze`.
        progress: Called after every point.

    Raises:
        ModelError, ProfileError, UsageError: As `analyze`.
        ShapeError: No point can be analyzed. A point that cannot while others can has a
            `problem` in place of figures.
    """
    model = load_model(source)
    memo = memo_for(precision, operators)
    names = list(ranges)
    points: list[SweepPoint] = []
    profiles: tuple[HardwareProfile, ...] = ()
    first_error: OnnxroofError | None = None
    for combination in product(*ranges.values()):
        sizes = dict(zip(names, combination, strict=True))
        try:
            found = analyze(
                model, profiles or hardware, dims=sizes, input_shapes=input_shapes,
                precision=precision, runtime=runtime, peak=peak, memo=memo,
                threads=None if profiles else threads,
            )  # fmt: skip
        except OnnxroofError as error:
            if error.exit_code != _SHAPES:
                raise
            first_error = first_error or error
            points.append(SweepPoint(sizes, problem=str(error)))
        else:
            profiles = tuple(result.hardware for result in found.rooflines)
            points.append(_point(found, sizes))
        if progress is not None:
            progress()
    if first_error is not None and all(point.problem for point in points):
        raise first_error
    title = model.path or model.graph.name or "model in memory"
    swept = {name: tuple(sizes) for name, sizes in ranges.items()}
    return Sweep(title, profiles, swept, tuple(points), _knees(points, swept, len(profiles)))


_SHAPES = 4
"""Exit code of errors that lie in the sizes."""


def _point(found: Analysis, sizes: Sizes) -> SweepPoint:
    plan = found.kernels
    peak = found.memory.peak_activation_bytes + found.memory.weight_bytes
    traffic = plan.traffic_bytes
    devices = tuple(
        DevicePoint(
            result.latency_seconds,
            find_metric("bound_seconds").of(found, place) or 0.0,
            find_metric("throughput").of(found, place) or 0.0,
            max(result.time_shares, key=lambda bound: result.time_shares[bound]),
            result.is_lower_bound_of_plan,
            result.plan.runtime,
            upper(result.plan.traffic_bytes),
            _intensity(result.plan),
        )
        for place, result in enumerate(found.rooflines)
    )
    return SweepPoint(
        sizes=sizes,
        macs=upper(plan.macs),
        flops=upper(plan.flops),
        traffic_bytes=upper(traffic),
        arithmetic_intensity=_intensity(plan),
        peak_memory_bytes=upper(peak),
        is_at_most=not all(map(is_exact, (plan.flops, traffic, peak))),
        is_at_least=plan.is_lower_bound or found.memory.is_lower_bound,
        devices=devices,
    )


def _intensity(plan: KernelPlan) -> float | None:
    """FLOP per byte of what is known."""
    traffic = upper(plan.traffic_bytes)
    return upper(plan.flops) / traffic if traffic else None


def _knees(
    points: Sequence[SweepPoint], ranges: Mapping[str, tuple[int, ...]], devices: int
) -> tuple[Knee, ...]:
    """A knee for every device, swept dimension and choice of the other sizes."""
    knees: list[Knee] = []
    for device, (name, sizes) in product(range(devices), ranges.items()):
        if len(sizes) < 2:
            continue
        lines: dict[tuple[tuple[str, int], ...], dict[int, float]] = {}
        for point in points:
            if point.problem:
                continue
            others = tuple((n, size) for n, size in point.sizes.items() if n != name)
            seconds = point.devices[device].latency_seconds
            lines.setdefault(others, {})[point.sizes[name]] = seconds
        knees += [
            _knee(device, name, dict(others), latencies)
            for others, latencies in lines.items()
            if len(latencies) > 1 and all(latencies.values())
        ]
    return tuple(knees)


def _knee(device: int, name: str, others: Sizes, latencies: Mapping[int, float]) -> Knee:
    rates = {size: size / seconds for size, seconds in sorted(latencies.items())}
    best = max(rates.values())
    if _still_grows(rates):
        last = max(rates)
        return Knee(device, name, others, None, rates[last], best)
    knee = next(size for size, rate in rates.items() if rate >= KNEE_SHARE * best)
    return Knee(device, name, others, knee, rates[knee], best)


def _still_grows(rates: Mapping[int, float]) -> bool:
    """Whether doubling the last size would bring more than 1 / `KNEE_SHARE` times the rate.

    Judged by the growth since the largest size at most half the last, or since the first.
    """
    sizes = [size for size in rates if size > 0]
    last = sizes[-1]
    before = max((size for size in sizes if 2 * size <= last), default=sizes[0])
    if before == last or not rates[before]:
        return False
    gain = math.log(rates[last] / rates[before]) / math.log(last / before)
    return bool(2**gain > 1 / KNEE_SHARE)
