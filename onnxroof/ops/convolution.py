"""Convolutions: plain, quantized, deformable; fused and channels-last forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.checks import can_be_equal, require_rank_at_least
from onnxroof.ops.fused import fused_activation
from onnxroof.ops.geometry import sliding_window
from onnxroof.ops.layout import join_channels, split_channels
from onnxroof.ops.registry import (
    INTERNAL_NHWC,
    MICROSOFT,
    cost_rule,
    declare,
    shape_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape


def _groups(call: OpCall, channels: int, per_group: int, filters: int) -> int:
    """The group attribute. Raises Impossible when the channels do not divide accordingly."""
    group = call.attr("group", 1)
    if group < 1 or not can_be_equal(channels, per_group * group):
        raise Impossible(
            f"X has {channels} channels, but W takes {per_group} in each of {group} groups"
        )
    if filters % group:
        raise Impossible(f"{filters} output channels do not divide into {group} groups")
    return group


def check_kernel(call: OpCall, kernel: Shape) -> None:
    """Raise Impossible when kernel_shape is given and is not the window of W."""
    declared = call.ints_attr("kernel_shape")
    if declared and tuple(declared) != tuple(kernel):
        raise Impossible(f"kernel_shape is {list(declared)}, but W's window is {list(kernel)}")


def _convolved(call: OpCall, x: Shape, filters: int, per_group: int, kernel: Shape) -> Shape:
    """Shape of Y for a convolution in the layout of the call."""
    batch, channels, spatial = split_channels(call, x)
    _groups(call, channels, per_group, filters)
    check_kernel(call, kernel)
    return join_channels(call, batch, filters, sliding_window(call, spatial, kernel))


def _by_weight(call: OpCall, position: int) -> Shape:
    """Shape of Y with the weight [M, C/group, *K] at an input position."""
    weight = call.shape(position)
    require_rank_at_least(len(weight), 2, "W")
    return _convolved(call, call.shape(0), weight[0], weight[1], weight[2:])


@shape_rule("Conv")
@shape_rule("FusedConv", "NhwcFusedConv", domain=MICROSOFT)
@shape_rule("Conv", domain=INTERNAL_NHWC)
def conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, M, *O] with O = ⌊(D + pads − dilation·(K − 1) − 1) / stride⌋ + 1."""
    return [call.input(0).like(_by_weight(call, 1))]


@cost_rule("Conv")
@cost_rule("Conv", domain=INTERNAL_NHWC)
def conv_cost(call: OpCall) -> OpCost:
    """Convolution, any number of spatial axes, grouped or not.

    Shapes
        X [N, C, *D]    W [M, C/group, *K]    B [M] optional    Y [N, M, *O]
        (channels last in com.ms.internal.nhwc)
    Formula
        macs = N · M · prod(O) · (C/group) · prod(K)
        flops = 2 · macs, plus one addition per element of Y if B is given, plus the fused
        activation of the com.ms.internal.nhwc form, one per element of Y
    Convention
        Window positions on the zero padding are charged.
    Source
        ONNX operator reference, Conv.
    """
    y = call.output()
    macs = y.elements * math.prod(call.shape(1)[1:])
    return OpCost(macs, 2 * macs + (y.elements if call.has(2) else 0)) + fused_activation(call)


@cost_rule("FusedConv", "NhwcFusedConv", domain=MICROSOFT)
def fused_conv_cost(call: OpCall) -> OpCost:
    """Convolution with bias, residual addition and activation in one kernel.

    Shapes
        X [N, C, *D]    W [M, C/group, *K]    B [M] optional    Z like Y, optional    Y [N, M, *O]
        (X, Z and Y channels last in NhwcFusedConv)
    Formula
        macs = N · M · prod(O) · (C/group) · prod(K)
        flops = 2 · macs, plus one per element of Y for each of B, Z and the activation given
    Source
        ONNX Runtime contrib operators, FusedConv and NhwcFusedConv.
    """
    residual = call.output().elements if call.has(3) else 0
    return conv_cost(call) + OpCost(0, residual)


@shape_rule("NhwcConv", domain=MICROSOFT)
def nhwc_conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, *O, M] from X [N, *D, C] and W [M, *K, C/group]."""
    weight = call.shape(1)
    require_rank_at_least(len(weight), 2, "W")
    shape = _convolved(call, call.shape(0), weight[0], weight[-1], weight[1:-1])
    return [call.input(0).like(shape)]


@cost_rule("NhwcConv", domain=MICROSOFT)
def nhwc_conv_cost(call: OpCall) -> OpCost:
    """As Conv, channels last, with W [M, *K, C/group].

    Formula
        macs = N · M · prod(O) · (C/group) · prod(K)
        flops = 2 · macs, plus one addition per element of Y if B is given
    Source
        ONNX Runtime contrib operators, NhwcConv.
    """
    return conv_cost(call)


@shape_rule("ConvInteger")
def conv_integer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int32 Y [N, M, *O], sized as Conv."""
    return [TensorInfo(DType.INT32, _by_weight(call, 1))]


@cost_rule("ConvInteger")
def conv_integer_cost(call: OpCall) -> OpCost:
    """Convolution of 8-bit integers with 32-bit sums.

    Formula
        macs as Conv
        flops = 2 · macs, plus one subtraction per element of x if it has a zero point
    Source
        ONNX operator reference, ConvInteger.
    """
    macs = call.output().elements * math.prod(call.shape(1)[1:])
    shifted = call.input(0).elements if call.has(2) else 0
    return OpCost(macs, 2 * macs + shifted, compute_dtype=DType.INT8)


@shape_rule("QLinearConv")
@shape_rule("QLinearConv", domain=MICROSOFT)
@shape_rule("QLinearConv", domain=INTERNAL_NHWC)
def qlinear_conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, M, *O] of the type of y_zero_point, sized as Conv (channels last where said so)."""
    dtype = call.input(7).dtype if call.has(7) else call.input(0).dtype
    return [TensorInfo(dtype, _by_weight(call, 3))]


@cost_rule("QLinearConv")
@cost_rule("QLinearConv", domain=MICROSOFT)
@cost_rule("QLinearConv", domain=INTERNAL_NHWC)
def qlinear_conv_cost(call: OpCall) -> OpCost:
    """Convolution of 8-bit integers, requantized.

    Shapes
        x [N, C, *D]    w [M, C/group, *K]    B int32 [M] optional    y [N, M, *O]
    Formula
        macs as Conv
        flops = 2 · macs, plus one subtraction per element of x if it has a zero point, plus one
        per element of y for the requantization and one for B if given
    Source
        ONNX operator reference, QLinearConv.
    """
    y = call.output().elements
    macs = y * math.prod(call.shape(3)[1:])
    shifted = call.input(0).elements if call.has(2) else 0
    biased = y if call.has(8) else 0
    return OpCost(macs, 2 * macs + shifted + y + biased, compute_dtype=DType.INT8)


@shape_rule("DeformConv")
def deform_conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, M, *O], sized as Conv."""
    return [call.input(0).like(_by_weight(call, 1))]


@cost_rule("DeformConv")
def deform_conv_cost(call: OpCall) -> OpCost:
    """Convolution whose window positions are moved by fractional offsets.

    Shapes
        X [N, C, *D] with d spatial axes    W [M, C/group, *K]
        offset [N, offset_group · prod(K) · d, *O]    B [M] optional
        mask [N, offset_group · prod(K), *O] optional    Y [N, M, *O]
    Formula
        macs = N · M · prod(O) · (C/group) · prod(K)
        flops = 2 · macs + samples · (2·2^d − 1) + one addition per element of offset,
        with samples = N · C · prod(O) · prod(K) (linear interpolation between 2^d neighbours);
        plus one product per sample if a mask and one addition per element of Y if B is given
    Source
        ONNX operator reference, DeformConv.
    """
    x, weight, y = call.shape(0), call.shape(1), call.output()
    positions = x[0] * math.prod(y.dims[2:]) * math.prod(weight[2:])
    samples = positions * x[1]
    macs = y.elements * math.prod(weight[1:])
    flops = 2 * macs + samples * (2 * 2 ** (len(x) - 2) - 1) + call.input(2).elements
    flops += (y.elements if call.has(3) else 0) + (samples if call.has(4) else 0)
    return OpCost(macs, flops)


_SCALES = (1, 2, 4, 5, 6, 7)
"""Scales and zero points of x, w and y in the QLinear convolutions."""

declare("ConvInteger", quantization=(2, 3))
declare("QLinearConv", quantization=_SCALES, integer_weights=(8,))
declare("QLinearConv", domain=MICROSOFT, quantization=_SCALES, integer_weights=(8,))
declare("QLinearConv", domain=INTERNAL_NHWC, quantization=_SCALES, integer_weights=(8,))
