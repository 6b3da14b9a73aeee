"""MEM001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import device
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding


class PeakExceedsMainMemory(Rule):
    """Weights and activations together do not fit the device's main memory.

    ## Why it costs
    The model does not run, or runs by paging, a thousand times slower.

    ## Flagged
        # onnxroof lint --hw v100
        agraph (float[65536,65536] x) => (float[65536,65536] y)
        { y = Relu (x) }

    ## Clean
        # onnxroof lint --hw v100
        agraph (float[16384,16384] x) => (float[16384,16384] y)
        { y = Relu (x) }

    ## What to do
    A smaller batch, narrower types for weights and activations, an order of the nodes with a lower
    peak, a larger device, or several. The figure holds without arenas, workspaces and whatever
    else lives on the device: leave some room.
    """

    code = "MEM001"
    name = "peak-exceeds-main-memory"
    severity = Severity.ERROR
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen, memory = device(analysis), analysis.memory
        if chosen is None:
            return
        level = chosen.hardware.main_memory
        needed = int(memory.peak_activation_bytes) + memory.weight_bytes
        if level.capacity_bytes is None or needed <= level.capacity_bytes:
            return
        yield self.found(
            f"weights ({units.size(memory.weight_bytes)}) and activations"
            f" ({units.size(memory.peak_activation_bytes)}) do not fit the"
            f" {units.binary_size(level.capacity_bytes)} of {level.level}",
            nodes=[memory.peak_node.label] if memory.peak_node is not None else [],
            nbytes=needed - level.capacity_bytes,
            level=level.level,
        )
