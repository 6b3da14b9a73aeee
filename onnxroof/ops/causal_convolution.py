"""Causal depthwise convolution that carries its last positions from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.ops.call import OpCost
from onnxroof.ops.checks import require_equal, require_rank
from onnxroof.ops.fused import activation_cost
from onnxroof.ops.registry import MICROSOFT, cost_rule, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo


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
