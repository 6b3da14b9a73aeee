"""Measured models as the fit sees them: kernels described once, priced under any constants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.api import analyze, memo_for
from onnxroof.calibration.measurements import bound_dims, with_line
from onnxroof.errors import MeasurementError, OnnxroofError
from onnxroof.graph.load import load_model
from onnxroof.latency.machine import machine_of
from onnxroof.latency.predict import constants_of
from onnxroof.latency.runtime_read import load_runtime
from onnxroof.latency.times import Timer
from onnxroof.latency.work import describe
from onnxroof.roofline import compute_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.calibration.measurements import Measured
    from onnxroof.hardware.profile import HardwareProfile
    from onnxroof.latency.runtime import RuntimeProfile
    from onnxroof.latency.work import Work

GROUPS: Mapping[str, Mapping[str, int]] = {
    "convolution": {"convolution_share": 1, "winograd_share": 1},
    "product": {"product_share": 1},
    "depthwise": {"depthwise_slots": -1, "depthwise_index_slots": -1},
    "memory": {
        "elementwise_share": 1, "batch_normalization_share": 1, "normalization_share": 1,
        "softmax_share": 1, "reduction_share": 1, "copy_share": 1,
    },
    "host": {},
}  # fmt: skip
"""What a fit may change: constants that move together, and whether more is faster (1) or slower.

"host" is the profile's `host_factor`.
"""


def adjusted(hardware: HardwareProfile, speeds: Mapping[str, float]) -> HardwareProfile:
    """The device with each group so many times as fast."""
    known = constants_of(hardware)
    changed = dict(hardware.latency_constants)
    for group, speed in speeds.items():
        for name, sign in GROUPS[group].items():
            value = getattr(known, name)
            if value:
                changed[name] = value * speed**sign
    host = hardware.host_factor / speeds.get("host", 1.0)
    return replace(hardware, latency_constants=tuple(changed.items()), host_factor=host)


@dataclass(frozen=True, slots=True)
class Case:
    """One measured model on its device.

    Attributes:
        path: The model's file; measurements of one file are left out together.
        seconds: As measured.
        hardware: The device with the threads it ran on.
        works: (work, roofline bound, how many kernels do the same).
        fixed_seconds: Time of kernels that no constant changes: control flow, unknown types.
    """

    path: str
    seconds: float
    hardware: HardwareProfile
    works: tuple[tuple[Work, float, int], ...]
    fixed_seconds: float

    def predict(self, runtime: RuntimeProfile, speeds: Mapping[str, float]) -> float:
        """Expected seconds with each group so many times as fast."""
        hardware = adjusted(self.hardware, speeds)
        timer = Timer(machine_of(hardware), runtime.on(hardware.kind), constants_of(hardware))
        seconds = self.fixed_seconds
        for work, floor, count in self.works:
            priced = timer.time(work, floor)
            seconds += count * (floor if priced is None else priced.seconds)
        return seconds


def build_cases(
    rows: Sequence[Measured], hardware: HardwareProfile, runtime: RuntimeProfile
) -> tuple[Case, ...]:
    """Analyze every measured model.

    Raises:
        MeasurementError: A model cannot be read, sized or counted, or has no expected time; names
            the line.
    """
    memo = memo_for("")
    cases = []
    for row in rows:
        try:
            model = load_model(row.path)
            found = analyze(
                model, hardware, dims=bound_dims(row, model), threads=row.threads, memo=memo,
                runtime=runtime.name,
            )  # fmt: skip
        except MeasurementError:
            raise
        except OnnxroofError as error:
            raise with_line(error, row) from None
        cases.append(_case(row, found))
    return tuple(cases)


def _case(row: Measured, found: Analysis) -> Case:
    result, plan = found.rooflines[0], found.kernels
    works: Counter[tuple[Work, float]] = Counter()
    fixed = 0.0
    for kernel, time, seconds in zip(
        plan.kernels, result.kernels, result.kernel_seconds, strict=True
    ):
        work = None
        if not kernel.bodies:
            work = describe(kernel, plan, compute_type(kernel.compute_dtype))
        if work is None:
            fixed += seconds
        else:
            works[work, time.seconds] += 1
    listed = tuple((work, floor, count) for (work, floor), count in works.items())
    return Case(row.path, row.seconds, result.hardware, listed, fixed)


def runtime_of(hardware: HardwareProfile, name: str | None) -> RuntimeProfile:
    """The runtime, whose times must be known.

    Raises:
        MeasurementError: Only a fusion set is known of it.
    """
    runtime = load_runtime(name or hardware.runtime)
    if not runtime.has_times:
        raise MeasurementError(
            "", f"runtime {runtime.name} is a set of fusions only: give one with times by --runtime"
        )
    return runtime
