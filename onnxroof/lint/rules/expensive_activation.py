"""HWD004."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.lint.reading import kernel_by_node, producers, seconds_of, timed
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding

_EXPENSIVE = frozenset(
    ("Sigmoid", "Tanh", "Erf", "Elu", "Selu", "Celu", "Softplus", "Gelu", "Mish", "Swish",
     "FastGelu", "BiasGelu", "QuickGelu")
)  # fmt: skip
_RULES_OF: Mapping[str, tuple[str, ...]] = {
    "Conv": ("convolution",), "ConvTranspose": ("convolution",), "MatMul": ("matmul",),
    "Gemm": ("matmul", "gemm"),
}  # fmt: skip
"""Operator → how the names of the rules begin that give it an activation."""
_SMALLEST_SHARE = 0.001
"""Share of the latency below which an activation is not worth a word."""


class ExpensiveActivation(Rule):
    """An activation evaluates exp, tanh or erf, or runs as a kernel of its own, and costs time.

    ## Why it costs
    ReLU and HardSwish are a few vector instructions that nearly every runtime runs inside the
    convolution before them. Swish, GELU, Mish and their like evaluate a transcendental function
    per element, at a quarter to a twentieth of the multiply-add rate, and where the runtime does
    not fuse them they read and write the whole activation once or twice more.

    ## Flagged
        # onnxroof lint --hw mobile-arm
        agraph (float[1,64,56,56] x) => (float[1,64,56,56] y)
        <float[64,64,1,1] w>
        {
          c = Conv (x, w)
          s = Sigmoid (c)
          m = Mul (c, s)
          y = Conv (m, w)
        }

    ## Clean
        # onnxroof lint --hw mobile-arm
        agraph (float[1,64,56,56] x) => (float[1,64,56,56] y)
        <float[64,64,1,1] w>
        {
          c = Conv (x, w)
          m = Relu (c)
          y = Conv (m, w)
        }

    ## What to do
    Train with ReLU or HardSwish (MobileNetV3 lost nothing by it), or with ReLU in the early,
    large layers only. Where the network is given: a runtime that fuses the activation.
    The saving is the time of the kernels that a fused ReLU would not need.
    """

    code = "HWD004"
    name = "expensive-activation"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen = analysis.rooflines[0]
        exits = set(analysis.model.graph.outputs)
        makers = producers(analysis.cost)
        for kernel, time in timed(analysis):
            nodes = [analysis.nodes[index] for index in kernel.nodes]
            costly = [node for node in nodes if node.kind in _EXPENSIVE]
            if not costly or any(name in exits for node in nodes for name in node.node.outputs):
                continue
            vanishes = not kernel.macs and _could_join_producer(analysis, kernel, makers)
            cheap = 0.0 if vanishes else seconds_of(analysis, _with_relu(kernel)) or 0.0
            saving = time.seconds - cheap
            if saving < _SMALLEST_SHARE * chosen.bound_seconds:
                continue
            where = "inside" if kernel.macs else "as"
            instead = "ReLU in the kernel before it" if vanishes else "ReLU in its place"
            yield self.found(
                f"{costly[0].op_type} runs {where} kernel {kernel.name}"
                f" ({units.duration(time.seconds)}); {instead} would save"
                f" {units.duration(saving)}",
                nodes=[node.name for node in costly],
                seconds=saving,
                nbytes=kernel.traffic_bytes if vanishes else None,
                transcendentals=int(kernel.transcendentals or 0),
            )


def _with_relu(kernel: Kernel) -> Kernel:
    """The kernel with one comparison in place of each transcendental evaluation."""
    flops = kernel.flops if kernel.macs else kernel.transcendentals
    return replace(kernel, transcendentals=0, flops=flops)


def _could_join_producer(
    analysis: Analysis, kernel: Kernel, makers: Mapping[str, NodeCost]
) -> bool:
    """Whether the runtime runs a ReLU inside what makes this kernel's input."""
    kernels, members = kernel_by_node(analysis), frozenset(kernel.nodes)
    runtime = RUNTIMES.get(analysis.kernels.runtime)
    rules = runtime.rules if runtime is not None else ()
    pending = [name for index in kernel.nodes for name in analysis.nodes[index].node.inputs]
    seen = set(pending)
    while pending:
        maker = makers.get(pending.pop())
        if maker is None or maker.node.index in members:
            continue
        before = kernels.get(maker.node.index)
        if before is None:  # a view: what it shows was made by another
            pending += [name for name in maker.node.inputs if name and name not in seen]
            seen.update(maker.node.inputs)
        elif before.macs:
            kind = _RULES_OF.get(analysis.nodes[before.anchor].kind, ("no rule",))
            return any(rule.startswith(kind) and "activation" in rule for rule in rules)
    return False
