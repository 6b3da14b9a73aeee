"""STR006."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.cost import Role
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding


class UnusedInitializer(Rule):
    """A stored tensor is read by no node.

    ## Why it costs
    It is downloaded, stored and loaded, and does nothing. Exporters leave the running statistics
    of folded normalizations and the weights of cut heads behind.

    ## Flagged
        agraph (float[1,64] x) => (float[1,64] y)
        <float[64,64] left_over>
        { y = Relu (x) }

    ## Clean
        agraph (float[1,64] x) => (float[1,64] y)
        <float[64] bias>
        { y = Add (x, bias) }

    ## What to do
    Remove it; every graph optimizer does.
    """

    code = "STR006"
    name = "unused-initializer"
    severity = Severity.WARNING
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        for weight in analysis.cost.weights:
            constant = weight.constant
            if weight.role is not Role.UNUSED or constant.origin != "initializer":
                continue
            yield self.found(
                f"{constant.name} ({units.size(weight.stored_bytes)}) is read by no node",
                tensors=[constant.name],
                nbytes=weight.stored_bytes,
            )
