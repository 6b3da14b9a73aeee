"""STR007."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnxroof.errors import quoted
from onnxroof.lint.reading import graphs
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding


class DuplicateNodeName(Rule):
    """Two nodes of one graph have the same name.

    ## Why it costs
    The standard asks for unique names. Some runtimes refuse such a file (ONNX Runtime 1.32 does);
    profilers and quantizers that look nodes up by name mix them up.

    ## Flagged
        agraph (float[1,64] x) => (float[1,64] y)
        {
          [twin] a = Relu (x)
          [twin] y = Sigmoid (a)
        }

    ## Clean
        agraph (float[1,64] x) => (float[1,64] y)
        {
          [first] a = Relu (x)
          [second] y = Sigmoid (a)
        }

    ## What to do
    Rename one of them, or clear the names: a node needs none.
    """

    code = "STR007"
    name = "duplicate-node-name"
    severity = Severity.ERROR
    since = "0.1"

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        for cost in graphs(analysis):
            counts = Counter(node.node.name for node in cost.nodes if node.node.name)
            for name, count in counts.items():
                if count > 1:
                    yield self.found(
                        f"{count} nodes are named {quoted(name)}", nodes=[name], count=count
                    )
