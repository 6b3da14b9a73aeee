"""Convolutions: plain, transposed, quantized, deformable, causal; fused and channels-last forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.checks import can_be_equal, require_equal, require_rank, require_rank_at_least
from onnxroof.ops.fused import activation_cost, fused_activation
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


def _check_kernel(call: OpCall, kernel: Shape) -> None:
    declared = call.ints_attr("kernel_shape")
    if declared and tuple(declared) != tuple(kernel):
        raise Impossible(f"kernel_shape is {list(declared)}, but W's window is {list(kernel)}")


def _convolved(call: OpCall, x: Shape, filters: int, per_group: int, kernel: Shape) -> Shape:
    """Shape of Y for a convolution in the layout of the call."""
    batch, channels, spatial = split_channels(call, x)
    _groups(call, channels, per_group, filters)
    _check_kernel(call, kernel)
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
    """As Conv, with W [M, *K, C/group]: macs = N · M · prod(O) · (C/group) · prod(K)."""
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


def _transposed(call: OpCall, weight_at: int, pads: Sequence[int] | None) -> Shape:
    """Shape of Y for a transposed convolution with W [C, M/group, *K]."""
    x, weight = call.shape(0), call.shape(weight_at)
    require_rank_at_least(len(weight), 2, "W")
    batch, channels, spatial = split_channels(call, x)
    require_equal(channels, weight[0], "channels of X and W differ")
    group = call.attr("group", 1)
    if group < 1 or (channels % group and channels == weight[0]):
        raise Impossible(f"{channels} channels do not divide into {group} groups")
    _check_kernel(call, weight[2:])
    sizes = _transposed_sizes(call, spatial, weight[2:], pads)
    return join_channels(call, batch, weight[1] * group, sizes)


def _transposed_sizes(
    call: OpCall, spatial: Shape, kernel: Shape, pads: Sequence[int] | None
) -> Shape:
    rank = len(spatial)
    if len(kernel) != rank:
        raise Impossible(f"a window of {len(kernel)} axes does not fit {rank} spatial axes")
    explicit = call.ints_attr("output_shape")
    if explicit:
        return _explicit_sizes(explicit, rank)
    strides = _per_axis(call, "strides", rank, 1)
    dilations = _per_axis(call, "dilations", rank, 1)
    extra = _per_axis(call, "output_padding", rank, 0)
    unpadded = tuple(
        stride * (size - 1) + more + (window - 1) * dilation + 1
        for size, window, stride, dilation, more in zip(
            spatial, kernel, strides, dilations, extra, strict=True
        )
    )
    auto_pad = call.attr("auto_pad", "NOTSET")
    if auto_pad.startswith("SAME"):
        sizes = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
        if any(upper(full) < upper(size) for full, size in zip(unpadded, sizes, strict=True)):
            call.note(
                "auto_pad SAME makes the output input × stride by the operator text; runtimes give"
                " less where the window is smaller than the stride"
            )
        return sizes
    if auto_pad == "VALID" or not pads:
        return unpadded
    if len(pads) != 2 * rank:
        raise Impossible(f"pads has {len(pads)} values, {2 * rank} are needed")
    sizes = tuple(size - pads[i] - pads[i + rank] for i, size in enumerate(unpadded))
    if any(upper(size) < 0 for size in sizes):
        raise Impossible(f"pads {list(pads)} leave no output of {list(unpadded)}")
    return sizes


def _explicit_sizes(explicit: Shape, rank: int) -> Shape:
    """The output_shape attribute; some files include batch and channels."""
    if len(explicit) not in (rank, rank + 2):
        raise Impossible(f"output_shape has {len(explicit)} values for {rank} spatial axes")
    return tuple(explicit[-rank:]) if rank else ()


def _per_axis(call: OpCall, name: str, rank: int, default: int) -> Sequence[int]:
    values = call.ints_attr(name) or (default,) * rank
    if len(values) != rank:
        raise Impossible(f"{name} has {len(values)} values for {rank} spatial axes")
    return values


@shape_rule("ConvTranspose")
@shape_rule("ConvTranspose", domain=INTERNAL_NHWC)
def conv_transpose_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, M, *O], O = stride·(D − 1) + output_padding + dilation·(K − 1) + 1 − pads.

    auto_pad SAME_*: O = D · stride. The attribute output_shape overrides all.
    """
    return [call.input(0).like(_transposed(call, 1, call.ints_attr("pads")))]


@cost_rule("ConvTranspose")
@cost_rule("ConvTranspose", domain=INTERNAL_NHWC)
def conv_transpose_cost(call: OpCall) -> OpCost:
    """Transposed convolution: every input element meets every weight of its group once.

    Shapes
        X [N, C, *D]    W [C, M/group, *K]    B [M] optional    Y [N, M, *O]
    Formula
        macs = N · C · prod(D) · (M/group) · prod(K)
        flops = 2 · macs, plus one addition per element of Y if B is given
    Convention
        Products that the padding crops from the output are charged.
    Source
        ONNX operator reference, ConvTranspose.
    """
    macs = call.input(0).elements * math.prod(call.shape(1)[1:])
    biased = call.output().elements if call.has(2) else 0
    return OpCost(macs, 2 * macs + biased) + fused_activation(call)


@shape_rule("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_dynamic_shape(call: OpCall) -> Sequence[TensorInfo]:
    """As ConvTranspose, with the pads as an input."""
    pads = call.ints(2, "pads") if call.has(2) else None
    return [call.input(0).like(_transposed(call, 1, pads))]


@cost_rule("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_dynamic_cost(call: OpCall) -> OpCost:
    """As ConvTranspose: macs = N · C · prod(D) · (M/group) · prod(K)."""
    macs = call.input(0).elements * math.prod(call.shape(1)[1:])
    return OpCost(macs, 2 * macs + (call.output().elements if call.has(3) else 0))


@shape_rule("QLinearConvTranspose", domain=INTERNAL_NHWC)
def qlinear_conv_transpose_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, *O, M] of the type of y_zero_point, sized as ConvTranspose."""
    return [TensorInfo(call.input(7).dtype, _transposed(call, 3, call.ints_attr("pads")))]


@cost_rule("QLinearConvTranspose", domain=INTERNAL_NHWC)
def qlinear_conv_transpose_cost(call: OpCall) -> OpCost:
    """Macs as ConvTranspose; other operations as QLinearConv."""
    x, y = call.input(0).elements, call.output().elements
    macs = x * math.prod(call.shape(3)[1:])
    flops = 2 * macs + (x if call.has(2) else 0) + y + (y if call.has(8) else 0)
    return OpCost(macs, flops, compute_dtype=DType.INT8)


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


@shape_rule("CausalConvWithState")
@shape_rule("CausalConvWithState", domain=MICROSOFT)
def causal_conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output like input; present_state holds the last dilation·(K − 1) positions."""
    x, weight = call.input(0), call.shape(1)
    if call.attr("input_channels", 0) or call.attr("state_channels_last", -1) >= 0:
        return _extended_causal_conv(call)
    state = list(x.dims)
    last = call.attr("channels_last", 0) != 0
    if not last:
        require_equal(x.dims[1], weight[0], "channels of input and weight differ")
    state[1 if last else -1] = _state_length(call, weight)
    window = call.attr("state_window", 0)
    present = (window, *state) if window else tuple(state)
    return [x.like(), x.like(present), *_state_update(call, weight[0])]


def _extended_causal_conv(call: OpCall) -> Sequence[TensorInfo]:
    """The rank-3 channels-last form that reads a slice of the channels or changes the state."""
    x, weight = call.input(0), call.shape(1)
    require_rank(x.rank, 3, "the input of a channel slice or state override")
    batch, length, width = x.dims
    channels = call.attr("input_channels", 0) or width
    kept = _state_length(call, weight)
    override = call.attr("state_channels_last", -1)
    last = override == 1 or (override < 0 and call.attr("channels_last", 0) == 1)
    state = (batch, kept, weight[0]) if last else (batch, weight[0], kept)
    shapes = ((batch, length, channels), state)
    return [*map(x.like, shapes), *_state_update(call, weight[0])]


def _state_length(call: OpCall, weight: Shape) -> int:
    return call.attr("state_length", 0) or (weight[-1] - 1) * call.attr("dilation", 1)


def _state_update(call: OpCall, channels: int) -> Sequence[TensorInfo]:
    capacity = call.attr("state_update_capacity", 0)
    if not capacity:
        return []
    x = call.input(0)
    return [x.like((x.dims[0], capacity, channels))]


@cost_rule("CausalConvWithState")
@cost_rule("CausalConvWithState", domain=MICROSOFT)
def causal_conv_cost(call: OpCall) -> OpCost:
    """Depthwise convolution over the current and past positions.

    Shapes
        input [N, C, L]    weight [C, 1, K]    bias [C] optional    past_state [N, C, K − 1]
        output [N, C, L]    present_state [N, C, K − 1]
    Formula
        macs = N · C · L · K
        flops = 2 · macs, plus one per element of output each for bias and activation if given
    Source
        ONNX operator reference, CausalConvWithState; the com.microsoft form from the ONNX Runtime
        contrib operators.
    """
    y = call.output().elements
    macs = y * math.prod(call.shape(1)[2:])
    biased = y if call.has(2) else 0
    return OpCost(macs, 2 * macs + biased) + activation_cost(call.attr("activation", "none"), y)


_SCALES = (1, 2, 4, 5, 6, 7)
"""Scales and zero points of x, w and y in the QLinear convolutions."""

declare("ConvInteger", quantization=(2, 3))
declare("QLinearConv", quantization=_SCALES, integer_weights=(8,))
declare("QLinearConv", domain=MICROSOFT, quantization=_SCALES, integer_weights=(8,))
declare(
    "QLinearConv", "QLinearConvTranspose",
    domain=INTERNAL_NHWC, quantization=_SCALES, integer_weights=(8,),
)  # fmt: skip
declare("ConvTransposeWithDynamicPads", domain=MICROSOFT, control=(2,))
