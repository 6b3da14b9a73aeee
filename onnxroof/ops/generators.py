"""Tensors made from sizes alone: constants, ranges, one-hot codes, random numbers, windows.

Random generators count one operation per number drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import ends, interval, is_exact, largest, upper
from onnxroof.graph.types import Constant, DType
from onnxroof.graph.values import NUMPY_TYPE
from onnxroof.ops.arithmetic import is_bounded
from onnxroof.ops.call import FREE, Impossible, OpCost, TensorInfo, Undetermined, unless_none
from onnxroof.ops.element_types import dtype_attr
from onnxroof.ops.geometry import ceil_div, normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule, value_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Value

_LARGEST_VALUE = 4096
_COUNTS = "counts, no arithmetic on data"
_WINDOWS = ("BlackmanWindow", "HammingWindow", "HannWindow")

declare("ConstantOfShape", control=(0,), sizes=(0,), free="fills its output with one value")
declare("EyeLike", free="writes ones and zeros")
declare("OneHot", control=(1, 2), sizes=(1,), free="writes two given values by index")
declare("Range", control=(0, 1, 2), sizes=(0, 1), free="counts, no arithmetic on data")
declare(
    "Range", domain=MICROSOFT, control=(0, 1, 2), sizes=(0, 1), free="counts, no arithmetic on data"
)
declare("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", random=True)
declare("Bernoulli", random=True, pointwise=True)
declare("Multinomial", random=True)
declare(*_WINDOWS, control=(0,), sizes=(0,))
declare("MelWeightMatrix", control=(0, 1, 2, 3, 4), sizes=(0, 1))


# -- constants and ranges --------------------------------------------------------------------


@shape_rule("ConstantOfShape")
def constant_of_shape_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape the input names, in the type of the attribute `value` (float zero by default)."""
    shape = call.ints(0, "the shape")
    if any(upper(dim) < 0 for dim in shape):
        raise Impossible(f"a size cannot be negative: {list(shape)}")
    fill = call.attributes.get("value")
    return (TensorInfo(fill.dtype if isinstance(fill, Constant) else DType.FLOAT, shape),)


@value_rule("ConstantOfShape")
def constant_of_shape_value(call: OpCall) -> Sequence[Value | None]:
    """The value everywhere."""
    shape, fill = call.outputs[0].dims, call.attributes.get("value")
    if not all(map(is_exact, shape)):
        return (None,)
    if not isinstance(fill, Constant):
        return (np.zeros(shape, np.float32),)
    if fill.value is None:
        return (None,)
    return (np.full(shape, fill.value.ravel()[0], dtype=fill.value.dtype),)


@shape_rule("Range")
@shape_rule("Range", domain=MICROSOFT)
def range_shape(call: OpCall) -> Sequence[TensorInfo]:
    """max(⌈(limit − start) / delta⌉, 0) elements of the type of start.

    Of floating-point numbers in double precision, whatever their type, as runtimes do.
    """
    return (call.input(0).like((_range_length(call),)),)


@value_rule("Range")
@value_rule("Range", domain=MICROSOFT)
def range_value(call: OpCall) -> Sequence[Value | None]:
    """Elements start + i · delta."""
    length = call.outputs[0].dims[0]
    dtype = call.outputs[0].dtype
    target = NUMPY_TYPE.get(dtype) if dtype is not None else None
    start, delta = _scalar(call, 0, "start"), _delta(call)
    if target is None or not is_exact(length) or length > _LARGEST_VALUE:
        return (None,)
    if is_bounded(start) or is_bounded(delta):
        return (None,)
    steps = np.arange(length, dtype=np.float64 if np.issubdtype(target, np.floating) else np.int64)
    return (np.asarray(np.add(start, np.multiply(steps, delta))).astype(target),)


def _range_length(call: OpCall) -> int:
    start, limit, delta = _scalar(call, 0, "start"), _scalar(call, 1, "limit"), _delta(call)
    step = delta.item()
    if ends(step) == (0, 0):
        raise Impossible("delta must not be zero")
    if any(np.issubdtype(value.dtype, np.floating) for value in (start, limit, delta)):
        return max(math.ceil((float(limit) - float(start)) / float(step)), 0)
    return largest(ceil_div(limit.item() - start.item(), step), 0)


def _delta(call: OpCall) -> Value:
    """The increment; com.microsoft.Range may omit it."""
    return _scalar(call, 2, "delta") if call.has(2) else np.asarray(1)


def _size(call: OpCall, position: int, what: str) -> int:
    """A control input that is one size, perhaps bounded, perhaps stored as a float.

    Raises:
        Impossible: It is negative.
    """
    number = _scalar(call, position, what).item()
    size = number if isinstance(number, int) else int(number)
    if upper(size) < 0:
        raise Impossible(f"{what} cannot be negative: {size}")
    return size


def _scalar(call: OpCall, position: int, what: str) -> Value:
    """The only element of a control input, as an array without axes."""
    value = call.value(position)
    if value is None:
        call.input(position)
        raise Undetermined(f"{what} (input {position}) is computed at run time")
    if value.size != 1:
        raise Impossible(f"{what} must be one number, got {value.size}")
    return value.reshape(())


@shape_rule("EyeLike")
def eye_like_shape(call: OpCall) -> Sequence[TensorInfo]:
    """A matrix of the input's shape, in the type `dtype`, else the input's."""
    source = call.input(0)
    if source.shape is not None and len(source.shape) != 2:
        raise Impossible(f"the input must be a matrix, got {len(source.shape)} dimensions")
    return (source.like(dtype=dtype_attr(call, "dtype", source.dtype)),)


@shape_rule("OneHot")
def one_hot_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of indices with an axis of size depth inserted (last by default)."""
    indices = call.shape(0)
    axis = normalize_axis(call.attr("axis", -1), len(indices) + 1)
    depth = _size(call, 1, "depth")
    return (call.input(2).like((*indices[:axis], depth, *indices[axis:])),)


@cost_rule("ConstantOfShape", "OneHot", "Range")
@cost_rule("Range", domain=MICROSOFT)
def filled_cost(call: OpCall) -> OpCost:
    """Free of arithmetic on data: sizes or indices in, the tensor out."""
    call.output()
    return FREE


@cost_rule("EyeLike")
def eye_like_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: ones and zeros are written.

    Traffic
        of the input only its shape is used: nothing is read
    """
    call.output()
    return OpCost(reads={0: 0})


# -- random numbers --------------------------------------------------------------------------


@shape_rule("RandomNormal", "RandomUniform")
def random_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The attribute `shape`, in the type `dtype` (float by default)."""
    shape = call.ints_attr("shape")
    if shape is None:
        raise Impossible("attribute shape is missing")
    return (TensorInfo(dtype_attr(call, "dtype", DType.FLOAT), shape),)


@shape_rule("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def random_like_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The input's shape, in the type `dtype`, else the input's."""
    source = call.input(0)
    return (source.like(dtype=dtype_attr(call, "dtype", source.dtype)),)


@shape_rule("Multinomial")
def multinomial_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[batch, sample_size], int32 by default."""
    shape = call.shape(0)
    if len(shape) != 2:
        raise Impossible(f"the input must be [batch, classes], got {len(shape)} dimensions")
    dtype = dtype_attr(call, "dtype", DType.INT32)
    return (TensorInfo(dtype, (shape[0], call.attr("sample_size", 1))),)


@cost_rule("RandomNormal", "RandomUniform", "Bernoulli")
def random_cost(call: OpCall) -> OpCost:
    """Random numbers; Bernoulli draws one per probability.

    Formula
        flops = elements of the output
    Convention
        One operation per number, whatever the generator does.
    Source
        ONNX operator reference.
    """
    return OpCost(flops=call.output().elements)


@cost_rule("RandomNormalLike", "RandomUniformLike")
def random_like_cost(call: OpCall) -> OpCost:
    """Random numbers in the shape of the input, whose elements are not read.

    Formula
        flops = elements of the output
    Traffic
        of the input only its shape is used: nothing is read
    Convention
        One operation per number, whatever the generator does.
    Source
        ONNX operator reference.
    """
    return OpCost(flops=call.output().elements, reads={0: 0})


@cost_rule("Multinomial")
def multinomial_cost(call: OpCall) -> OpCost:
    """Samples of classes by unnormalized log-probabilities.

    Shapes
        input [B, n]    output [B, S]
    Formula
        flops = B · (2·n − 1), the exp and running sum of each row, + B · S · (1 + ⌈log₂ n⌉),
        the draw and its binary search; transcendentals = B · n
    Convention
        The operator text leaves the method open; this is sampling by the inverse distribution.
    Source
        ONNX operator reference.
    """
    batch, classes = call.shape(0)
    low, high = (1 + max(end - 1, 0).bit_length() for end in ends(classes))
    flops = batch * (2 * classes - 1) + call.output().elements * interval(low, high)
    return unless_none(classes, OpCost(flops=flops, transcendentals=batch * classes))


# -- windows ---------------------------------------------------------------------------------


@shape_rule(*_WINDOWS)
def window_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[size], in the type `output_datatype` (float by default)."""
    size = _size(call, 0, "size")
    return (TensorInfo(dtype_attr(call, "output_datatype", DType.FLOAT), (size,)),)


@cost_rule(*_WINDOWS)
def window_cost(call: OpCall) -> OpCost:
    """A window of cosines: a₀ − a₁·cos(θ), for Blackman + a₂·cos(2·θ), with θ = n · (2π / N).

    Shapes
        size []    output [size]
    Formula
        Hann, Hamming: flops = 4 per element (angle, cosine, product, difference)
        Blackman: flops = 8 per element (4 more: double angle, cosine, product, sum)
        transcendentals = the cosines: 1, Blackman 2 per element
    Source
        ONNX operator reference.
    """
    cosines = 2 if call.op_type == "BlackmanWindow" else 1
    elements = call.output().elements
    return OpCost(flops=4 * cosines * elements, transcendentals=cosines * elements)


@shape_rule("MelWeightMatrix")
def mel_weight_matrix_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[⌊dft_length / 2⌋ + 1, num_mel_bins], in the type `output_datatype` (float by default)."""
    bins = _size(call, 0, "num_mel_bins")
    spectrum = _size(call, 1, "dft_length") // 2 + 1
    return (TensorInfo(dtype_attr(call, "output_datatype", DType.FLOAT), (spectrum, bins)),)


@cost_rule("MelWeightMatrix")
def mel_weight_matrix_cost(call: OpCall) -> OpCost:
    """Triangular filters on the mel scale, mel(f) = 2595 · log₁₀(1 + f / 700).

    Shapes
        output [⌊dft_length / 2⌋ + 1, n] with n = num_mel_bins
    Formula
        flops = 2 · 4 for the edges in mel, 2 for the step between bands, 6 for each of the n + 2
        band edges (step, power of ten with its quotient, −1, ·700, rounding to a bin), and
        1 per element of the output; transcendentals = 2 + n + 2
    Source
        ONNX operator reference.
    """
    bins = call.output().dims[1]
    flops = 2 * 4 + 2 + 6 * (bins + 2) + call.output().elements
    return OpCost(flops=flops, transcendentals=bins + 4)
