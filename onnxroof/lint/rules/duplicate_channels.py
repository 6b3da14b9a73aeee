"""WGT004."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.channels import by_channel, equal_channels, zero_channels
from onnxroof.lint.reading import output_channel_axis, uses
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import Measured, WeightValues


class DuplicateChannels(WeightRule):
    """Two output channels of one layer have the same weights, bit for bit.

    ## Why it costs
    They compute the same thing twice, up to the bias. It happens when channels die together, when
    a layer was widened by copying, or when weights were rounded to few values.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,4] x) => (float[1,3] y)
        <float[4,3] w = {0.5, 0.1, 0.5, 0.2, 0.3, 0.2, 0.4, 0.7, 0.4, 0.6, 0.8, 0.6}>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,4] x) => (float[1,3] y)
        <float[4,3] w = {0.5, 0.1, 0.9, 0.2, 0.3, 0.2, 0.4, 0.7, 0.4, 0.6, 0.8, 0.6}>
        { y = MatMul (x, w) }

    ## What to do
    Keep one of them, and add up the input channels that read them in the next layer. Where the
    biases differ and an activation follows, the channels are not equal behind it: keep both.
    """

    code = "WGT004"
    name = "duplicate-channels"
    severity = Severity.INFO
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        for item in values.measured:
            for node, position in readers.get(item.constant.identity, ()):
                found = self._of_node(values, item, node, position)
                if found is not None:
                    yield found
                    break

    def _of_node(
        self, values: WeightValues, item: Measured, node: NodeCost, position: int
    ) -> Finding | None:
        constant = item.constant
        axis = output_channel_axis(node, position, constant)
        if axis is None or constant.nonzeros is not None or constant.dtype.bits not in (16, 32, 64):
            return None
        channels = by_channel(values.bits(constant), constant.shape, axis)
        groups = equal_channels(channels, zero_channels(channels, constant.dtype))
        if not groups:
            return None
        spare = sum(len(group) - 1 for group in groups)
        example = " = ".join(map(str, groups[0][:4]))
        return self.found(
            f"{spare} of {units.plural(constant.shape[axis], 'output channel')} only repeat"
            f" another (channels {example})",
            nodes=[node.name],
            tensors=[constant.name],
            nbytes=constant.dtype.nbytes(spare * channels.shape[1]),
            count=spare,
            channels=constant.shape[axis],
        )
