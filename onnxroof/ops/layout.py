"""Where the channel axis is: second in ONNX's own operators, last in the NHWC forms of runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.ops.checks import require_rank_at_least
from onnxroof.ops.registry import INTERNAL_NHWC

if TYPE_CHECKING:
    from onnxroof.ops.call import OpCall, Shape


def channels_last(call: OpCall) -> bool:
    """Whether the operator's activations are [N, *D, C] rather than [N, C, *D]."""
    node = call.node
    if node.domain == INTERNAL_NHWC or node.op_type.startswith("Nhwc"):
        return True
    return bool(node.domain) and call.attr("channels_last", 0) != 0


def split_channels(call: OpCall, shape: Shape) -> tuple[int, int, Shape]:
    """(batch, channels, spatial sizes) of an activation. Raises Impossible below rank 2."""
    require_rank_at_least(len(shape), 2, "the input")
    if channels_last(call):
        return shape[0], shape[-1], shape[1:-1]
    return shape[0], shape[1], shape[2:]


def join_channels(call: OpCall, batch: int, channels: int, spatial: Shape) -> Shape:
    """The inverse of `split_channels`."""
    if channels_last(call):
        return (batch, *spatial, channels)
    return (batch, channels, *spatial)
