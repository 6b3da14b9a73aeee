"""HWD001."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import (
    LINEAR,
    behind_layers,
    device,
    input_shape,
    integer,
    seconds_of,
)
from onnxroof.lint.rule import Rule, Severity
from onnxroof.roofline import compute_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel
    from onnxroof.lint.rule import Finding

_MOST_INPUT_CHANNELS = 4
"""Channels of an image; what the first layer reads is as it comes."""

_SMALLEST_SHARE = 0.001
"""Share of the latency below which padding is not worth a word."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Channels of a type that an engine takes at once."""

    multiple: int
    label: str
    engine: str
    engine_name: str


class MisalignedChannels(Rule):
    """Channels are no multiple of what the engine takes at once, so it pads them.

    ## Why it costs
    Tensor cores take fp16 channels in eights and int8 channels in sixteens, vector units as many
    as a register has lanes. Other numbers are padded up, and the padding is computed like the
    rest; where a library cannot pad, it leaves the fast engine altogether, which on tensor cores
    costs a factor of three and more.

    ## Flagged
        # onnxroof lint --hw v100
        agraph (float16[4096,1028] x) => (float16[4096,2044] y)
        <float16[1028,2044] w>
        { y = MatMul (x, w) }

    ## Clean
        # onnxroof lint --hw v100
        agraph (float16[4096,1024] x) => (float16[4096,2048] y)
        <float16[1024,2048] w>
        { y = MatMul (x, w) }

    ## What to do
    Choose the next multiple: the message names it. The added channels are nearly free, since the
    engine computes them anyway. The first layer, which reads the input as it comes, is not
    reported.
    """

    code = "HWD001"
    name = "misaligned-channels"
    severity = Severity.WARNING
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        behind = behind_layers(analysis.cost)
        for kernel in analysis.kernels.kernels:
            node = analysis.nodes[kernel.anchor]
            sizes = _channels(node) if kernel.macs else None
            if sizes is None:
                continue
            if sizes[0] <= _MOST_INPUT_CHANNELS and node.node.inputs[0] not in behind:
                continue
            step = _step(analysis, kernel)
            if step is not None and any(size % step.multiple for size in sizes):
                found = self._finding(analysis, kernel, sizes, step)
                if _matters(analysis, kernel, step, found):
                    yield found

    def _finding(
        self,
        analysis: Analysis,
        kernel: Kernel,
        channels: tuple[int, int],
        step: _Step,
    ) -> Finding:
        (inputs, outputs), multiple = channels, step.multiple
        padded_inputs, padded_outputs = (-(-size // multiple) * multiple for size in channels)
        macs = int(kernel.macs or 0)
        growth = padded_inputs * padded_outputs / (inputs * outputs)
        wasted = round(macs * (growth - 1))
        larger = replace(
            kernel,
            macs=macs + wasted,
            flops=None if kernel.flops is None else int(kernel.flops) + 2 * wasted,
        )
        after, before = seconds_of(analysis, larger), seconds_of(analysis, kernel)
        fallback = "" if step.engine == "vector" else f", or leaves the {step.engine_name}"
        return self.found(
            f"{kernel.name} has {inputs} input and {outputs} output channels; the engine takes"
            f" {multiple} of {step.label} at once and computes {padded_inputs} × {padded_outputs}:"
            f" {units.count(wasted, 'MAC')} ({units.percent(growth - 1)}) on padding"
            f"{fallback}",
            nodes=[kernel.name],
            seconds=None if after is None or before is None else after - before,
            padded_input_channels=padded_inputs,
            padded_output_channels=padded_outputs,
            wasted_macs=wasted,
        )


def _matters(analysis: Analysis, kernel: Kernel, step: _Step, found: Finding) -> bool:
    """Whether it costs a visible share of the time, or may cost the kernel its fast engine."""
    chosen = analysis.rooflines[0]
    at_stake = chosen.kernels[kernel.index].seconds if step.engine == "matrix" else 0.0
    return max(found.saving_seconds or 0.0, at_stake) >= _SMALLEST_SHARE * chosen.bound_seconds


def _step(analysis: Analysis, kernel: Kernel) -> _Step | None:
    """How many channels the engine that runs this kernel takes at once; None when not known."""
    chosen = device(analysis)
    if chosen is None:
        return None
    label = compute_type(kernel.compute_dtype)
    found = chosen.hardware.peak_ops_per_second(label, "matrix", chosen.peak_kind)
    for name, engine in chosen.hardware.engines():
        if name == found.engine and found.compute_type is not None:
            multiple = engine.channel_multiple(found.compute_type)
            return (
                None if multiple is None else _Step(multiple, found.compute_type, name, engine.name)
            )
    return None


def _channels(node: NodeCost) -> tuple[int, int] | None:
    """(input, output) channels of a group; None for depthwise and for what has none."""
    shape = input_shape(node, 3 if node.kind == "QLinearConv" else 1)
    if shape is None or math.prod(shape) == 0:
        return None
    if node.kind in ("Conv", "FusedConv", "QLinearConv", "ConvInteger"):
        group = max(integer(node, "group", 1), 1)
        outputs = shape[0] // group
        return (shape[1], outputs) if outputs > 1 or group == 1 else None
    if node.kind not in LINEAR or len(shape) != 2:
        return None
    inputs, outputs = shape if not integer(node, "transB", 0) else (shape[1], shape[0])
    return inputs, outputs
