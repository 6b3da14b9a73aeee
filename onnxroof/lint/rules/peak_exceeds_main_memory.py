"""MEM001."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import device
from onnxroof.lint.rule import Rule, Severity
from onnxroof.memory import check_budgets

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
    peak, a larger device, or several. The figure is that of the report's budgets, weights and the
    arena of the activations; workspaces and whatever else lives on the device come on top: leave
    some room.
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
        for budget in check_budgets(memory, [chosen.hardware.main_memory]):
            if not budget.excess_bytes:
                continue
            yield self.found(
                f"weights ({units.size(memory.weight_bytes)}) and activations"
                f" ({units.size(memory.arena.nbytes)}) do not fit the"
                f" {units.size(budget.capacity_bytes)} of {budget.level}",
                nodes=[memory.peak_node.label] if memory.peak_node is not None else [],
                nbytes=budget.excess_bytes,
                level=budget.level,
            )
