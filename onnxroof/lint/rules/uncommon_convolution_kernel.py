"""HWD003."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import (
    CONVOLUTIONS,
    behind_layers,
    integer,
    integers,
    kernel_shape,
    output_shape,
    seconds_of,
    timed,
)
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding

_COMMON = frozenset({1, 3})
_SMALLEST_SHARE = 0.001
"""Share of the latency below which a kernel is not worth a word."""


class UncommonConvolutionKernel(Rule):
    """A convolution has a window, stride or dilation that libraries rarely optimize.

    ## Why it costs
    Hand-written kernels, Winograd transforms and fixed-function units are made for 1×1 and for 3×3
    with stride 1 or 2. A 1×7, 5×5, dilated or stride-3 convolution runs through the general path,
    at a fraction of the speed per MAC. Two 3×3 see what one 5×5 sees, with 28 % fewer MACs.

    ## Flagged
        # onnxroof lint --hw 10980xe
        agraph (float[1,64,56,56] x) => (float[1,64,56,56] y)
        <float[64,64,5,5] w, float[64,64,1,1] v>
        {
          h = Conv (x, v)
          y = Conv<pads = [2, 2, 2, 2]> (h, w)
        }

    ## Clean
        # onnxroof lint --hw 10980xe
        agraph (float[1,64,56,56] x) => (float[1,64,56,56] y)
        <float[64,64,3,3] w, float[64,64,1,1] v>
        {
          h = Conv (x, v)
          y = Conv<pads = [1, 1, 1, 1]> (h, w)
        }

    ## What to do
    Prefer stacks of 3×3. Keep the odd window where it is what the model needs, and measure it on
    the device. The first layer, which reads the input, is not reported: libraries have kernels
    for the usual 7×7.
    """

    code = "HWD003"
    name = "uncommon-convolution-kernel"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        behind = behind_layers(analysis.cost)
        chosen = analysis.rooflines[0]
        for kernel, time in timed(analysis):
            node = analysis.nodes[kernel.anchor]
            if node.kind not in CONVOLUTIONS or node.node.inputs[0] not in behind:
                continue
            what = _oddity(node)
            if what and time.seconds >= _SMALLEST_SHARE * chosen.bound_seconds:
                stacked = _stack_of_3x3(analysis, kernel, node)
                saving = None if stacked is None else max(time.seconds - stacked, 0.0)
                said = f"{node.name} is {what}; it takes {units.duration(time.seconds)}"
                if stacked is not None:
                    count = (kernel_shape(node)[0] - 1) // 2
                    said += f", {count} convolutions of 3×3 {units.duration(stacked)}"
                yield self.found(
                    said,
                    nodes=[node.name],
                    seconds=saving,
                    kernel_seconds=time.seconds,
                )


def _oddity(node: NodeCost) -> str:
    """What is uncommon about a convolution; "" when nothing is, or when it is a dense layer."""
    window = kernel_shape(node)
    result = output_shape(node)
    if result is not None and math.prod(result[2:]) == 1:
        return ""
    shown = "×".join(map(str, window))
    dilations = integers(node, "dilations")
    if any(step > 1 for step in dilations):
        return f"{shown} with dilation {'×'.join(map(str, dilations))}"
    if len(set(window)) > 1 or not _COMMON.issuperset(window):
        return f"{shown}"
    strides = integers(node, "strides")
    if any(step > 2 for step in strides) or len(set(strides)) > 1:
        return f"{shown} with stride {'×'.join(map(str, strides))}"
    return ""


def _stack_of_3x3(analysis: Analysis, kernel: Kernel, node: NodeCost) -> float | None:
    """Time of the 3×3 convolutions that see as much; for square, dense, same-size ones."""
    window = kernel_shape(node)
    infos = node.call.inputs[0], node.call.outputs[0]
    if len(set(window)) != 1 or len(window) != 2 or window[0] % 2 == 0 or window[0] < 5:
        return None
    if integer(node, "group", 1) != 1 or any(d > 1 for d in integers(node, "dilations")):
        return None
    if infos[0] is None or infos[0].shape != infos[1].shape:
        return None
    macs, share = int(kernel.macs or 0), 9 / window[0] ** 2
    small = replace(
        kernel,
        macs=round(macs * share),
        flops=None if kernel.flops is None else int(kernel.flops) - 2 * round(macs * (1 - share)),
        weight_bytes=None if kernel.weight_bytes is None else round(kernel.weight_bytes * share),
    )
    seconds = seconds_of(analysis, small)
    return None if seconds is None else seconds * ((window[0] - 1) // 2)
