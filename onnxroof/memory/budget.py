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
        fits = needed <= capacity
        cut = "" if fits else _advice(plan, needed - capacity, main=place == 0)
        verdicts.append(Budget(level.level, capacity, needed, of, fits, cut))
    return tuple(verdicts)


def _advice(plan: MemoryPlan, excess: int, *, main: bool) -> str:
    """What is largest and so worth cutting first."""
    if main and plan.weight_bytes > plan.arena.nbytes:
        return f"cut {excess:,} bytes: the weights are the larger part, store them narrower"
    largest = plan.peak_tensors[0] if plan.peak_tensors else None
    if largest is None:
        return f"cut {excess:,} bytes"
    where = plan.peak_node.label if plan.peak_node is not None else "the start"
    return (
        f"cut {excess:,} bytes: at {where} the largest tensor is {largest.name} with "
        f"{largest.nbytes:,} bytes; reduce batch or resolution, or split there"
    )
