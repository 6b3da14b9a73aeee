"""HWD004."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import seconds_of, timed
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding

_EXPENSIVE = frozenset(
    ("Sigmoid", "Tanh", "Erf", "Elu", "Selu", "Celu", "Softplus", "Gelu", "Mish", "Swish",
     "FastGelu", "BiasGelu", "QuickGelu")
)  # fmt: skip
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
        for kernel, time in timed(analysis):
            nodes = [analysis.nodes[index] for index in kernel.nodes]
            costly = [node for node in nodes if node.op_type in _EXPENSIVE]
            if not costly or any(name in exits for node in nodes for name in node.node.outputs):
                continue
            cheap = seconds_of(analysis, _without_functions(kernel)) if kernel.macs else 0.0
            saving = time.seconds - (cheap or 0.0)
            if saving < _SMALLEST_SHARE * chosen.latency_seconds:
                continue
            where = "inside" if kernel.macs else "as"
            yield self.found(
                f"{costly[0].op_type} runs {where} kernel {kernel.name}"
                f" ({units.duration(time.seconds)}); ReLU in the kernel before would save"
                f" {units.duration(saving)}",
                nodes=[node.name for node in costly],
                seconds=saving,
                nbytes=None if kernel.macs else kernel.traffic_bytes,
                transcendentals=int(kernel.transcendentals or 0),
            )


def _without_functions(kernel: Kernel) -> Kernel:
    """The kernel with one comparison in place of each transcendental evaluation."""
    return replace(kernel, transcendentals=0)
