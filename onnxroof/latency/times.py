"""`Work` → seconds: compute, memory, launch and host time of one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onnxroof.latency.machine import KERNEL_FLOOR_SECONDS
from onnxroof.latency.products import (
    convolution,
    depthwise_seconds,
    product_seconds,
    serial_seconds,
)
from onnxroof.latency.work import WorkClass
from onnxroof.roofline import Bound

if TYPE_CHECKING:
    from onnxroof.latency.constants import Constants
    from onnxroof.latency.machine import Machine
    from onnxroof.latency.runtime import Execution
    from onnxroof.latency.work import Product, Work


class KernelLatency(NamedTuple):
    """Expected time of one kernel, term by term.

    Attributes:
        compute_seconds: Arithmetic by the algorithm chosen, padding and idle cores included.
        memory_seconds: Traffic at the level it is found in, layout copies included.
        overhead_seconds: Launch on the device, or start and join of threads.
        host_seconds: Framework time of its operator.
        seconds: All together.
        bound: The largest term; host time is overhead.
        algorithm: How products are computed; "" without products.
    """

    compute_seconds: float
    memory_seconds: float
    overhead_seconds: float
    host_seconds: float
    seconds: float
    bound: Bound
    algorithm: str


MOST_KERNELS = 100_000
"""Prices that are kept before starting afresh, so that a long search does not fill memory."""


def largest(compute: float, memory: float, overhead: float) -> Bound:
    """Which of the terms is the largest."""
    if overhead >= max(compute, memory):
        return Bound.OVERHEAD
    return Bound.COMPUTE if compute >= memory else Bound.MEMORY


class Timer:
    """Prices kernels on one device under one runtime."""

    __slots__ = ("_prices", "constants", "execution", "machine")

    def __init__(self, machine: Machine, execution: Execution, constants: Constants) -> None:
        self.machine = machine
        self.execution = execution
        self.constants = constants
        self._prices: dict[tuple[Work, float], KernelLatency | None] = {}

    def price(self, work: Work, floor: float = 0.0) -> KernelLatency | None:
        """The expected time, looked up where the same was asked before."""
        key = (work, floor)
        known = self._prices.get(key)
        if known is None:
            if len(self._prices) >= MOST_KERNELS:
                self._prices.clear()
            known = self._prices[key] = self.time(work, floor)
        return known

    def time(self, work: Work, floor: float = 0.0) -> KernelLatency | None:
        """The expected time; None where the device's rate for the type is not known.

        Args:
            work: What the kernel does.
            floor: The roofline bound of the kernel; the expectation is never below it unless a
                faster algorithm does the products.
        """
        arithmetic = self._arithmetic(work)
        if arithmetic is None:
            return None
        compute, algorithm, extra_bytes, launches, threads = arithmetic
        memory = self._memory(work, extra_bytes, threads)
        shorter, longer = (compute, memory) if compute < memory else (memory, compute)
        body = longer + self.constants.exposed * shorter
        host = self._host(work) * self.machine.host_factor
        if self.machine.is_cpu:
            started = self.execution.thread_start_seconds * self.machine.host_factor
            overhead = self.machine.launch_seconds + (started if threads > 1 else 0.0)
            seconds = body + overhead * launches + host
        else:
            overhead = self.machine.launch_seconds * launches
            device = max(body, KERNEL_FLOOR_SECONDS[self.machine.kind] * launches) + overhead
            seconds = max(device, host) if self.execution.overlaps_host else device + host
        if not algorithm.startswith(("Winograd", "FFT")):
            seconds = max(seconds, floor)
        bound = largest(compute, memory, max(overhead, host))
        return KernelLatency(compute, memory, overhead, host, seconds, bound, algorithm)

    def _arithmetic(self, work: Work) -> tuple[float, str, float, int, int] | None:
        """(seconds, algorithm, extra bytes, launches, threads)."""
        machine, constants = self.machine, self.constants
        vector = machine.rate(work.dtype, "vector")
        matrix = machine.rate(work.dtype, "matrix") if work.products else vector
        if matrix is None or vector is None:
            return None
        if machine.is_cpu:
            shared = 1.0 + constants.parallel_loss * (machine.cores - 1)
            matrix, vector = matrix / shared, vector / shared
        seconds, extra, side, algorithm, launches = 0.0, 0.0, 0.0, "", 1
        threads = self._threads(work)
        for product in work.products:
            if self._is_serial(product):
                seconds += serial_seconds(product, matrix, machine, constants)
                algorithm, threads = "im2col, one core", 1
                continue
            done, algorithm, more, count = self._product(work, product, matrix, vector)
            seconds, extra, launches = seconds + done, extra + more, max(launches, count)
        if not work.products:
            side = work.side_flops / vector
        if work.kind is WorkClass.POOLING:
            side = self._pooling(work, vector)
        if work.transcendentals:
            special = machine.special or vector / constants.transcendental_slots
            side = max(side, work.transcendentals / special)
        if machine.is_cpu:
            side *= machine.cores / threads
        return seconds + side, algorithm, extra, launches, threads

    def _product(
        self, work: Work, product: Product, matrix: float, vector: float
    ) -> tuple[float, str, float, int]:
        machine, execution, constants = self.machine, self.execution, self.constants
        element = _element_bytes(work)
        if not product.window:
            size = (product.batch, product.m, product.n, product.k)
            once = product_seconds(*size, matrix, machine, constants)
            return once * product.steps, "GEMM", 0.0, product.steps
        if self._loops(product):
            single = product._replace(batch=1)
            timed = convolution(single, matrix, machine, execution, constants)
            count = product.batch * (product.images if execution.lowers_convolutions else 1)
            extra = timed.extra_elements * element * product.batch
            return timed.seconds * product.batch, "one product a group", extra, count
        reorder = self._reordered(work, product, element)
        if product.is_depthwise:
            if self._is_reference(product):
                slow = product.input_elements * constants.reference_seconds * machine.host_factor
                return slow, "depthwise, reference", 0.0, 1
            seconds = depthwise_seconds(product, vector, machine, constants)
            return seconds + reorder, "depthwise", 0.0, 1
        copies = execution.copies_layouts and matrix > vector
        moved = work.input_bytes + work.output_bytes if copies else 0
        timed = convolution(
            product, matrix, machine, execution, constants, on_matrix_engine=matrix > vector
        )
        if execution.reorders_weights:
            reorder += self._weights_reordered(work, element)
        count = max(product.images, 1) if execution.lowers_convolutions else 1
        extra = moved + timed.extra_elements * element
        return timed.seconds + reorder, timed.algorithm, extra, count

    def _loops(self, product: Product) -> bool:
        """Whether groups run one after the other; a depthwise kernel takes them all at once."""
        if product.batch == 1 or not self.execution.loops_over_groups:
            return False
        return product.is_grouped or self.execution.lowers_convolutions

    def _reordered(self, work: Work, product: Product, element: int) -> float:
        """Seconds in which activations change layout around a convolution."""
        if not self.execution.reorders_activations:
            return 0.0
        moved = product.input_elements * element + work.output_bytes
        rate = self.constants.activation_reorder_bytes_per_second * self.machine.cores
        return moved / rate

    def _weights_reordered(self, work: Work, element: int) -> float:
        """Seconds in which weights change layout, on as many cores as they are worth."""
        parts = work.weight_bytes // element // self.constants.serial_elements
        cores = max(min(parts, self.machine.cores), 1)
        return work.weight_bytes / (cores * self.constants.reorder_bytes_per_second)

    def _is_serial(self, product: Product) -> bool:
        return (
            bool(product.window)
            and product.batch == 1
            and product.images == 1
            and product.input_elements <= self.execution.serial_convolution_elements
        )

    def _is_reference(self, product: Product) -> bool:
        """A blocked layout that would be padded by a quarter or more is not used."""
        lanes = self.machine.lanes
        padding = -product.batch % lanes
        return not self.execution.pads_depthwise and padding * 4 >= product.batch + padding

    def _threads(self, work: Work) -> int:
        machine = self.machine
        if not machine.is_cpu:
            return machine.cores
        if work.products:
            return machine.cores
        parts = work.elements // self.constants.serial_elements
        return max(min(machine.cores, parts), 1)

    def _pooling(self, work: Work, vector: float) -> float:
        constants = self.constants
        touched = work.output_bytes / _element_bytes(work) * work.window
        index = (self.machine.index_rate() or vector) / 2
        return touched * (
            constants.pooling_slots / (vector / 2) + constants.pooling_index_slots / index
        )

    def _memory(self, work: Work, extra_bytes: float, threads: int) -> float:
        machine = self.machine
        activations = work.input_bytes + work.output_bytes
        bandwidth = self._bandwidth(activations, threads)
        share = self._share(work)
        seconds = (activations + extra_bytes) / (bandwidth * share)
        seconds += work.weight_bytes / (self._bandwidth_far(threads) * self.constants.weight_share)
        if machine.is_cpu and work.op_type == "BatchNormalization":
            channels = work.weight_bytes / (4 * _element_bytes(work))
            seconds += channels * self.constants.channel_seconds * machine.host_factor
        return seconds

    def _bandwidth(self, nbytes: int, threads: int) -> float:
        """Bytes per second at the nearest level that holds so many bytes."""
        machine = self.machine
        part = threads / machine.cores if machine.is_cpu else 1.0
        for capacity, rate in machine.levels:
            if nbytes <= capacity * self.constants.cache_share:
                return rate * part
        return self._bandwidth_far(threads)

    def _bandwidth_far(self, threads: int) -> float:
        """Bytes per second of main memory, for as many cores."""
        machine = self.machine
        if machine.is_cpu:
            return min(machine.bandwidth, threads * machine.core_bandwidth)
        return machine.bandwidth

    def _share(self, work: Work) -> float:
        constants = self.constants
        if work.op_type == "BatchNormalization":
            return constants.batch_normalization_share
        if work.kind is WorkClass.NORMALIZATION:
            return constants.normalization_share
        if work.kind is WorkClass.SOFTMAX:
            return constants.softmax_share
        if work.kind is WorkClass.REDUCTION:
            return constants.reduction_share
        if work.kind is WorkClass.COPY:
            return constants.copy_share
        return constants.elementwise_share

    def _host(self, work: Work) -> float:
        host = self.execution.host
        if work.products:
            return host.convolution if work.products[0].window else host.product
        if work.op_type == "BatchNormalization" or work.kind is WorkClass.NORMALIZATION:
            return host.normalization
        return host.copy if work.kind is WorkClass.COPY else host.other


def _element_bytes(work: Work) -> int:
    return _BYTES.get(work.dtype, 4)


_BYTES = {
    "fp64": 8, "int64": 8, "fp32": 4, "int32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int16": 2,
    "fp8": 1, "int8": 1, "int4": 1, "fp4": 1,
}  # fmt: skip
