"""The expected time of a kernel plan on a device under a runtime.

    kernel = max(compute, memory) + exposed · min(compute, memory) + overhead,
    beside or after the host's time for its operator

The roofline result it is put into keeps its bound; `latency_seconds` becomes the expectation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.latency.constants import ACCELERATOR, CPU
from onnxroof.latency.machine import machine_of
from onnxroof.latency.times import MOST_KERNELS, KernelLatency, Timer, largest
from onnxroof.latency.work import describe
from onnxroof.roofline import Device, compute_type

if TYPE_CHECKING:
    from onnxroof.fusion.plan import Kernel, KernelPlan
    from onnxroof.hardware.profile import HardwareProfile, PeakKind
    from onnxroof.latency.constants import Constants
    from onnxroof.latency.runtime import Execution, RuntimeProfile
    from onnxroof.roofline import KernelTime, RooflineResult


class Predictor:
    """Expected times on one device under one runtime; equal kernels are priced once.

    Args:
        hardware: The device, with the number of threads it shall use.
        runtime: The runtime.
        peak: Whose figures the roofs are, below which few expectations fall: "vendor" or
            "sustained".
        constants: Free constants; None takes the fitted ones of the kind of device.

    Attributes:
        device: The roofs, kept with the kernels timed under them.
    """

    def __init__(
        self,
        hardware: HardwareProfile,
        runtime: RuntimeProfile,
        peak: PeakKind = "vendor",
        constants: Constants | None = None,
    ) -> None:
        self.hardware = hardware
        self.runtime = runtime
        self.device = Device(hardware, peak)
        self._timer = _timer(hardware, runtime.on(hardware.kind), constants)
        self._known: dict[tuple[object, ...], KernelLatency] = {}

    def expect(self, result: RooflineResult, plan: KernelPlan) -> RooflineResult:
        """The roofline result of the plan with expected times in it."""
        if not self.runtime.has_times:
            return result
        expected = tuple(
            [
                self.kernel(kernel, plan, time)
                for kernel, time in zip(plan.kernels, result.kernels, strict=True)
            ]
        )
        seconds = sum([latency.seconds for latency in expected])
        slower = result.bound_seconds / seconds if seconds else 1.0
        share = result.share_of_peak
        return replace(
            result,
            runtime=self.runtime.name,
            expected=expected,
            latency_seconds=seconds,
            flops_per_second=result.flops_per_second * slower,
            share_of_peak=None if share is None else share * slower,
        )

    def kernel(self, kernel: Kernel, plan: KernelPlan, time: KernelTime) -> KernelLatency:
        """The expected time of one kernel; its roofline bound where nothing better is known."""
        if kernel.bodies:
            return self._bodies(kernel, time)
        nodes = plan.cost.nodes
        key = (
            kernel.rule, kernel.input_bytes, kernel.weight_bytes, kernel.output_bytes,
            kernel.flops, *[nodes[index].call for index in kernel.nodes],
        )  # fmt: skip
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_KERNELS:
                self._known.clear()
            work = describe(kernel, plan, compute_type(kernel.compute_dtype))
            priced = None if work is None else self._timer.price(work, time.seconds)
            known = self._known[key] = priced or _bound_only(time)
        return known

    def _bodies(self, kernel: Kernel, time: KernelTime) -> KernelLatency:
        """A control-flow kernel: its bodies' kernels as often as they run, the longest choice."""
        totals = []
        for body in kernel.bodies:
            inner = [self._alone(item, body.plan) for item in body.plan.kernels]
            trips = float(body.trips)
            terms = [
                (i.compute_seconds, i.memory_seconds, i.overhead_seconds, i.host_seconds, i.seconds)
                for i in inner
            ]
            totals.append([trips * sum(column) for column in zip(*terms, strict=True)] or [0.0] * 5)
        if any(body.alternative for body in kernel.bodies):
            totals = [max(totals, key=lambda terms: terms[4])]
        compute, memory, overhead, host, seconds = (
            sum(column) for column in zip(*totals, strict=True)
        )
        seconds = max(seconds, time.seconds)
        bound = largest(compute, memory, max(overhead, host))
        return KernelLatency(compute, memory, overhead, host, seconds, bound, "")

    def _alone(self, kernel: Kernel, plan: KernelPlan) -> KernelLatency:
        """A body's kernel, without a floor: the floor of the whole holds for it."""
        return self.kernel(kernel, plan, self.device.time(kernel, {}))


@lru_cache(maxsize=64)
def _timer(hardware: HardwareProfile, execution: Execution, constants: Constants | None) -> Timer:
    """One timer, with all it has priced, for equal devices and runtimes."""
    machine = machine_of(hardware)
    return Timer(machine, execution, constants or constants_of(hardware))


def constants_of(hardware: HardwareProfile) -> Constants:
    """The constants of the device's kind, but those that its profile sets."""
    known = CPU if hardware.kind in ("cpu", "mcu") else ACCELERATOR
    set_here = dict(hardware.latency_constants)
    return replace(known, **set_here) if set_here else known  # type: ignore[arg-type]


def _bound_only(time: KernelTime) -> KernelLatency:
    """The roofline bound as an expectation, where nothing better is known."""
    compute, memory, overhead = time.compute_seconds, time.memory_seconds, time.overhead_seconds
    return KernelLatency(compute or 0.0, memory or 0.0, overhead, 0.0, time.seconds, time.bound, "")
