"""Memory: what is alive when, what buffers hold it, and in which order it would be less."""

from __future__ import annotations

from onnxroof.memory.budget import check_budgets
from onnxroof.memory.plan import MemoryPlan, plan_memory
from onnxroof.memory.records import (
    ArenaPlan,
    Budget,
    CachedTensor,
    KVCache,
    LiveTensor,
    MemoryRow,
    Peak,
    Placement,
    Step,
    TimelinePoint,
)

__all__ = [
    "ArenaPlan",
    "Budget",
    "CachedTensor",
    "KVCache",
    "LiveTensor",
    "MemoryPlan",
    "MemoryRow",
    "Peak",
    "Placement",
    "Step",
    "TimelinePoint",
    "check_budgets",
    "plan_memory",
]
