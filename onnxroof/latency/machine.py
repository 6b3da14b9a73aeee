"""`HardwareProfile` → `Machine`: a device's figures as the latency model uses them.

Everything beyond peaks, bandwidth and cache sizes has a default by kind of device, so that a
profile copied from a data sheet works.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxroof.hardware.profile import Engine, HardwareProfile

_FLOPS_PER_GPU_CORE = 0.25e12
"""fp32 FLOP/s of one multiprocessor: 0.2 (Volta, Turing) to 0.5 (Ada) · 10¹²."""

_VECTOR_BITS = {"cpu": 256, "gpu": 1024, "npu": 1024, "mcu": 32}
"""Width of a vector register: AVX2, a warp of 32 fp32 lanes, …"""

_LEVEL_SPEED_UP = 2.5
"""Bandwidth of a cache whose bandwidth is not known, over that of the next level further out."""

_CORE_SHARE = 0.25
"""Share of main memory's bandwidth that one core draws where the profile does not say."""

_PEAK_SHARE = {"cpu": 0.9, "gpu": 0.94, "npu": 0.94, "mcu": 1.0}
"""Sustained over vendor peak where no sustained figure is known (V100 fp32: 0.94)."""

KERNEL_FLOOR_SECONDS = {"cpu": 0.0, "gpu": 4e-6, "npu": 4e-6, "mcu": 0.0}
"""Least time a queued kernel runs: reading its arguments, one trip to memory, draining (V100: an
empty kernel runs 2.9 µs in a CUDA graph, short real ones 5 µs)."""

_BANDWIDTH_SHARE = {"cpu": 0.8, "gpu": 0.92, "npu": 0.92, "mcu": 1.0}
"""Sustained over vendor bandwidth where no sustained figure is known (V100: 0.92)."""


@dataclass(slots=True)
class Machine:
    """One device with a number of threads.

    Attributes:
        kind: Sort of device.
        cores: Multiprocessors of a GPU, cores in use of a processor.
        lanes: fp32 elements of a vector register.
        bandwidth: Sustained bytes per second of main memory.
        levels: (bytes, bytes per second) of each cache, the nearest first, all instances.
        core_bandwidth: Bytes per second that one core can draw.
        launch_seconds: Device time between two queued kernels.
        host_factor: The host's time for framework code over that of the reference host.
        special: Transcendentals per second, None: at the vector rate.
        is_cpu: A processor: no launch queue, threads, vectors.
    """

    hardware: HardwareProfile
    kind: str
    cores: int
    lanes: int
    bandwidth: float
    levels: tuple[tuple[int, float], ...]
    core_bandwidth: float
    launch_seconds: float
    host_factor: float
    special: float | None
    is_cpu: bool = field(init=False)
    _rates: dict[tuple[str, Engine], float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.is_cpu = self.kind in ("cpu", "mcu")

    def rate(self, label: str, engine: Engine) -> float | None:
        """Sustained operations per second of a compute type; None when not known."""
        key = (label, engine)
        if key not in self._rates:
            found = self.hardware.peak_ops_per_second(label, engine, "sustained")
            rate = found.ops_per_second
            if rate is not None and found.kind == "vendor":
                rate *= _PEAK_SHARE[self.kind]
            self._rates[key] = rate
        return self._rates[key]

    def index_rate(self) -> float | None:
        """32-bit integer operations per second: address arithmetic."""
        return self.rate("int32", "vector")


def machine_of(hardware: HardwareProfile) -> Machine:
    """The device as the model sees it."""
    kind = hardware.kind
    far = hardware.main_memory
    bandwidth = far.sustained_bytes_per_second or (
        hardware.bandwidth_bytes_per_second() * _BANDWIDTH_SHARE[kind]
    )
    cores = hardware.cores or _cores(hardware)
    return Machine(
        hardware=hardware,
        kind=kind,
        cores=cores,
        lanes=max((hardware.vector_bits or _VECTOR_BITS[kind]) // 32, 1),
        bandwidth=bandwidth,
        levels=_levels(hardware, bandwidth),
        core_bandwidth=hardware.core_bandwidth_bytes_per_second
        or max(bandwidth * _CORE_SHARE, bandwidth / cores),
        launch_seconds=hardware.kernel_overhead_seconds,
        host_factor=hardware.host_factor,
        special=hardware.special_function_ops_per_second,
    )


def _cores(hardware: HardwareProfile) -> int:
    """Cores where the profile does not say: threads, or multiprocessors by their peak."""
    if hardware.threads is not None:
        return hardware.threads
    if hardware.kind == "gpu":
        nearest = hardware.memory[0]
        if nearest.instances > 1:
            return nearest.instances
        peak = hardware.peak_ops_per_second("fp32", "vector").ops_per_second or 0.0
        return max(round(peak / _FLOPS_PER_GPU_CORE), 1)
    return 1


def _levels(hardware: HardwareProfile, bandwidth: float) -> tuple[tuple[int, float], ...]:
    """(bytes, bandwidth) of each cache of known size, the nearest first."""
    levels: list[tuple[int, float]] = []
    outer = bandwidth
    for level in reversed(hardware.memory[:-1]):
        known = level.sustained_bytes_per_second or level.vendor_bytes_per_second
        outer = known or outer * _LEVEL_SPEED_UP
        if level.capacity_bytes is not None:
            levels.append((level.capacity_bytes * level.instances, outer))
    return tuple(reversed(levels))
