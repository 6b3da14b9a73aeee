"""ONNX Runtime's blocked layout: channels are padded to the machine's block and kept [N, C, H, W].

Shapes in the file are those of the padded tensors; weights are stored padded, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.ops.call import Impossible, OpCost
from onnxroof.ops.checks import require_rank
from onnxroof.ops.convolution import conv_cost
from onnxroof.ops.geometry import ceil_div, sliding_window
from onnxroof.ops.pooling import (
    average_pool_cost,
    global_average_cost,
    global_max_cost,
    max_pool_cost,
    pooled,
)
from onnxroof.ops.registry import NCHWC, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, TensorInfo

WIDEST_BLOCK = 16
"""Channels of a block with AVX-512; 8 on narrower machines, 4 on some."""


@shape_rule("ReorderInput", domain=NCHWC)
def reorder_input_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C', H, W] from X [N, C, H, W] or, with channels_last, [N, H, W, C]."""
    x = call.input(0)
    require_rank(x.rank, 4, "X")
    batch, *rest = x.dims
    channels, spatial = (
        (rest[-1], rest[:-1]) if call.attr("channels_last", 0) else (rest[0], rest[1:])
    )
    padded = ceil_div(channels, WIDEST_BLOCK) * WIDEST_BLOCK
    if padded != channels:
        call.note(
            f"{channels} channels are padded to {padded}, for blocks of {WIDEST_BLOCK};"
            " on machines with narrower blocks to fewer"
        )
    return [x.like((batch, padded, *spatial))]


@shape_rule("ReorderOutput", domain=NCHWC)
def reorder_output_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, channels, H, W] or, with channels_last, [N, H, W, channels]: the padding is dropped."""
    x = call.input(0)
    require_rank(x.rank, 4, "X")
    channels = call.attr("channels", 0)
    if channels < 1:
        raise Impossible(f"attribute channels must be positive, got {channels}")
    batch, _, *spatial = x.dims
    if call.attr("channels_last", 0):
        return [x.like((batch, *spatial, channels))]
    return [x.like((batch, channels, *spatial))]


@cost_rule("ReorderInput", "ReorderOutput", domain=NCHWC)
def reorder_cost(call: OpCall) -> OpCost:  # noqa: ARG001 - the signature of a rule
    """Free of arithmetic: a change of memory layout."""
    return OpCost()


@shape_rule("Conv", domain=NCHWC)
def nchwc_conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, M, *O] with the padded M of the stored weight."""
    x, weight = call.shape(0), call.shape(1)
    require_rank(len(x), 4, "X")
    require_rank(len(weight), 4, "W")
    group = call.attr("group", 1)
    if group < 1 or weight[0] % group:
        raise Impossible(f"{weight[0]} output channels do not divide into {group} groups")
    return [call.input(0).like((x[0], weight[0], *sliding_window(call, x[2:], weight[2:])))]


@cost_rule("Conv", domain=NCHWC)
def nchwc_conv_cost(call: OpCall) -> OpCost:
    """Convolution with bias, residual addition and activation, in the blocked layout.

    Shapes
        X [N, C, H, W]    W [M, C/group, *K] with padded channels    B [M]    Sum like Y, optional
    Formula
        macs = N · M · prod(O) · (C/group) · prod(K)
        flops = 2 · macs, plus one per element of Y for each of B, Sum and the activation given
    Convention
        The padding channels stored in W are computed, so they are charged.
    Source
        ONNX Runtime, the operators of domain com.microsoft.nchwc.
    """
    work = conv_cost(call) + OpCost(0, call.output().elements if call.has(3) else 0)
    return replace(work, note="padding channels of the blocked layout are computed and charged")


@shape_rule("MaxPool", "AveragePool", domain=NCHWC)
def nchwc_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C, *O], sized as MaxPool."""
    return [call.input(0).like(pooled(call))]


@shape_rule("GlobalMaxPool", "GlobalAveragePool", domain=NCHWC)
def nchwc_global_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C, 1, 1]."""
    x = call.input(0)
    return [x.like((*x.dims[:2], *(1,) * (x.rank - 2)))]


cost_rule("MaxPool", domain=NCHWC)(max_pool_cost)
cost_rule("AveragePool", domain=NCHWC)(average_pool_cost)
cost_rule("GlobalMaxPool", domain=NCHWC)(global_max_cost)
cost_rule("GlobalAveragePool", domain=NCHWC)(global_average_cost)


declare("ReorderInput", "ReorderOutput", domain=NCHWC, free="it copies to another memory layout")
