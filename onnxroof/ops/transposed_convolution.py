"""Transposed convolutions, whose work follows the input positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.checks import require_equal, require_rank_at_least
from onnxroof.ops.convolution import check_kernel
from onnxroof.ops.fused import fused_activation
from onnxroof.ops.layout import join_channels, split_channels
from onnxroof.ops.registry import INTERNAL_NHWC, MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape


def _transposed(call: OpCall, weight_at: int, pads: Sequence[int] | None) -> Shape:
    """Shape of Y for a transposed convolution with W [C, M/group, *K]."""
    x, weight = call.shape(0), call.shape(weight_at)
    require_rank_at_least(len(weight), 2, "W")
    batch, channels, spatial = split_channels(call, x)
    require_equal(channels, weight[0], "channels of X and W differ")
    group = call.attr("group", 1)
    if group < 1 or (channels % group and channels == weight[0]):
        raise Impossible(f"{channels} channels do not divide into {group} groups")
    check_kernel(call, weight[2:])
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
    """As ConvTranspose, with the pads as an input.

    Formula
        macs = N · C · prod(D) · (M/group) · prod(K)
        flops = 2 · macs, plus one addition per element of Y if B is given
    Source
        ONNX Runtime contrib operators, ConvTransposeWithDynamicPads.
    """
    macs = call.input(0).elements * math.prod(call.shape(1)[1:])
    return OpCost(macs, 2 * macs + (call.output().elements if call.has(3) else 0))


@shape_rule("QLinearConvTranspose", domain=INTERNAL_NHWC)
def qlinear_conv_transpose_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, *O, M] of the type of y_zero_point, sized as ConvTranspose."""
    return [TensorInfo(call.input(7).dtype, _transposed(call, 3, call.ints_attr("pads")))]


@cost_rule("QLinearConvTranspose", domain=INTERNAL_NHWC)
def qlinear_conv_transpose_cost(call: OpCall) -> OpCost:
    """Transposed convolution of 8-bit integers, requantized.

    Formula
        macs = N · C · prod(D) · (M/group) · prod(K)
        flops = 2 · macs, plus one subtraction per element of x if it has a zero point, plus one per
        element of y for the requantization and one for B if given
    Source
        ONNX Runtime, the operators of domain com.ms.internal.nhwc.
    """
    x, y = call.input(0).elements, call.output().elements
    macs = x * math.prod(call.shape(3)[1:])
    flops = 2 * macs + (x if call.has(2) else 0) + y + (y if call.has(8) else 0)
    return OpCost(macs, flops, compute_dtype=DType.INT8)


declare("ConvTransposeWithDynamicPads", domain=MICROSOFT, control=(2,))
declare(
    "QLinearConvTranspose",
    domain=INTERNAL_NHWC,
    quantization=(1, 2, 4, 5, 6, 7),
    integer_weights=(8,),
)
