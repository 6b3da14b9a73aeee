"""What a runtime makes of a device: its fusions, its algorithms, the time its own code takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxroof.hardware.profile import DeviceKind, Source


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Seconds the framework spends on one kernel of each class, on a reference host."""

    other: float
    product: float
    convolution: float
    normalization: float
    copy: float


@dataclass(frozen=True, slots=True)
class Execution:
    """How a runtime runs on one sort of device.

    Attributes:
        host: Framework time by class of operator.
        overlaps_host: Host time passes beside device time: a kernel takes the longer of the two.
        thread_start_seconds: Starting and joining the threads of a parallel kernel.
        winograd_tile: Side of the output tile of its Winograd convolution; 0: it has none.
        has_fft: It has convolution by Fourier transform.
        lowers_convolutions: It writes the im2col matrix to memory, one image at a time.
        loops_over_groups: A grouped convolution is one product a group, one after the other;
            with `lowers_convolutions` a depthwise one too.
        reorders_weights: Weights of convolutions change layout at every call.
        reorders_activations: Activations change layout around every convolution.
        times_kernels: Kernels are chosen by timing them, so that narrow tiles are found; heuristics
            choose wide ones.
        copies_layouts: Convolutions on the matrix engine copy activations to channels-last.
        pads_depthwise: Depthwise kernels take channels that fill no whole vector; otherwise those
            with a quarter or more of padding run in a reference kernel.
        serial_convolution_elements: Convolutions with an input of at most so many elements run
            on one core, lowered.
    """

    host: HostTimes
    overlaps_host: bool = False
    thread_start_seconds: float = 0.0
    winograd_tile: int = 0
    has_fft: bool = False
    lowers_convolutions: bool = False
    loops_over_groups: bool = False
    reorders_weights: bool = False
    reorders_activations: bool = False
    times_kernels: bool = False
    copies_layouts: bool = False
    pads_depthwise: bool = True
    serial_convolution_elements: int = 0


@dataclass(frozen=True, slots=True)
class RuntimeProfile:
    """A runtime: the fusion set it applies, and how it runs on processors and accelerators.

    `has_times` is False for a fusion set on its own, of which no time is expected.
    """

    name: str
    title: str
    fusion: str
    cpu: Execution
    accelerator: Execution
    notes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    has_times: bool = True

    def on(self, kind: DeviceKind) -> Execution:
        """How it runs on a sort of device; microcontrollers count as processors."""
        return self.cpu if kind in ("cpu", "mcu") else self.accelerator


_MICRO = 1e-6

PLAIN = Execution(HostTimes(*(5 * _MICRO,) * 5), thread_start_seconds=5 * _MICRO)
"""A runtime of which nothing else is known, on a processor."""

QUEUED = Execution(HostTimes(*(5 * _MICRO,) * 5), overlaps_host=True, winograd_tile=2)
"""A runtime of which nothing else is known, on an accelerator."""


def generic(name: str) -> RuntimeProfile:
    """A runtime that is no more than a fusion set."""
    title = f"fusion set {name}, nothing else known"
    return RuntimeProfile(name, title, name, PLAIN, QUEUED, has_times=False)
