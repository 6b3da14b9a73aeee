"""WGT003."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.channels import by_channel, channel_length, zero_channels
from onnxroof.lint.reading import (
    device,
    kernel_of,
    output_channel_axis,
    scaled,
    seconds_of,
    uses,
)
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import Measured, WeightValues


class ZeroChannels(WeightRule):
    """Output channels whose weights are all zero are computed all the same.

    ## Why it costs
    Such a channel is its bias everywhere, whatever the input, yet its multiply-accumulates run,
    its weights are read and its result is written and read again by the next layer.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,3] x) => (float[1,3] y)
        <float[3,3] w = {0.5, 0.0, 0.1, 0.2, 0.0, 0.3, 0.4, 0.0, 0.6}>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,3] x) => (float[1,3] y)
        <float[3,3] w = {0.5, 0.7, 0.1, 0.2, 0.8, 0.3, 0.4, 0.9, 0.6}>
        { y = MatMul (x, w) }

    ## What to do
    Remove the channel here and from the input channels of what reads it; add what its constant
    output contributed (weights times activated bias) to the next layer's bias.
    """

    code = "WGT003"
    name = "zero-channels"
    severity = Severity.WARNING
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        for item in values.measured:
            for node, position in readers.get(item.constant.identity, ()):
                found = self._of_node(analysis, values, item, node, position)
                if found is not None:
                    yield found
                    break

    def _of_node(
        self,
        analysis: Analysis,
        values: WeightValues,
        item: Measured,
        node: NodeCost,
        position: int,
    ) -> Finding | None:
        constant = item.constant
        shape = constant.shape
        axis = output_channel_axis(node, position, constant)
        if axis is None or constant.nonzeros is not None or constant.dtype.bits not in (16, 32, 64):
            return None
        length = channel_length(shape, axis)
        if not length or item.statistics.zeros < length:
            return None
        dead = zero_channels(by_channel(values.bits(constant), shape, axis), constant.dtype)
        if not dead:
            return None
        nbytes = constant.dtype.nbytes(len(dead) * length) or 0
        share = 1 - len(dead) / shape[axis]
        listed = ", ".join(map(str, dead[:8])) + (" …" if len(dead) > 8 else "")
        return self.found(
            f"{len(dead)} of {units.plural(shape[axis], 'output channel')} hold nothing but zeros"
            f" ({listed})",
            nodes=[node.name],
            tensors=[constant.name],
            seconds=_saved(analysis, node, share, nbytes),
            nbytes=nbytes,
            count=len(dead),
            channels=shape[axis],
        )


def _saved(analysis: Analysis, node: NodeCost, share: float, nbytes: int) -> float | None:
    kernel = kernel_of(analysis, node)
    chosen = device(analysis)
    if kernel is None or chosen is None:
        return None
    smaller = seconds_of(analysis, scaled(kernel, share, nbytes))
    return None if smaller is None else max(chosen.kernels[kernel.index].seconds - smaller, 0.0)
