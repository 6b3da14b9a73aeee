"""What one device can do: peaks by compute type and engine, bandwidth, launch overhead.

Read by the roofline stage; made from YAML by `onnxroof.hardware.read`, or by hand. Everything
is in base units (operations per second, bytes per second, bytes, seconds). This module knows
neither files nor models.

Two engines are told apart because elementwise work never runs on the fast one:

* `matrix`: multiplies matrices and nothing else (tensor cores, AMX, dot-product instructions);
* `vector`: everything else (CUDA cores, SIMD units).

Two kinds of figures stand side by side: `vendor` (the data sheet: dense, a fused multiply-add
counted as two operations) and `sustained` (what a micro-benchmark reached).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from onnxroof.errors import ProfileError
from onnxroof.units import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Engine = Literal["matrix", "vector"]
PeakKind = Literal["vendor", "sustained"]
DeviceKind = Literal["cpu", "gpu", "npu", "mcu"]
Basis = Literal["datasheet", "measurement", "publication", "derived", "assumption"]

_VENDOR: PeakKind = "vendor"

WIDER_TYPES: dict[str, tuple[str, ...]] = {
    "fp64": (),
    "fp32": ("fp64",),
    "tf32": ("fp32", "fp64"),
    "bf16": ("tf32", "fp32", "fp64"),
    "fp16": ("tf32", "fp32", "fp64"),
    "fp8": ("fp16", "bf16", "tf32", "fp32", "fp64"),
    "fp4": ("fp8", "fp16", "bf16", "tf32", "fp32", "fp64"),
    "int64": ("fp64",),
    "int32": ("int64", "fp32", "fp64"),
    "int16": ("int32", "fp32", "fp64"),
    "int8": ("int16", "fp16", "int32", "fp32", "fp64"),
    "int4": ("int8", "int16", "fp16", "int32", "fp32", "fp64"),
}
"""Every compute type, with the types that can stand in for it, the next wider one first.

An integer type may be computed in a floating-point type that holds its products exactly; for
int32 the fp32 rate stands in, since vector units add both at the same width.
"""


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak rate of one compute type on one engine."""

    compute_type: str
    vendor_ops_per_second: float
    sustained_ops_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine: what it is called on this device, and its peaks.

    `channel_multiples` are (compute type, channels it takes at once); other numbers of channels
    are padded up to a multiple.
    """

    name: str
    peaks: tuple[Peak, ...]
    channel_multiples: tuple[tuple[str, int], ...] = ()

    def peak(self, compute_type: str) -> Peak | None:
        """The peak of exactly this type, or None."""
        return next((peak for peak in self.peaks if peak.compute_type == compute_type), None)

    def scaled(self, share: float) -> EngineProfile:
        """The same engine with a share of its units."""
        peaks = tuple(
            Peak(
                peak.compute_type,
                peak.vendor_ops_per_second * share,
                _times(peak.sustained_ops_per_second, share),
            )
            for peak in self.peaks
        )
        return replace(self, peaks=peaks)

    def channel_multiple(self, compute_type: str) -> int | None:
        """Channels of this type taken at once, or None where it is not known."""
        return dict(self.channel_multiples).get(compute_type)


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One level of the memory hierarchy.

    `capacity_bytes` is the size of one instance (one core's cache); bandwidths are those of all
    instances together.
    """

    level: str
    capacity_bytes: int | None = None
    instances: int = 1
    vendor_bytes_per_second: float | None = None
    sustained_bytes_per_second: float | None = None

    def scaled(self, share: float) -> MemoryLevel:
        """The same level for a share of the cores: fewer instances, or the same shared one."""
        return replace(
            self,
            instances=max(round(self.instances * share), 1),
            vendor_bytes_per_second=_times(self.vendor_bytes_per_second, share),
            sustained_bytes_per_second=_times(self.sustained_bytes_per_second, share),
        )

    def limited(self, bytes_per_second: float | None) -> MemoryLevel:
        """The same level for readers that cannot draw more; the vendor's figure is kept."""
        if bytes_per_second is None or self.vendor_bytes_per_second is None:
            return self
        sustained = self.sustained_bytes_per_second or self.vendor_bytes_per_second
        return replace(self, sustained_bytes_per_second=min(sustained, bytes_per_second))

    def bytes_per_second(self, kind: PeakKind) -> float | None:
        """Bandwidth of this level, None where it is not known."""
        if kind == "sustained":
            return self.sustained_bytes_per_second
        return self.vendor_bytes_per_second


@dataclass(frozen=True, slots=True)
class Source:
    """Where figures come from; `covers` lists the dotted paths of the keys it stands for."""

    key: str
    title: str
    basis: Basis
    covers: tuple[str, ...]
    url: str | None = None
    where: str | None = None
    read: str | None = None


@dataclass(frozen=True, slots=True)
class PeakLookup:
    """The peak found for a request, and what had to stand in for what.

    `ops_per_second` is None when the profile has neither the type nor a wider one: then compute
    time is unknown, not zero.
    """

    profile: str
    requested_type: str
    requested_kind: PeakKind
    ops_per_second: float | None = None
    compute_type: str | None = None
    engine: Engine | None = None
    kind: PeakKind | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """One sentence per substitution; empty when the profile has just what was asked for."""
        if self.ops_per_second is None:
            return (
                f"{self.profile} has no peak for {self.requested_type} or a wider type:"
                " compute time unknown",
            )
        said: tuple[str, ...] = ()
        if self.compute_type != self.requested_type:
            said += (
                f"{self.profile} has no {self.requested_type} peak on its {self.engine} engine:"
                f" computed there in {self.compute_type}",
            )
        if self.kind != self.requested_kind:
            said += (
                f"{self.profile} has no {self.requested_kind} {self.compute_type} peak for its"
                f" {self.engine} engine: the {self.kind} figure is used",
            )
        return said


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One device. Figures hold for `threads` threads where the device has threads.

    `memory` is ordered from the nearest level to main memory, which is the last.
    `kernel_overhead_seconds` is the least the device adds between two queued kernels; what a
    framework adds belongs to the runtime, not to the device.
    `special_function_ops_per_second` is the rate of exp, log, tanh and the like; None: they run
    at the vector rate. `denormal_penalty_seconds` is what a core loses on a vector instruction
    that meets a subnormal number: 0 where there is no penalty, None where it is not known.
    `latency_constants` are (name, value) of constants of `onnxroof.latency` fitted for this device.
    """

    name: str
    title: str
    vendor: str
    kind: DeviceKind
    vector_engine: EngineProfile
    memory: tuple[MemoryLevel, ...]
    kernel_overhead_seconds: float
    runtime: str
    matrix_engine: EngineProfile | None = None
    special_function_ops_per_second: float | None = None
    denormal_penalty_seconds: float | None = None
    threads: int | None = None
    thread_variants: tuple[HardwareProfile, ...] = ()
    cores: int | None = None
    vector_bits: int | None = None
    core_bandwidth_bytes_per_second: float | None = None
    host_factor: float = 1.0
    winograd_channels: int = 1
    latency_constants: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def main_memory(self) -> MemoryLevel:
        """The last level: where every tensor comes from and goes to."""
        return self.memory[-1]

    @property
    def compute_types(self) -> tuple[str, ...]:
        """Types with a peak of their own on either engine, in the order of `WIDER_TYPES`."""
        known = {peak.compute_type for _, profile in self.engines() for peak in profile.peaks}
        return tuple(compute_type for compute_type in WIDER_TYPES if compute_type in known)

    def engines(self) -> Iterator[tuple[Engine, EngineProfile]]:
        """The engines the device has, the matrix engine first."""
        if self.matrix_engine is not None:
            yield "matrix", self.matrix_engine
        yield "vector", self.vector_engine

    def peak_ops_per_second(
        self, compute_type: str, engine: Engine, kind: PeakKind = "vendor"
    ) -> PeakLookup:
        """The rate at which work of a type runs on an engine.

        Work for the matrix engine may fall back to the vector engine, never the reverse. The
        exact type on either engine goes before a wider type: fp32 matrices on a device whose
        matrix engine has only fp16 run on the vector engine. Lacking the type, the next wider
        one is used; lacking a sustained figure, the vendor's. The result says so.

        Args:
            compute_type: A label of `WIDER_TYPES`; any other label is unknown to every profile.
            engine: Where the work could run: "matrix" for matrix products, else "vector".
            kind: "vendor" or "sustained".
        """
        for candidate in (compute_type, *WIDER_TYPES.get(compute_type, ())):
            for name, profile in self.engines():
                if engine == "vector" and name == "matrix":
                    continue
                peak = profile.peak(candidate)
                if peak is not None:
                    return self._found(compute_type, kind, name, peak)
        return PeakLookup(self.name, compute_type, kind)

    def _found(self, requested: str, kind: PeakKind, engine: Engine, peak: Peak) -> PeakLookup:
        sustained = peak.sustained_ops_per_second
        rate, used = peak.vendor_ops_per_second, _VENDOR
        if kind == "sustained" and sustained is not None:
            rate, used = sustained, kind
        return PeakLookup(self.name, requested, kind, rate, peak.compute_type, engine, used)

    def bandwidth_bytes_per_second(self, kind: PeakKind = "vendor") -> float:
        """Bandwidth of main memory; the vendor's where no sustained figure is known.

        `bandwidth_assumptions` says whether that happened.

        Raises:
            ProfileError: the last level has no bandwidth (impossible for a profile that was read
                from a file).
        """
        level = self.main_memory
        rate = level.bytes_per_second(kind) or level.vendor_bytes_per_second
        if rate is None:
            raise ProfileError(f"profile {self.name}: main memory {level.level} has no bandwidth")
        return rate

    def bandwidth_assumptions(self, kind: PeakKind) -> tuple[str, ...]:
        """A sentence if the bandwidth of this kind had to be replaced by the vendor's."""
        if self.main_memory.bytes_per_second(kind) is not None:
            return ()
        return (f"{self.name} has no {kind} bandwidth: the vendor figure is used",)

    def ridge_point(
        self, compute_type: str, engine: Engine, kind: PeakKind = "vendor"
    ) -> float | None:
        """Arithmetic intensity where the roofs meet, in FLOP/byte; None if the peak is unknown.

        Formula:
            ridge point = peak ÷ bandwidth of main memory, both of one kind.

        Source:
            Williams, Waterman, Patterson: Roofline. CACM 52(4), 2009.
        """
        rate = self.peak_ops_per_second(compute_type, engine, kind).ops_per_second
        return None if rate is None else rate / self.bandwidth_bytes_per_second(kind)

    def for_threads(self, threads: int) -> HardwareProfile:
        """The same device with another number of threads.

        Figures of the profile's own for this many threads are taken; otherwise, for fewer threads
        than the main figures hold for, compute and the caches scale with the cores, and bandwidth
        is what that many cores can draw.

        Raises:
            ProfileError: the device has no threads, or no figures for this many.
        """
        if threads == self.threads:
            return self
        for variant in self.thread_variants:
            if variant.threads == threads:
                return variant
        if self.threads is None:
            raise ProfileError(f"profile {self.name} has no threads to choose ({self.kind})")
        if self.cores is not None and 0 < threads < self.threads:
            return self._scaled(threads)
        counts = sorted({self.threads, *(v.threads or 0 for v in self.thread_variants)})
        listed = ", ".join(map(str, counts))
        fewer = f", and fewer than {self.threads} are scaled" if self.cores is not None else ""
        raise ProfileError(
            f"profile {self.name} has no figures for {threads} threads; it has: {listed}{fewer}"
        )

    def _scaled(self, threads: int) -> HardwareProfile:
        """Figures for fewer threads, each on a core of its own while cores last."""
        cores = self.cores or 1
        used = min(threads, cores)
        share = used / cores
        core_bandwidth = self.core_bandwidth_bytes_per_second
        drawn = None if core_bandwidth is None else core_bandwidth * used
        return replace(
            self,
            threads=threads,
            cores=used,
            vector_engine=self.vector_engine.scaled(share),
            matrix_engine=None if self.matrix_engine is None else self.matrix_engine.scaled(share),
            special_function_ops_per_second=_times(self.special_function_ops_per_second, share),
            memory=(
                *(level.scaled(share) for level in self.memory[:-1]),
                self.main_memory.limited(drawn),
            ),
            thread_variants=(),
        )

    def sources_of(self, path: str) -> tuple[Source, ...]:
        """The sources of a key and of everything below it, e.g. "memory.dram"."""
        return tuple(
            source
            for source in self.sources
            if any(is_prefix(cover, path) or is_prefix(path, cover) for cover in source.covers)
        )


def told_apart(profiles: Sequence[HardwareProfile]) -> tuple[HardwareProfile, ...]:
    """The devices with a number behind the names of those that are called like one before."""
    names = distinct([profile.name for profile in profiles])
    return tuple(
        [
            profile if profile.name == name else _named(profile, name)
            for profile, name in zip(profiles, names, strict=True)
        ]
    )


@lru_cache(maxsize=64)
def _named(profile: HardwareProfile, name: str) -> HardwareProfile:
    """The device under another name; the same object every time, since prices are kept by it."""
    return replace(profile, name=name)


def is_prefix(prefix: str, path: str) -> bool:
    """Whether a dotted path is the other or leads to it: "memory" leads to "memory.dram"."""
    return path == prefix or path.startswith(prefix + ".")


def _times(rate: float | None, share: float) -> float | None:
    return None if rate is None else rate * share
