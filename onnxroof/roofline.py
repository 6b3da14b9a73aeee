"""Last stage: `KernelPlan` + `Device` → `RooflineResult`, in the time domain.

    seconds = max(work / peak, transcendentals / special rate, traffic / bandwidth) + overhead

Multiply-accumulates run on the matrix engine where the device has one for their type, everything
else on the vector engine; engines that differ overlap, one engine adds up. With peak figures the
result is a lower bound on latency. Intensity, ridge point and attainable performance are derived
from the same figures, never divided by zero, and a term that is not known is None.

Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from onnxroof.bounded import is_exact, upper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.fusion.plan import Kernel, KernelBody, KernelPlan
    from onnxroof.graph.types import DType
    from onnxroof.hardware.profile import Engine, HardwareProfile, PeakKind, PeakLookup
    from onnxroof.latency.times import KernelLatency

_COMPUTE_TYPES: Mapping[str, str] = {
    "uint8": "int8", "bool": "int8", "uint16": "int16", "uint32": "int32", "uint64": "int64",
    "uint4": "int4", "int2": "int4", "uint2": "int4", "complex64": "fp32", "complex128": "fp64",
    "fp4e2m1": "fp4", "fp6e2m3": "fp8", "fp6e3m2": "fp8",
}  # fmt: skip
"""Element types that compute at the rate of another label; 8-bit floats are all "fp8"."""


class Bound(Enum):
    """Which term of a kernel's time is the largest."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OVERHEAD = "overhead"
    UNKNOWN = "unknown"

    __hash__ = object.__hash__
    """Members are single objects; the inherited hash by name is a Python call for every kernel."""


class KernelTime(NamedTuple):
    """One kernel's time on one device.

    Attributes:
        kernel: Index in the plan.
        compute_seconds: Work over peak; None when the work or the peak is not known.
        memory_seconds: Traffic over bandwidth; None when the traffic is not known.
        overhead_seconds: Launch overhead.
        seconds: The larger of the known terms, plus the overhead: a lower bound.
        bound: Which term is largest.
        arithmetic_intensity: FLOP per byte of traffic; None when it moves nothing or is unknown.
        attainable_ops_per_second: min(peak, intensity · bandwidth); None when unknown.
    """

    kernel: int
    compute_seconds: float | None
    memory_seconds: float | None
    overhead_seconds: float
    seconds: float
    bound: Bound
    arithmetic_intensity: float | None
    attainable_ops_per_second: float | None


@dataclass(frozen=True, slots=True)
class RooflineResult:
    """A model's time on one device.

    Attributes:
        hardware: The device.
        plan: The kernels that its runtime launches.
        peak_kind: "vendor" or "sustained" figures.
        kernels: The roofline bound of each kernel of the plan.
        latency_seconds: Expected latency (see `onnxroof.latency`); the bound where only a fusion
            set is known of the runtime.
        bound_seconds: Sum of the kernels' bounds: a lower bound on latency with direct algorithms.
        runtime: The runtime of the expectation; "" for none.
        expected: Expected time of each kernel, term by term; empty without a runtime.
        bound_shares: Share of the bound in kernels bound by each term; sums to 1.
        flops_per_second: Work of the model over its latency.
        share_of_peak: That, as a share of the peak of `peak_type`.
        main_type: The compute type with most multiply-accumulates (or most work).
        ridge_points: FLOP/byte at which each compute type's two roofs meet.
        is_lower_bound_of_plan: A kernel's work or traffic is not known, so its time is missing.
        at_upper_bounds: Sizes known only by their bounds were taken at the upper end.
        assumptions: Sentences on figures that had to stand in for others.
    """

    hardware: HardwareProfile
    plan: KernelPlan
    peak_kind: PeakKind
    kernels: tuple[KernelTime, ...]
    latency_seconds: float
    bound_shares: Mapping[Bound, float]
    flops_per_second: float
    share_of_peak: float | None
    main_type: str
    ridge_points: Mapping[str, float]
    is_lower_bound_of_plan: bool
    at_upper_bounds: bool
    assumptions: tuple[str, ...]
    bound_seconds: float = 0.0
    runtime: str = ""
    expected: tuple[KernelLatency, ...] = ()

    def at_kernels_of(self, plan: KernelPlan) -> tuple[tuple[float, Bound] | None, ...]:
        """Time and bound at each kernel of another runtime's plan of the same graph.

        Every kernel of this device stands where its anchor lies; of several, the longest gives
        the bound. None: the work of that kernel is inside others here.
        """
        own = zip(self.plan.kernels, self.kernel_seconds, self.kernel_bounds, strict=True)
        if plan is self.plan:
            return tuple([(seconds, bound) for _, seconds, bound in own])
        holder = {node: kernel.index for kernel in plan.kernels for node in kernel.nodes}
        found: dict[int, list[tuple[float, Bound]]] = {}
        for kernel, seconds, bound in own:
            if kernel.anchor in holder:
                found.setdefault(holder[kernel.anchor], []).append((seconds, bound))
        return tuple(
            [
                (sum(seconds for seconds, _ in parts), max(parts, key=lambda part: part[0])[1])
                if (parts := found.get(kernel.index))
                else None
                for kernel in plan.kernels
            ]
        )

    @property
    def peak_type(self) -> str:
        """The model's main compute type, or the wider one whose peak stands in for it."""
        found = self.hardware.peak_ops_per_second(self.main_type, "matrix", self.peak_kind)
        return found.compute_type or self.main_type

    @property
    def kernel_seconds(self) -> tuple[float, ...]:
        """Time of each kernel, which together are the latency."""
        return tuple([time.seconds for time in self.expected or self.kernels])

    @property
    def time_shares(self) -> Mapping[Bound, float]:
        """Share of the latency in kernels bound by each term; sums to 1."""
        if not self.expected:
            return self.bound_shares
        shares = dict.fromkeys(Bound, 0.0)
        for bound, seconds in zip(self.kernel_bounds, self.kernel_seconds, strict=True):
            shares[bound] += seconds / self.latency_seconds if self.latency_seconds else 0.0
        return shares

    @property
    def kernel_bounds(self) -> tuple[Bound, ...]:
        """Which term of each kernel's time is the largest."""
        if not self.expected:
            return tuple([time.bound for time in self.kernels])
        return tuple(
            [
                roof.bound if roof.bound is Bound.UNKNOWN else time.bound
                for roof, time in zip(self.kernels, self.expected, strict=True)
            ]
        )


def compute_type(dtype: DType | None) -> str:
    """The label under which a profile lists the rate of an element type."""
    if dtype is None:
        return "fp32"
    label = dtype.label
    return "fp8" if label.startswith("fp8") else _COMPUTE_TYPES.get(label, label)


def apply_roofline(plan: KernelPlan, device: Device) -> RooflineResult:
    """Time every kernel of the plan on the device."""
    said = dict.fromkeys(device.bandwidth_assumptions)
    kernels = tuple([device.time(kernel, said) for kernel in plan.kernels])
    latency = sum([kernel.seconds for kernel in kernels])
    shares = dict.fromkeys(Bound, 0.0)
    for kernel in kernels:
        shares[kernel.bound] += kernel.seconds / latency if latency else 0.0
    flops = sum([kernel.flops or 0 for kernel in plan.kernels])
    main_type = _main_type(plan)
    rate, _ = device.rate(main_type, "matrix", said)
    return RooflineResult(
        hardware=device.hardware,
        plan=plan,
        peak_kind=device.kind,
        kernels=kernels,
        latency_seconds=latency,
        bound_shares=shares,
        flops_per_second=flops / latency if latency else 0.0,
        share_of_peak=flops / latency / rate if rate and latency else None,
        main_type=main_type,
        ridge_points=device.ridge_points,
        is_lower_bound_of_plan=any(
            kernel.compute_seconds is None or kernel.memory_seconds is None for kernel in kernels
        ),
        at_upper_bounds=not is_exact(flops),
        assumptions=tuple(said),
        bound_seconds=latency,
    )


def _main_type(plan: KernelPlan) -> str:
    """The compute type of most of the model's multiply-accumulates."""
    by_dtype: dict[DType | None, int] = {}
    for kernel in plan.kernels:
        dtype = kernel.compute_dtype
        by_dtype[dtype] = by_dtype.get(dtype, 0) + int(kernel.macs or 0)
    work: dict[str, int] = {}
    for dtype, macs in by_dtype.items():
        label = compute_type(dtype)
        work[label] = work.get(label, 0) + macs
    return max(work, key=lambda label: work[label], default="fp32")


MOST_TERMS = 20_000
"""Kernels of different work whose times a device keeps."""

_Terms = tuple[
    float | None, float | None, float, float, Bound, float | None, float | None
]  # fmt: skip
"""Compute, memory, overhead and all seconds, bound, intensity, attainable rate."""


_Said = dict[str, None]
"""Sentences on figures that had to stand in for others, in order of first use."""


class Device:
    """A device's roofs: times kernels, equal ones once, whatever plans they are part of.

    Args:
        hardware: The device.
        peak: "vendor" or "sustained" figures.
    """

    def __init__(self, hardware: HardwareProfile, peak: PeakKind) -> None:
        self.hardware = hardware
        self.kind = peak
        self.bandwidth = hardware.bandwidth_bytes_per_second(peak)
        self.bandwidth_assumptions = hardware.bandwidth_assumptions(peak)
        self.overhead = hardware.kernel_overhead_seconds
        self._rates: dict[tuple[str, str], PeakLookup] = {}
        self._terms: dict[tuple[object, ...], tuple[_Terms, _Said]] = {}

    def rate(self, label: str, engine: Engine, said: _Said) -> tuple[float | None, bool]:
        """(operations per second of a compute type, whether they run on the matrix engine)."""
        key = (label, engine)
        found = self._rates.get(key)
        if found is None:
            found = self.hardware.peak_ops_per_second(label, engine, self.kind)
            self._rates[key] = found
        said.update(dict.fromkeys(found.assumptions))
        return found.ops_per_second, found.engine == "matrix"

    @cached_property
    def ridge_points(self) -> Mapping[str, float]:
        """FLOP/byte where the roofs meet, for each compute type of the device."""
        points = {
            label: self.hardware.ridge_point(label, "matrix", self.kind)
            for label in self.hardware.compute_types
        }
        return {label: point for label, point in points.items() if point is not None}

    def time(self, kernel: Kernel, said: _Said) -> KernelTime:
        """One kernel; a control-flow kernel is the sum of its bodies' kernels.

        Args:
            kernel: The kernel.
            said: Takes the sentences on figures that had to stand in for others.
        """
        if kernel.bodies:
            return self._bodies_time(kernel, said)
        key = (
            kernel.compute_dtype, kernel.macs, kernel.flops, kernel.transcendentals,
            kernel.input_bytes, kernel.weight_bytes, kernel.output_bytes,
        )  # fmt: skip
        known = self._terms.get(key)
        if known is None:
            if len(self._terms) >= MOST_TERMS:
                self._terms.clear()
            own: _Said = {}
            known = self._terms[key] = self._terms_of(kernel, own), own
        terms, assumed = known
        if assumed:
            said.update(assumed)
        return KernelTime(kernel.index, *terms)

    def _terms_of(self, kernel: Kernel, said: _Said) -> _Terms:
        """All but the first field of the kernel's time; equal for kernels of equal work."""
        traffic = kernel.traffic_bytes
        compute = self._compute_seconds(kernel, said)
        memory = None if traffic is None else traffic / self.bandwidth
        seconds = max(compute or 0.0, memory or 0.0) + self.overhead
        flops = kernel.flops
        intensity = flops / traffic if traffic and flops is not None else None
        return (
            compute,
            memory,
            self.overhead,
            seconds,
            _bound(compute, memory, self.overhead),
            intensity,
            self._attainable(kernel, intensity, said),
        )

    def _compute_seconds(self, kernel: Kernel, said: _Said) -> float | None:
        if kernel.macs is None or kernel.flops is None:
            return None
        # work that is only bounded is taken at its upper end, not as an interval
        macs, flops = upper(kernel.macs), upper(kernel.flops)
        if not flops:
            return 0.0
        label = compute_type(kernel.compute_dtype)
        vector, _ = self.rate(label, "vector", said)
        matrix, apart = self.rate(label, "matrix", said) if macs else (vector, False)
        if not matrix or (apart and not vector and flops > 2 * macs):
            return None
        if apart:
            other = (flops - 2 * macs) / vector if vector else 0.0
            seconds = max(2 * macs / matrix, other)
        else:
            seconds = flops / matrix
        special = self.hardware.special_function_ops_per_second
        if special and kernel.transcendentals:
            seconds = max(seconds, kernel.transcendentals / special)
        return seconds

    def _attainable(self, kernel: Kernel, intensity: float | None, said: _Said) -> float | None:
        engine: Engine = "matrix" if kernel.macs else "vector"
        peak, _ = self.rate(compute_type(kernel.compute_dtype), engine, said)
        if peak is None or intensity is None:
            return None
        return min(peak, intensity * self.bandwidth)

    def _bodies_time(self, kernel: Kernel, said: _Said) -> KernelTime:
        totals = [self._body_terms(body, said) for body in kernel.bodies]
        if any(body.alternative for body in kernel.bodies):
            totals = [max(totals, key=lambda terms: terms[3])]
        compute, memory, overhead, seconds = (sum(column) for column in zip(*totals, strict=True))
        traffic, flops = kernel.traffic_bytes, kernel.flops
        return KernelTime(
            kernel.index, compute, memory, overhead + self.overhead, seconds + self.overhead,
            _bound(compute, memory, overhead + self.overhead),
            flops / traffic if traffic and flops is not None else None, None,
        )  # fmt: skip

    def _body_terms(self, body: KernelBody, said: _Said) -> tuple[float, float, float, float]:
        times = [self.time(kernel, said) for kernel in body.plan.kernels]
        trips = float(body.trips)
        return (
            trips * sum(time.compute_seconds or 0.0 for time in times),
            trips * sum(time.memory_seconds or 0.0 for time in times),
            trips * sum(time.overhead_seconds for time in times),
            trips * sum(time.seconds for time in times),
        )


def _bound(compute: float | None, memory: float | None, overhead: float) -> Bound:
    """The largest term; unknown when a missing term might be it."""
    known = max(compute or 0.0, memory or 0.0)
    if overhead >= known and compute is not None and memory is not None:
        return Bound.OVERHEAD
    if compute is None and memory is None:
        return Bound.UNKNOWN
    return Bound.COMPUTE if (compute or 0.0) >= (memory or 0.0) else Bound.MEMORY
