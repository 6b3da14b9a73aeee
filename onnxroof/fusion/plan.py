"""Fourth stage: `GraphCost` → `KernelPlan`: what a runtime launches after folding and fusing.

Annotates, never rewrites: every live node is put in exactly one kernel. A tensor stays out of
memory only if all who read it are in the kernel that makes it. Kernels stand in the order of their
last nodes, which is a valid order because only a kernel's last node is read from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.build import body_kernel, fused_kernel, lone_kernel
from onnxroof.fusion.cleanup import clean_up, write_concats_in_place
from onnxroof.fusion.groups import Grouping
from onnxroof.fusion.live import LiveGraph
from onnxroof.fusion.records import (
    FusionMiss,
    Kernel,
    KernelBody,
    KernelPlan,
    RemovedNode,
)
from onnxroof.fusion.rules import all_rules
from onnxroof.fusion.runtimes import find_runtime

if TYPE_CHECKING:
    from onnxroof.cost import GraphCost, NodeCost
    from onnxroof.fusion.runtimes import Runtime

__all__ = ["FusionMiss", "Kernel", "KernelBody", "KernelPlan", "RemovedNode", "plan_kernels"]


def plan_kernels(cost: GraphCost, runtime: str = "onnxruntime") -> KernelPlan:
    """Group the graph's nodes into kernels as the named runtime would.

    Args:
        cost: The graph's costs before fusion.
        runtime: Name of a fusion set: "none", "eager", "basic", "onnxruntime", "tensorrt",
            "torch-compile" or "tflite".

    Raises:
        UsageError: No fusion set has this name.
    """
    return plan_for(cost, find_runtime(runtime))


def plan_for(cost: GraphCost, runtime: Runtime) -> KernelPlan:
    """The same for a fusion set of the caller's own."""
    grouping = _grouped(cost, runtime)
    graph = grouping.graph
    if runtime.concat_in_place:
        write_concats_in_place(graph, grouping.groups)
    kernels: list[Kernel] = []
    groups, nodes = grouping.groups, graph.nodes
    for index in graph.live:
        group = groups.get(index)
        if group is None:
            node = nodes[index]
            made = (
                body_kernel(len(kernels), node, _bodies(node, runtime))
                if node.bodies
                else lone_kernel(len(kernels), node)
            )
            kernels.append(made)
        elif group.last == index:
            kernels.append(fused_kernel(len(kernels), graph, group))
    return KernelPlan(
        cost,
        runtime.name,
        tuple(kernels),
        graph.removed,
        graph.source,
        graph.parts,
    )


def find_misses(cost: GraphCost, runtime: str) -> tuple[FusionMiss, ...]:
    """Candidates that the named runtime does not fuse, each with its reason.

    Raises:
        UsageError: No fusion set has this name.
    """
    return tuple(_grouped(cost, find_runtime(runtime), explain=True).misses)


def _grouped(cost: GraphCost, runtime: Runtime, *, explain: bool = False) -> Grouping:
    """The live graph with all rules applied; with `explain`, failed candidates are kept."""
    graph = LiveGraph(cost, runtime)
    clean_up(graph, runtime)
    grouping = Grouping(graph, runtime, explain=explain)
    rules = all_rules()
    if graph.integer:
        rules["integer-kernel"].apply(grouping)
    for name in runtime.rules:
        rules[name].apply(grouping)
    return grouping


def _bodies(node: NodeCost, runtime: Runtime) -> tuple[KernelBody, ...]:
    return tuple(
        KernelBody(
            body.name, plan_for(body.cost, runtime), body.trips, body.alternative, body.per_trip
        )
        for body in node.bodies
    )
