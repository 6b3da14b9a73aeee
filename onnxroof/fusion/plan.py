"""Fourth stage: `GraphCost` → `KernelPlan`: what a runtime launches after folding and fusing.

Annotates, never rewrites: every live node is put in exactly one kernel. A tensor stays out of
memory only if all who read it are in the kernel that makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.build import fused_kernel, lone_kernel
from onnxroof.fusion.live import LiveGraph
from onnxroof.fusion.records import (
    FusionMiss,
    Kernel,
    KernelBody,
    KernelPlan,
    RemovedNode,
)
from onnxroof.fusion.runtimes import find_runtime

if TYPE_CHECKING:
    from onnxroof.cost import GraphCost, NodeCost
    from onnxroof.fusion.runtimes import Runtime

__all__ = ["FusionMiss", "Kernel", "KernelBody", "KernelPlan", "RemovedNode", "plan_kernels"]

_ACTIVATIONS = frozenset(
    ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Elu", "Selu",
     "Softplus", "PRelu", "Gelu", "Mish", "Swish", "ThresholdedRelu", "Erf")
)  # fmt: skip
_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))
_PRODUCTS = frozenset(("MatMul", "Gemm"))


def plan_kernels(cost: GraphCost, runtime: str = "onnxruntime") -> KernelPlan:
    """Group the graph's nodes into kernels as the named runtime would.

    Args:
        cost: The graph's costs before fusion.
        runtime: Name of a fusion set: "none", "basic", "onnxruntime", "tensorrt",
            "torch-compile" or "tflite".

    Raises:
        UsageError: No fusion set has this name.
    """
    return _plan(cost, find_runtime(runtime))


def _plan(cost: GraphCost, runtime: Runtime) -> KernelPlan:
    graph = LiveGraph(cost)
    taken: set[int] = set()
    misses: list[FusionMiss] = []
    kernels: list[Kernel] = []
    for index in graph.live:
        if index in taken:
            continue
        members, rule = [index], "none"
        if runtime.rules:
            members, rule = _grow(graph, index)
        taken.update(members)
        node = graph.nodes[index]
        if node.bodies:
            kernels.append(_with_bodies(len(kernels), node, runtime))
        elif len(members) == 1:
            kernels.append(lone_kernel(len(kernels), node))
        else:
            kernels.append(fused_kernel(len(kernels), graph, members, index, rule))
    return KernelPlan(cost, runtime.name, tuple(kernels), tuple(misses), tuple(graph.removed))


def _grow(graph: LiveGraph, index: int) -> tuple[list[int], str]:
    op_type = graph.nodes[index].op_type
    members = [index]
    rule = "none"
    while True:
        following = graph.only_reader(graph.nodes[members[-1]].node.outputs[0])
        if following < 0 or following != members[-1] + 1:
            return members, rule
        after = graph.nodes[following].op_type
        last = graph.nodes[members[-1]].op_type
        operator = graph.nodes[following].call.operator
        pointwise = operator is not None and operator.pointwise
        if op_type in _CONVOLUTIONS:
            fits = last not in _ACTIVATIONS and (
                after in _ACTIVATIONS or after in ("BatchNormalization", "Add")
            )
            rule = "convolution"
        elif op_type in _PRODUCTS:
            fits = last not in _ACTIVATIONS and (after in _ACTIVATIONS or after == "Add")
            rule = "matmul"
        else:
            mine = graph.nodes[index].call.operator
            fits = pointwise and mine is not None and mine.pointwise
            rule = "elementwise"
        if not fits:
            return members, rule if len(members) > 1 else "none"
        members.append(following)


def _with_bodies(index: int, node: NodeCost, runtime: Runtime) -> Kernel:
    bodies = tuple(
        KernelBody(
            body.name, _plan(body.cost, runtime), body.trips, body.alternative, body.per_trip
        )
        for body in node.bodies
    )
    return lone_kernel(index, node, bodies)
