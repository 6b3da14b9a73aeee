"""Why the plan is what it is: every fusion with its reason and saving, every miss with its cause.

Besides the candidates that failed by themselves, it lists what other runtimes would fuse and this
one does not. Pure data; reports print it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.fusion.plan import plan_for
from onnxroof.fusion.records import FusionMiss
from onnxroof.fusion.rules import all_rules
from onnxroof.fusion.runtimes import EVERYTHING, RUNTIMES

if TYPE_CHECKING:
    from onnxroof.fusion.records import Kernel, KernelPlan, RemovedNode


@dataclass(frozen=True, slots=True)
class FusionHit:
    """A kernel that a rule made: of several nodes, or of one that takes in folded ones.

    Attributes:
        kernel: Its index in the plan.
        name: Its name.
        op_type: Its operators in order.
        nodes: Indices of its nodes.
        rule: The rule that made it.
        why: What makes one kernel of it right.
        elided: Tensors that never reach memory.
        saved_bytes: Traffic of its nodes one by one less its own; None where unknown.
    """

    kernel: int
    name: str
    op_type: str
    nodes: tuple[int, ...]
    rule: str
    why: str
    elided: tuple[str, ...]
    saved_bytes: int | None


@dataclass(frozen=True, slots=True)
class FusionReport:
    """Hits, misses and nodes that launch nothing, in execution order.

    Attributes:
        runtime: Name of the fusion set.
        hits: Kernels that rules made.
        misses: Candidates that are not fused.
        removed: Nodes that launch nothing.
        bodies: The same for each subgraph that control flow runs: (its name, its report).
    """

    runtime: str
    hits: tuple[FusionHit, ...]
    misses: tuple[FusionMiss, ...]
    removed: tuple[RemovedNode, ...]
    bodies: tuple[tuple[str, FusionReport], ...] = ()


def explain_fusion(plan: KernelPlan) -> FusionReport:
    """What was fused and why, what was not and why not."""
    hits = tuple(_hit(plan, kernel) for kernel in plan.kernels if kernel.rule != "none")
    misses = sorted({*plan.misses, *_absent(plan)}, key=lambda miss: (miss.nodes, miss.rule))
    bodies = tuple(
        (body.name, explain_fusion(body.plan)) for kernel in plan.kernels for body in kernel.bodies
    )
    return FusionReport(plan.runtime, hits, tuple(misses), plan.removed, bodies)


def _hit(plan: KernelPlan, kernel: Kernel) -> FusionHit:
    alone = [plan.cost.nodes[index].traffic_bytes for index in kernel.nodes]
    together = kernel.traffic_bytes
    saved = None
    if together is not None and None not in alone:
        saved = sum(part or 0 for part in alone) - together
    return FusionHit(
        kernel.index, kernel.name, kernel.op_type, kernel.nodes, kernel.rule,
        all_rules()[kernel.rule].why, kernel.elided, saved,
    )  # fmt: skip


def _absent(plan: KernelPlan) -> list[FusionMiss]:
    """Groups that some rule would make and this runtime does not."""
    together = {index: kernel.index for kernel in plan.kernels for index in kernel.nodes}
    own = RUNTIMES[plan.runtime].rules
    found: list[FusionMiss] = []
    for kernel in plan_for(plan.cost, EVERYTHING).kernels:
        if kernel.rule == "none" or kernel.rule in own:
            continue
        launches = {together[index] for index in kernel.nodes if index in together}
        alone = len(launches) == 1 and plan.kernels[min(launches)].rule == "none"
        if len(launches) > 1 or alone:
            found.append(
                FusionMiss(
                    kernel.nodes, plan.cost.nodes[kernel.nodes[0]].name, kernel.rule,
                    "not in this runtime",
                )
            )  # fmt: skip
    return found
