"""HWD009."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.lint.reading import every_node, runs
from onnxroof.lint.rule import Rule, Severity, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.lint.rule import Finding

_SEQUENCES = frozenset(
    ("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt",
     "SequenceLength", "SequenceMap", "SplitToSequence", "ConcatFromSequence", "Optional",
     "OptionalGetElement", "OptionalHasElement")
)  # fmt: skip
_TEXTS = frozenset(
    ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer")
)

_WITHOUT_KERNEL: Mapping[str, frozenset[str]] = {
    # github.com/onnx/onnx-tensorrt, docs/operators.md: operators marked N in every release
    "tensorrt": _SEQUENCES
    | _TEXTS
    | {
        "BitShift", "ConvInteger", "Det", "DynamicQuantizeLinear", "MatMulInteger", "MaxRoiPool",
        "MaxUnpool", "Multinomial", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul",
        "SoftmaxCrossEntropyLoss", "Unique",
    },
    # The TensorFlow Lite operator set has neither; converters refuse them or need Flex operators.
    "tflite": _SEQUENCES | _TEXTS | {"Det", "MaxRoiPool", "MaxUnpool", "Multinomial"},
}  # fmt: skip
"""Runtime → operators of the standard it has no kernel for."""

_NEEDS_RUNTIME: Mapping[str, str] = {
    "com.microsoft": "onnxruntime",
    "com.microsoft.nchwc": "onnxruntime",
    "com.ms.internal.nhwc": "onnxruntime",
}
"""Domain → the one runtime that knows its operators."""

_KNOWN = frozenset({"tensorrt", "tflite", "torch-compile"})
"""Runtimes of which we know that they do not load that domain."""


class RuntimeFallback(Rule):
    """The runtime has no kernel for an operator: it is refused, or runs somewhere slower.

    ## Why it costs
    An operator without a kernel splits the graph. What is before and after it runs on the device,
    the operator on the host, with copies and a synchronization on both sides; or the file is not
    accepted at all. The times in the report assume that everything runs on the device. The bytes
    named are the activations that would cross between device and host.

    ## Flagged
        # onnxroof lint --runtime tensorrt
        agraph (float[4,64] x) => (uint8[4,64] y, float scale, uint8 zero)
        { y, scale, zero = DynamicQuantizeLinear (x) }

    ## Clean
        # onnxroof lint --runtime tensorrt
        agraph (float[4,64] x) => (int8[4,64] y)
        <float scale = {0.1}>
        { y = QuantizeLinear (x, scale) }

    ## What to do
    Replace the operator (QDQ form instead of QLinear and MatMulInteger operators for TensorRT,
    the standard's operators instead of a runtime's own), write a plug-in, or cut it off and run it
    on the host before or after the rest. In preview, since runtimes gain operators with every
    release: check with the version you have.
    """

    code = "HWD009"
    name = "runtime-fallback"
    severity = Severity.WARNING
    since = "0.1"
    status = Status.PREVIEW

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        runtime = analysis.kernels.runtime
        by_operator: dict[str, list[NodeCost]] = {}
        for node in every_node(analysis):
            if runs(node) and _falls_back(node, runtime):
                name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                by_operator.setdefault(name, []).append(node)
        for name, nodes in by_operator.items():
            passed = sum(int(node.input_bytes or 0) + int(node.output_bytes or 0) for node in nodes)
            yield self.found(
                f"{runtime} has no kernel for {name} ({len(nodes)} ×)",
                nodes=[node.name for node in nodes],
                nbytes=passed,
                operator=name,
                count=len(nodes),
            )


def _falls_back(node: NodeCost, runtime: str) -> bool:
    if not node.domain:
        return node.kind in _WITHOUT_KERNEL.get(runtime, ())
    home = _NEEDS_RUNTIME.get(node.domain)
    return home is not None and runtime != home and runtime in _KNOWN
