"""Activation functions, the softmax family, dropout, and their com.microsoft fused forms.

Counting: an activation is one operation per element however it is implemented; where its formula
evaluates exp, tanh, erf or log, that evaluation is the one operation and is also counted apart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, unless_none
from onnxroof.ops.geometry import broadcast, ceil_div, normalize_axis
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall

PLAIN = ("HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Shrink", "Softsign", "ThresholdedRelu")
"""Activations made of comparisons and plain arithmetic."""

SMOOTH = (
    "Celu", "Elu", "Gelu", "Mish", "ParametricSoftplus", "ScaledTanh", "Selu", "Sigmoid",
    "Softplus", "Swish", "Tanh",
)  # fmt: skip
"""Activations that evaluate a transcendental function."""

SOFTMAX = ("Hardmax", "LogSoftmax", "Softmax")

declare(*PLAIN, *SMOOTH, "PRelu", "SwiGLU", pointwise=True)
declare("Gelu", "QuickGelu", "ScaledSiLU", "BiasGelu", "FastGelu", domain=MICROSOFT, pointwise=True)
declare("Dropout", control=(1, 2), view=True)
declare("BitmaskDropout", domain=MICROSOFT, control=(1, 2), view=True)
declare("BiasDropout", "BitmaskBiasDropout", domain=MICROSOFT, control=(3, 4), pointwise=True)


@shape_rule(*PLAIN, *SMOOTH)
@shape_rule("Gelu", "QuickGelu", "ScaledSiLU", "FastGelu", "BiasSoftmax", domain=MICROSOFT)
def activation_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the type and shape of X."""
    return (call.input(0).like(),)


@shape_rule("PRelu")
def prelu_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the shape of X, to which slope broadcasts; before opset 7 slope is [1] or [C]."""
    x = call.input(0)
    if call.opset >= 7 and broadcast(x.dims, call.shape(1)) != x.dims:
        raise Impossible(f"slope of shape {call.shape(1)} is larger than x of shape {x.dims}")
    return (x.like(),)


@shape_rule("SwiGLU")
def swiglu_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the shape that the gate A and the value B share."""
    gate, value = call.shape(0), call.shape(1)
    if len(gate) != len(value):
        raise Impossible(f"gate of shape {gate} and value of shape {value} must be equal")
    return (call.input(0).like(broadcast(gate, value)),)


@shape_rule("BiasGelu", domain=MICROSOFT)
def bias_gelu_shape(call: OpCall) -> Sequence[TensorInfo]:
    """C has the shape A and the bias B broadcast to."""
    return (call.input(0).like(broadcast(call.shape(0), call.shape(1))),)


@shape_rule("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu_shape(call: OpCall) -> Sequence[TensorInfo]:
    """X [N, S, D] becomes Y [N, S, D/2]."""
    return (call.input(0).like(_halved(call)),)


@shape_rule("SwiGLU", domain=MICROSOFT)
def microsoft_swiglu_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the shape of the gate; without `up` the gate holds both halves along its last axis."""
    return (call.input(0).like(None if call.has(1) else _halved(call)),)


@cost_rule(*PLAIN, "PRelu")
def plain_activation_cost(call: OpCall) -> OpCost:
    """Activation by comparison and plain arithmetic.

    Shapes
        X [*]    Y [*]    PRelu: slope broadcasts to X
    Formula
        flops = elements of Y
    Source
        ONNX operator reference.
    """
    return OpCost(flops=call.output().elements)


@cost_rule(*SMOOTH)
@cost_rule("Gelu", "QuickGelu", domain=MICROSOFT)
def smooth_activation_cost(call: OpCall) -> OpCost:
    """Activation that evaluates a transcendental function.

    Shapes
        X [*]    Y [*]
    Formula
        flops = transcendentals = elements of Y
    Source
        ONNX operator reference; ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    return OpCost(flops=elements, transcendentals=elements)


@cost_rule("ScaledSiLU", "BiasGelu", domain=MICROSOFT)
@cost_rule("SwiGLU")
def two_step_activation_cost(call: OpCall) -> OpCost:
    """An activation and one product or sum: SwiGLU's value, BiasGelu's bias, ScaledSiLU's scale.

    Shapes
        SwiGLU: A [*]    B [*]    Y [*]
        BiasGelu: A [*, D]    B [D]    C [*, D]
    Formula
        flops = 2 · elements of the output; transcendentals = elements of the output
    Source
        ONNX operator reference; ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    return OpCost(flops=2 * elements, transcendentals=elements)


@cost_rule("FastGelu", domain=MICROSOFT)
def fast_gelu_cost(call: OpCall) -> OpCost:
    """Gelu by its tanh form, with an optional bias.

    Shapes
        X [*, D]    bias [D] optional    Y [*, D]
    Formula
        flops = elements of Y, plus one addition per element if bias is given
        transcendentals = elements of Y
    Source
        ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    return OpCost(flops=elements * (1 + call.has(1)), transcendentals=elements)


@cost_rule("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu_cost(call: OpCall) -> OpCost:
    """Bias, then the left half times Gelu of the right half.

    Shapes
        X [N, S, D]    bias [D]    Y [N, S, D/2]
    Formula
        flops = N · S · D bias additions + elements of Y · (one Gelu + one product)
        transcendentals = elements of Y
    Source
        ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    return OpCost(flops=call.input(0).elements + 2 * elements, transcendentals=elements)


@cost_rule("SwiGLU", domain=MICROSOFT)
def microsoft_swiglu_cost(call: OpCall) -> OpCost:
    """Clamped SwiGLU: G · sigmoid(alpha · G) · (L + beta).

    Shapes
        gate [*, D]    up [*, D], or gate [*, 2·D] with both halves    Y [*, D]
    Formula
        flops = 2 per element of Y (Swish and product), 1 more with activation_beta, 2 more with
        limit (both halves are clamped); transcendentals = elements of Y
    Source
        ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    operations = 2
    operations += call.attr("activation_beta", 0.0) != 0.0
    operations += 2 * (call.attr("limit", 0.0) > 0.0)
    return OpCost(flops=operations * elements, transcendentals=elements)


# -- softmax ---------------------------------------------------------------------------------


def softmax_rows(call: OpCall, *, default_axis: int, coerced: bool) -> tuple[int, int]:
    """(rows, elements of a row) that are normalized together.

    `coerced`: the input is taken as a matrix [prod(D[:axis]), prod(D[axis:])], as before opset 13;
    else a row runs along one axis.
    """
    shape = call.shape(0)
    axis = call.attr("axis", default_axis)
    if coerced and axis == len(shape):
        return math.prod(shape), 1
    axis = normalize_axis(axis, len(shape))
    length = math.prod(shape[axis:]) if coerced else shape[axis]
    return math.prod(shape[:axis]) * (1 if coerced else math.prod(shape[axis + 1 :])), length


def softmax_cost(rows: int, length: int) -> OpCost:
    """Softmax of `rows` rows: maximum n − 1, difference n, exp n, sum n − 1, division n."""
    cost = OpCost(flops=rows * (5 * length - 2), transcendentals=rows * length)
    return unless_none(length, cost)


def log_softmax_cost(rows: int, length: int) -> OpCost:
    """LogSoftmax of `rows` rows: maximum n − 1, difference n, exp n, sum n − 1, log 1, differ n."""
    cost = OpCost(flops=rows * (5 * length - 1), transcendentals=rows * (length + 1))
    return unless_none(length, cost)


@shape_rule(*SOFTMAX)
def softmax_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y has the type and shape of X; the axis must be one of X's."""
    if call.input(0).shape is not None:
        _rows_by_opset(call)
    return (call.input(0).like(),)


def _rows_by_opset(call: OpCall) -> tuple[int, int]:
    """The rows of Softmax, LogSoftmax and Hardmax at the node's opset."""
    old = call.opset < 13
    return softmax_rows(call, default_axis=1 if old else -1, coerced=old)


@cost_rule("Softmax")
def softmax_family_cost(call: OpCall) -> OpCost:
    """Softmax over rows of n elements.

    Shapes
        X [*D]; n = D[axis] (default −1); before opset 13 n = prod(D[axis:]) (default 1)
    Formula
        flops = 5·n − 2 per row: maximum n − 1, difference n, exp n, sum n − 1, division n
        transcendentals = n per row
    Source
        ONNX operator reference.
    """
    return softmax_cost(*_rows_by_opset(call))


@cost_rule("LogSoftmax")
def log_softmax_family_cost(call: OpCall) -> OpCost:
    """Logarithm of softmax over rows of n elements.

    Shapes
        X [*D]; n = D[axis] (default −1); before opset 13 n = prod(D[axis:]) (default 1)
    Formula
        flops = 5·n − 1 per row: maximum n − 1, difference n, exp n, sum n − 1, log 1, difference n
        transcendentals = n + 1 per row
    Source
        ONNX operator reference.
    """
    return log_softmax_cost(*_rows_by_opset(call))


@cost_rule("Hardmax")
def hardmax_cost(call: OpCall) -> OpCost:
    """1 at the first maximum of each row of n elements, else 0.

    Shapes
        X [*D]; n = D[axis] (default −1); before opset 13 n = prod(D[axis:]) (default 1)
    Formula
        flops = n − 1 comparisons per row
    Source
        ONNX operator reference.
    """
    rows, length = _rows_by_opset(call)
    return unless_none(length, OpCost(flops=rows * (length - 1)))


@cost_rule("BiasSoftmax", domain=MICROSOFT)
def bias_softmax_cost(call: OpCall) -> OpCost:
    """Softmax of data + bias over rows of n = prod(D[axis:]) elements (default axis 1).

    Shapes
        data [*D]    bias broadcasts to data
    Formula
        flops = one addition per element, plus 5·n − 2 per row; transcendentals = n per row
    Source
        ONNX Runtime, ContribOperators.
    """
    bias = OpCost(flops=call.output().elements)
    return bias + softmax_cost(*softmax_rows(call, default_axis=1, coerced=True))


# -- dropout ---------------------------------------------------------------------------------


@shape_rule("Dropout")
def dropout_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output and mask have the shape of data; the mask is boolean from opset 10 on."""
    data = call.input(0)
    return (data.like(), data.like(dtype=DType.BOOL if call.opset >= 10 else None))


@shape_rule("BitmaskDropout", "BitmaskBiasDropout", domain=MICROSOFT)
def bitmask_dropout_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output like data; the mask packs 32 elements into one uint32 [⌈elements / 32⌉]."""
    data = call.input(0)
    mask = None if data.shape is None else (ceil_div(data.elements, 32),)
    return (data.like(), TensorInfo(DType.UINT32, mask))


@shape_rule("BiasDropout", domain=MICROSOFT)
def bias_dropout_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output and boolean mask have the shape of data."""
    data = call.input(0)
    return (data.like(), data.like(dtype=DType.BOOL))


@cost_rule("Dropout")
@cost_rule("BitmaskDropout", domain=MICROSOFT)
def dropout_cost(call: OpCall) -> OpCost:
    """Dropout: in inference the output is the input's bytes.

    Shapes
        data [*]    output [*]    mask [*] optional
    Formula
        inference: flops = 0 and no bytes moved, except those of a mask that is used
        training: flops = 3 per element: the draw against the ratio, and scale · data · mask
    Traffic
        inference: data and output move no bytes; a mask that is used is written
    Convention
        Training means training_mode is true; before opset 12 there is none (opsets 1 and 6:
        is_test = 0, their default).
    Source
        ONNX operator reference; ONNX Runtime, ContribOperators.
    """
    elements = call.output().elements
    if _training(call, 2):
        return OpCost(flops=3 * elements)
    return OpCost(reads={0: 0}, writes={0: 0}, note="inference: a view of its input")


@cost_rule("BiasDropout", "BitmaskBiasDropout", domain=MICROSOFT)
def bias_dropout_cost(call: OpCall) -> OpCost:
    """Dropout(data + bias) + residual.

    Shapes
        data [*, D]    bias [D] or [*, D]    residual [*, D] optional    output [*, D]
    Formula
        inference: flops = 1 per element for the bias, 1 for the residual
        training: 3 more per element, as Dropout
    Source
        ONNX Runtime, ContribOperators.
    """
    operations = 1 + call.has(2) + 3 * _training(call, 4)
    return OpCost(flops=operations * call.output().elements)


def _training(call: OpCall, position: int) -> bool:
    """Whether elements are really dropped; a mode only known at run time is taken as inference."""
    if not call.node.domain and call.opset < 7:
        return not call.attr("is_test", 0)
    if not call.has(position):
        return False
    mode = call.value(position)
    if mode is None:
        call.note("training_mode is not known before the model runs: counted as inference")
        return False
    return bool(mode.ravel()[0])


def _halved(call: OpCall) -> tuple[int, ...]:
    shape = call.shape(0)
    if not shape or shape[-1] % 2:
        raise Impossible(f"the last axis of {shape} cannot be halved")
    return (*shape[:-1], shape[-1] // 2)
