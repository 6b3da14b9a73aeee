"""Fourier transforms and matrix inversion.

A complex transform of length n is charged 5·n·log₂n operations: n/2·log₂n radix-2 butterflies of
one complex product (6) and two complex sums (4). Lengths that are no power of two are charged
with ⌈log₂n⌉. A transform between real and one-sided data costs half. Twiddle factors are tables.
Source of the convention: J. Cooley, J. Tukey, 1965; M. Frigo, S. Johnson, "benchFFT" (FFTW).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import ends, interval, largest, lower, smallest, upper
from onnxroof.ops.call import Impossible, OpCost
from onnxroof.ops.geometry import normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, TensorInfo


def transform_flops(length: int, *, real: bool = False) -> int:
    """Operations of one Fourier transform: 5·n·⌈log₂n⌉, half of it (rounded up) when real."""
    low, high = (5 * end * max(end - 1, 0).bit_length() for end in ends(length))
    flops = interval(low, high)
    return -(-flops // 2) if real else flops


# -- DFT --------------------------------------------------------------------------------------


@shape_rule("DFT")
def dft_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The signal axis becomes n, or n//2 + 1 when one-sided; the last axis 2, or 1 if real."""
    x = call.input(0)
    axis, length = _dft_axis_and_length(call)
    onesided, inverse = call.attr("onesided", 0) == 1, call.attr("inverse", 0) == 1
    dims = list(x.dims)
    dims[axis] = length // 2 + 1 if onesided and not inverse else length
    dims[-1] = 1 if onesided and inverse else 2
    return [x.like(tuple(dims))]


def _dft_axis_and_length(call: OpCall) -> tuple[int, int]:
    """(position of the signal axis, transform length)."""
    x = call.input(0)
    if x.rank < 2:
        raise Impossible("the input needs a signal axis and a last axis of real and imaginary part")
    if call.has(2):
        (axis,) = call.exact_ints(2, "the axis")
    else:
        axis = call.attr("axis", 1) if call.opset < 20 else -2
    axis = normalize_axis(axis, x.rank)
    if axis == x.rank - 1:
        raise Impossible("the last axis holds real and imaginary part and cannot be transformed")
    if call.has(1):
        (length,) = call.ints(1, "the transform length")
        return axis, length
    if call.attr("onesided", 0) and call.attr("inverse", 0):
        return axis, 2 * (x.dims[axis] - 1)
    return axis, x.dims[axis]


@cost_rule("DFT")
def dft_cost(call: OpCall) -> OpCost:
    """Discrete Fourier transform along one axis.

    Shapes
        input [*, D, 1 or 2]    output [*, n, 2], one-sided [*, n//2 + 1, 2]
    Formula
        flops = transforms · 5·n·⌈log₂n⌉, half of it when one-sided; inverse: one division per
        number of the output more
    Convention
        A fast transform is charged, whatever the length.
    Source
        ONNX operator reference, DFT; operation count by Cooley and Tukey.
    """
    axis, length = _dft_axis_and_length(call)
    dims = call.shape(0)
    transforms = math.prod(dims[:axis]) * math.prod(dims[axis + 1 : -1])
    flops = transforms * transform_flops(length, real=call.attr("onesided", 0) == 1)
    if call.attr("inverse", 0):
        flops = flops + call.output().elements
    return OpCost(0, flops)


declare("DFT", control=(1, 2))


# -- STFT -------------------------------------------------------------------------------------


@shape_rule("STFT")
def stft_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, frames, n//2 + 1 or n, 2] with frames = ⌊(L − n) / step⌋ + 1."""
    signal = call.input(0)
    frames, length = _frames(call)
    bins = length // 2 + 1 if call.attr("onesided", 1) else length
    return [signal.like((signal.dims[0], frames, bins, 2))]


def _frames(call: OpCall) -> tuple[int, int]:
    """(number of frames, frame length)."""
    signal = call.shape(0)
    if len(signal) < 2:
        raise Impossible("the signal must be [batch, length, 1 or 2]")
    (step,) = call.ints(1, "the frame step")
    if call.has(3):
        (length,) = call.ints(3, "the frame length")
    else:
        length = call.shape(2)[0] if call.has(2) else signal[1]
    if upper(step) < 1:
        raise Impossible(f"the frame step must be positive, got {step}")
    if lower(length) > upper(signal[1]):
        raise Impossible(f"a frame of {length} is longer than the signal of {signal[1]}")
    step = largest(step, 1) if lower(step) < 1 else step
    return (signal[1] - length) // step + 1, length


@cost_rule("STFT")
def stft_cost(call: OpCall) -> OpCost:
    """A windowed transform of every frame.

    Shapes
        signal [B, L, 1 or 2]    window [n]    output [B, frames, bins, 2]
    Formula
        flops = B · frames · (5·n·⌈log₂n⌉, half of it when one-sided, + n · parts for the window)
        with 1 part for a real, 2 for a complex signal
    Source
        ONNX operator reference, STFT; operation count by Cooley and Tukey.
    """
    signal = call.shape(0)
    frames, length = _frames(call)
    parts = signal[2] if len(signal) > 2 else 1
    per_frame = transform_flops(length, real=call.attr("onesided", 1) != 0)
    if call.has(2):
        per_frame = per_frame + length * parts
    return OpCost(0, signal[0] * frames * per_frame)


declare("STFT", control=(1, 3))


# -- ONNX Runtime's transforms ----------------------------------------------------------------


@shape_rule("Rfft", domain=MICROSOFT)
def rfft_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*, n//2 + 1, 2] from X [*, n]."""
    x = call.input(0)
    return [x.like((*x.dims[:-1], x.dims[-1] // 2 + 1, 2))]


@cost_rule("Rfft", domain=MICROSOFT)
def rfft_cost(call: OpCall) -> OpCost:
    """Transform of real rows over the last signal_ndim axes.

    Formula
        flops = rows · ⌈5·n·⌈log₂n⌉ / 2⌉ along the last axis, and 5·m·⌈log₂m⌉ per column along each
        further axis of m, over the one-sided columns
    Source
        ONNX Runtime contrib operators, Rfft; operation count by Cooley and Tukey.
    """
    return OpCost(0, _real_transform_flops(call, call.shape(0)))


@shape_rule("Irfft", domain=MICROSOFT)
def irfft_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [*, 2·(m − 1)] from X [*, m, 2]."""
    x = call.input(0)
    if x.rank < 2:
        raise Impossible("the input must end in [bins, 2]")
    return [x.like((*x.dims[:-2], 2 * (x.dims[-2] - 1)))]


@cost_rule("Irfft", domain=MICROSOFT)
def irfft_cost(call: OpCall) -> OpCost:
    """Transform back to real rows of n.

    Formula
        flops as Rfft for the rows of the output, plus one division per element of Y
    Source
        ONNX Runtime contrib operators, Irfft; operation count by Cooley and Tukey.
    """
    y = call.output()
    return OpCost(0, _real_transform_flops(call, y.dims) + y.elements)


def _real_transform_flops(call: OpCall, real: tuple[int, ...]) -> int:
    """Operations of a transform of real data of shape `real` over its last signal_ndim axes."""
    axes = smallest(max(call.attr("signal_ndim", 1), 1), len(real))
    length = real[-1]
    flops = math.prod(real[:-1]) * transform_flops(length, real=True)
    half = (*real[:-1], length // 2 + 1)
    for axis in range(len(real) - axes, len(real) - 1):
        columns = math.prod(half[:axis]) * math.prod(half[axis + 1 :])
        flops = flops + columns * transform_flops(half[axis])
    return flops


# -- Inverse ----------------------------------------------------------------------------------


@shape_rule("Inverse", domain=MICROSOFT)
def inverse_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X, square matrices [*, n, n]."""
    dims = call.shape(0)
    if len(dims) < 2 or upper(dims[-1]) != upper(dims[-2]):
        raise Impossible("the input must hold square matrices")
    return [call.input(0).like()]


@cost_rule("Inverse", domain=MICROSOFT)
def inverse_cost(call: OpCall) -> OpCost:
    """Inversion of n × n matrices by LU factors.

    Formula
        flops = matrices · (4·n³ − 3·n² + 5·n) / 2
    Source
        LAPACK Working Note 41, operation counts of xGETRF (2/3·n³ − n²/2 + 5/6·n) and xGETRI
        (4/3·n³ − n² + 5/3·n), added.
    """
    dims = call.shape(0)
    n = dims[-1]
    return OpCost(0, math.prod(dims[:-2]) * (n * (4 * n * n - 3 * n + 5) // 2))
