"""MEM003."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.errors import named
from onnxroof.lint.reading import device
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.hardware.profile import MemoryLevel
    from onnxroof.lint.rule import Finding

_FEW = 0.1
"""Share of the kernels that may spill, so that it is worth doing something about them."""


class FewNodesExceedCache(Rule):
    """The activations fit the last cache or scratchpad everywhere but at a few kernels.

    ## Why it costs
    What does not fit goes out to main memory and back, at a fraction of the bandwidth; on a
    microcontroller it does not run. Where only a few kernels exceed the level, changing these makes
    the whole network fit. What is alive is counted after fusion, workspace included, as in the
    report's budgets. Not reported for GPUs, whose kernels pass through main memory anyway.

    ## Flagged
        # onnxroof lint --hw mobile-arm
        agraph (float[1,64,120,120] x) => (float[1,64,15,15] y)
        <float[64,64,3,3] w>
        {
          a = Conv<pads = [1, 1, 1, 1]> (x, w)
          b = MaxPool<kernel_shape = [8, 8], strides = [8, 8]> (a)
          c = Conv<pads = [1, 1, 1, 1]> (b, w)   d = Conv<pads = [1, 1, 1, 1]> (c, w)
          e = Conv<pads = [1, 1, 1, 1]> (d, w)   f = Conv<pads = [1, 1, 1, 1]> (e, w)
          g = Conv<pads = [1, 1, 1, 1]> (f, w)   h = Conv<pads = [1, 1, 1, 1]> (g, w)
          i = Conv<pads = [1, 1, 1, 1]> (h, w)   y = Conv<pads = [1, 1, 1, 1]> (i, w)
        }

    ## Clean
        # onnxroof lint --hw mobile-arm
        agraph (float[1,64,64,64] x) => (float[1,64,8,8] y)
        <float[64,64,3,3] w>
        {
          a = Conv<pads = [1, 1, 1, 1]> (x, w)
          b = MaxPool<kernel_shape = [8, 8], strides = [8, 8]> (a)
          y = Conv<pads = [1, 1, 1, 1]> (b, w)
        }

    ## What to do
    Shrink the resolution or the width at the kernels named, split them into patches, store
    activations in a narrower type, or look for an order of the nodes with a lower peak.
    """

    code = "MEM003"
    name = "few-nodes-exceed-cache"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        chosen = device(analysis)
        if chosen is None or chosen.hardware.kind == "gpu":
            return
        shared = [
            level
            for level in chosen.hardware.memory[:-1]
            if level.instances == 1 and level.capacity_bytes
        ]
        if shared:
            yield from self._cache(analysis, shared[-1], strict=chosen.hardware.kind == "mcu")

    def _cache(self, analysis: Analysis, level: MemoryLevel, *, strict: bool) -> Iterator[Finding]:
        capacity = level.capacity_bytes or 0
        memory = analysis.memory
        live = memory.fused_live_bytes
        over = [index for index, nbytes in enumerate(live) if nbytes > capacity]
        if not over or (len(over) > _FEW * len(live) and not strict):
            return
        peak = memory.fused_peak.nbytes
        kernels = analysis.kernels.kernels
        names = [kernels[i].name for i in sorted(over, key=lambda i: -live[i])]
        yield self.found(
            f"{units.size(peak)} of activations after fusion at {named(names, 1)} exceed the"
            f" {units.size(capacity)} of {level.level}, as they do at"
            f" {len(over)} of {units.plural(len(live), 'kernel')}",
            nodes=names[:10],
            nbytes=peak - capacity,
            level=level.level,
        )
