"""Does it fit: a device's memory levels as budgets for weights and activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onnxroof.memory.records import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.memory.plan import MemoryPlan


class Level(Protocol):
    """A level of a memory hierarchy."""

    @property
    def level(self) -> str:
        """Its name."""
        ...

    @property
    def capacity_bytes(self) -> int | None:
        """Bytes of one instance, None when not known."""
        ...

    @property
    def instances(self) -> int:
        """How many there are."""
        ...


def check_budgets(plan: MemoryPlan, levels: Iterable[Level]) -> tuple[Budget, ...]:
    """One verdict a level with a known capacity, in the order given (main memory first).

    The first level must hold weights and the activation arena; levels above it (caches, SRAM)
    hold the working set, so the activation peak after fusion is held against them.
    """
    verdicts: list[Budget] = []
    for place, level in enumerate(levels):
        if level.capacity_bytes is None:
            continue
        capacity = level.capacity_bytes * level.instances
        if place == 0:
            needed, of = plan.weight_bytes + plan.arena.nbytes, "weights and activations"
        else:
            needed, of = plan.fused_peak.nbytes, "activations after fusion"
        cut = _advice(plan, main=place == 0) if needed > capacity else ""
        verdicts.append(Budget(level.level, capacity, needed, of, cut, plan.is_lower_bound))
    return tuple(verdicts)


def _advice(plan: MemoryPlan, *, main: bool) -> str:
    """What is largest and so worth cutting first."""
    if main and plan.weight_bytes > plan.arena.nbytes:
        return "the weights are the larger part, store them narrower"
    step, tensors = plan.peak_node, plan.peak_tensors
    if not main:
        step, tensors = plan.fused_peak.step, plan.fused_peak_tensors
    if step is None or not tensors:
        return "nothing is known to be large"
    workspace = 0 if main else plan.fused_peak.workspace_bytes
    if workspace > tensors[0].nbytes:
        has_bodies = bool(plan.kernels.kernels[step.index].bodies)
        what = "what its bodies hold," if has_bodies else "its workspace of"
        return f"at {step.label} the largest part is {what} {workspace:,} bytes"
    return (
        f"at {step.label} the largest tensor is {tensors[0].name} with "
        f"{tensors[0].nbytes:,} bytes; reduce batch or resolution, or split there"
    )
