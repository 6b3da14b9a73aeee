"""Memory plans of graphs in ONNX text."""

from __future__ import annotations

from onnxroof.memory import MemoryPlan, plan_memory
from tests.fusion.plans import plan


def memory(text: str, runtime: str = "onnxruntime", *, opset: int = 17) -> MemoryPlan:
    """The memory plan of a graph in text."""
    return plan_memory(plan(text, runtime, opset=opset))
