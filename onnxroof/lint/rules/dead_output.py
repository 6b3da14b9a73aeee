"""STR004."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.errors import named
from onnxroof.lint.reading import readers, runs
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding

_OPTIONAL: Mapping[str, int] = {"LSTM": 0, "GRU": 0, "RNN": 0, "MaxPool": 1, "Dropout": 1}
"""Operator → position of its first output that need not be named."""


class DeadOutput(Rule):
    """An optional output is named, hence computed and written, and nothing reads it.

    ## Why it costs
    An operator leaves out what the file does not name. The indices of a MaxPool take twice the
    bytes of its result; a recurrent layer that names its whole sequence writes every step of it.

    ## Flagged
        agraph (float[1,4,8,8] x) => (float[1,4,4,4] y)
        { y, places = MaxPool<kernel_shape = [2, 2], strides = [2, 2]> (x) }

    ## Clean
        agraph (float[1,4,8,8] x) => (float[1,4,4,4] y)
        { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]> (x) }

    ## What to do
    Leave the output's name empty.
    """

    code = "STR004"
    name = "dead-output"
    severity = Severity.INFO
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        read = {*readers(analysis.cost), *analysis.model.graph.outputs}
        for node in analysis.nodes:
            first = _OPTIONAL.get(node.kind)
            outputs = [name for name in node.node.outputs if name]
            if first is None or node.domain or not runs(node) or read.isdisjoint(outputs):
                continue
            unread = [name for name in node.node.outputs[first:] if name and name not in read]
            if unread:
                yield self.found(
                    f"nothing reads {named(unread)} of {node.op_type} {node.name}",
                    nodes=[node.name],
                    tensors=unread,
                    nbytes=sum(int(analysis.tensors[name].nbytes or 0) for name in unread),
                )
