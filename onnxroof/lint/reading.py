"""Questions several rules ask of an `Analysis`: who reads what, which kernel, what time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.cost import Status, each_body
from onnxroof.fusion.plan import KernelPlan
from onnxroof.roofline import Device, apply_roofline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from onnxroof.analysis import Analysis
    from onnxroof.cost import GraphCost, NodeCost
    from onnxroof.fusion.plan import Kernel
    from onnxroof.graph.types import Constant
    from onnxroof.ops.call import Shape
    from onnxroof.roofline import KernelTime, RooflineResult

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv", "QLinearConv", "ConvInteger"})
PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm"})
LINEAR = frozenset({"Conv", "ConvTranspose", "FusedConv", *PRODUCTS})
"""Operators whose second input is a matrix of weights."""

ACTIVATIONS = frozenset(
    ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu",
     "Softplus", "PRelu", "Gelu", "Mish", "Swish", "ThresholdedRelu", "Celu", "Softsign")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Saving:
    """What a change would save; `seconds` is None without a device."""

    seconds: float | None
    nbytes: int


def device(analysis: Analysis) -> RooflineResult | None:
    """The chosen device: the first one asked for."""
    return analysis.rooflines[0] if analysis.rooflines else None


def timed(analysis: Analysis) -> Iterator[tuple[Kernel, KernelTime]]:
    """Every kernel of the main graph with its time on the chosen device."""
    chosen = device(analysis)
    if chosen is not None:
        yield from zip(analysis.kernels.kernels, chosen.kernels, strict=True)


def seconds_of(analysis: Analysis, kernel: Kernel) -> float | None:
    """Time of a kernel that need not exist, on the chosen device; None without one."""
    time = time_of(analysis, kernel)
    return None if time is None else time.seconds


def time_of(analysis: Analysis, kernel: Kernel) -> KernelTime | None:
    """The terms of the time of a kernel that need not exist; None without a device."""
    chosen = device(analysis)
    if chosen is None:
        return None
    plan = KernelPlan(analysis.cost, analysis.kernels.runtime, (replace(kernel, index=0),), {})
    return apply_roofline(plan, Device(chosen.hardware, chosen.peak_kind)).kernels[0]


def kernel_by_node(analysis: Analysis) -> Mapping[int, Kernel]:
    """Node of the main graph → the kernel it runs in; nodes that launch nothing are missing."""
    return analysis.kernels.kernel_of_node


def is_in_main_graph(analysis: Analysis, node: NodeCost) -> bool:
    """Whether the node stands in the main graph; bodies number their nodes anew."""
    index = node.node.index
    return index < len(analysis.nodes) and analysis.nodes[index] is node


def kernel_of(analysis: Analysis, node: NodeCost) -> Kernel | None:
    """The kernel a node of the main graph runs in; None for a body's and for what is removed."""
    if not is_in_main_graph(analysis, node):
        return None
    return analysis.kernels.kernel_of_node.get(node.node.index)


def without(analysis: Analysis, nodes: Set[int]) -> Saving:
    """What leaving nodes of the main graph out would save: the kernels they alone make up."""
    by_node = analysis.kernels.kernel_of_node
    touched = {by_node[node].index: by_node[node] for node in nodes if node in by_node}
    gone = [touched[index] for index in sorted(touched) if nodes >= {*touched[index].nodes}]
    nbytes = sum(int(kernel.traffic_bytes or 0) for kernel in gone)
    chosen = device(analysis)
    if chosen is None:
        return Saving(None, nbytes)
    return Saving(sum(chosen.kernels[kernel.index].seconds for kernel in gone), nbytes)


def graphs(analysis: Analysis) -> Iterator[GraphCost]:
    """The main graph and every body, each once."""
    yield analysis.cost
    seen: set[int] = set()
    for _, body in each_body(analysis.cost):
        if id(body.cost) not in seen:
            seen.add(id(body.cost))
            yield body.cost


def every_node(analysis: Analysis) -> Iterator[NodeCost]:
    """Nodes of the main graph and of all bodies."""
    for cost in graphs(analysis):
        yield from cost.nodes


def runs(node: NodeCost) -> bool:
    """Whether the node runs in every inference: neither folded before the first one nor broken."""
    return node.status is not Status.FOLDED and not node.call.problem


def producers(cost: GraphCost) -> dict[str, NodeCost]:
    """Tensor → the node that makes it, unless that node contradicts its operator's text."""
    return {
        name: node
        for node in cost.nodes
        if not node.call.problem
        for name in node.node.outputs
        if name
    }


def readers(cost: GraphCost) -> dict[str, list[NodeCost]]:
    """Tensor → the nodes that read it, bodies' captures included."""
    found: dict[str, list[NodeCost]] = {}
    for node in cost.nodes:
        for name in dict.fromkeys(node.node.reads):
            if name:
                found.setdefault(name, []).append(node)
    return found


def uses(analysis: Analysis) -> dict[object, list[tuple[NodeCost, int]]]:
    """Identity of a constant → (node, input position) of everything that computes with it."""
    found: dict[object, list[tuple[NodeCost, int]]] = {}
    for cost in graphs(analysis):
        for node in cost.nodes:
            if not runs(node):
                continue
            for position, name in enumerate(node.node.inputs):
                info = node.call.inputs[position]
                if info is not None and info.constant:
                    for constant in cost.origins(name):
                        found.setdefault(constant.identity, []).append((node, position))
    return found


def labels(uses_of: Iterable[tuple[NodeCost, int]]) -> tuple[str, ...]:
    """Labels of the nodes, each once."""
    return tuple(dict.fromkeys(node.name for node, _ in uses_of))


def input_shape(node: NodeCost, position: int) -> Shape | None:
    """Shape of an input; None when absent or unknown."""
    infos = node.call.inputs
    info = infos[position] if position < len(infos) else None
    return None if info is None else info.shape


def output_shape(node: NodeCost) -> Shape | None:
    """Shape of the first output; None when unknown."""
    outputs = node.call.outputs
    return outputs[0].shape if outputs else None


def integer(node: NodeCost, attribute: str, default: int) -> int:
    """An attribute that is a number; its default where it is absent or something else."""
    value = node.call.attributes.get(attribute, default)
    return value if isinstance(value, int) else default


def integers(node: NodeCost, attribute: str) -> tuple[int, ...]:
    """An attribute that is a list of integers; empty where it is absent or something else."""
    value = node.call.attributes.get(attribute, ())
    if not isinstance(value, tuple):
        return ()
    return tuple(item for item in value if isinstance(item, int))


def kernel_shape(node: NodeCost) -> tuple[int, ...]:
    """Spatial sizes of a convolution's window, from the weights."""
    position = 3 if node.kind == "QLinearConv" else 1
    shape = input_shape(node, position)
    return () if shape is None else tuple(shape[2:])


def output_channel_axis(node: NodeCost, position: int, constant: Constant) -> int | None:
    """Axis of a weight along which output channels lie; None for anything but such a weight.

    Also None when the node reads the constant through another one, such as a Transpose.
    """
    rank = len(constant.shape)
    if position != 1 or node.kind not in LINEAR or node.node.inputs[1] != constant.name:
        return None
    if node.kind in ("Conv", "FusedConv"):
        return 0 if rank > 2 else None
    if node.kind == "ConvTranspose":
        return 1 if rank > 2 and integer(node, "group", 1) == 1 else None
    if rank != 2:
        return None
    return 0 if integer(node, "transB", 0) else 1


def behind_layers(cost: GraphCost) -> Set[str]:
    """Tensors with more than preparation (elementwise work, conversions) before them."""
    found: set[str] = set()
    for node in cost.nodes:
        if node.status is Status.FOLDED:
            continue
        layer = node.macs or node.bodies or node.status is Status.UNKNOWN
        if layer or not found.isdisjoint(node.node.inputs):
            found.update(filter(None, node.node.outputs))
    return found


def scaled(kernel: Kernel, share: float, nbytes: int) -> Kernel:
    """The kernel with a share of its arithmetic and so many constant bytes less."""
    return replace(
        kernel,
        macs=None if kernel.macs is None else round(kernel.macs * share),
        flops=None if kernel.flops is None else round(kernel.flops * share),
        weight_bytes=None if kernel.weight_bytes is None else max(kernel.weight_bytes - nbytes, 0),
    )
