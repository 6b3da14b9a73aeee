"""What is alive while the kernels of a plan run: elided tensors never exist, views are shared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.memory.lifetimes import Lifetimes, body_bytes

if TYPE_CHECKING:
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel, KernelPlan


def kernel_lifetimes(plan: KernelPlan) -> Lifetimes:
    """Lifetimes in steps of kernels, with each kernel's workspace as extra bytes.

    A part written in place into a Concat's result is that result's bytes.
    """
    births: dict[str, int] = {}
    deaths: dict[str, int] = {}
    graph = plan.cost.shaped.graph
    for item in graph.inputs:
        births[item.name] = 0
        deaths[item.name] = -1
    extra: list[int] = []
    for step, kernel in enumerate(plan.kernels):
        _note_reads(plan, kernel, step, deaths)
        _note_writes(plan, kernel, step, births, deaths)
        extra.append(workspace_bytes(plan, kernel))
    for name in graph.outputs:
        tensor = plan.views.get(name, name)
        tensor = plan.parts.get(tensor, tensor)
        if tensor in deaths:
            deaths[tensor] = len(plan.kernels) - 1
    return _listed(plan, births, deaths, extra)


def _note_reads(plan: KernelPlan, kernel: Kernel, step: int, deaths: dict[str, int]) -> None:
    views, parts = plan.views, plan.parts
    for index in kernel.nodes:
        node = plan.cost.nodes[index].node
        names = node.inputs
        if node.subgraphs:
            names = (*names, *(name for _, body in node.subgraphs for name in body.captures))
        for name in names:
            tensor = views.get(name, name)
            tensor = parts.get(tensor, tensor)
            if tensor in deaths:
                deaths[tensor] = step


def _note_writes(
    plan: KernelPlan, kernel: Kernel, step: int, births: dict[str, int], deaths: dict[str, int]
) -> None:
    elided = frozenset(kernel.elided)
    for index in kernel.nodes:
        for name in plan.cost.nodes[index].node.outputs:
            if name and name not in elided:
                tensor = plan.parts.get(name, name)
                births.setdefault(tensor, step)
                deaths[tensor] = step


def _listed(
    plan: KernelPlan, births: dict[str, int], deaths: dict[str, int], extra: list[int]
) -> Lifetimes:
    names: list[str] = []
    sizes: list[int] = []
    unknown: list[str] = []
    for name in deaths:
        nbytes = plan.cost.shaped.tensors[name].nbytes
        if nbytes is None:
            unknown.append(name)
        else:
            names.append(name)
            sizes.append(upper(nbytes))
    return Lifetimes(
        names, sizes, [births[n] for n in names], [deaths[n] for n in names], extra,
        tuple(unknown), {},
    )  # fmt: skip


def workspace_bytes(plan: KernelPlan, kernel: Kernel) -> int:
    """Bytes a kernel needs besides its tensors.

    A convolution by im2col unrolls its input: none for a 1×1 kernel, which reads it as it is, nor
    for a depthwise one, which needs no product. Control flow holds what its bodies hold.
    """
    anchor = plan.cost.nodes[kernel.anchor]
    if anchor.bodies:
        return body_bytes(anchor)
    if not RUNTIMES[plan.runtime].im2col or anchor.kind not in ("Conv", "FusedConv"):
        return 0
    return im2col_bytes(anchor)


def im2col_bytes(node: NodeCost) -> int:
    """Bytes of the unrolled input of a convolution.

    Formula:
        N · C · prod(K) · prod(O) elements: kernel positions times the input where the output has
        the input's size, less with a stride; 0 for 1×1 and for depthwise kernels.
    """
    infos, outputs = node.call.inputs, node.call.outputs
    if len(infos) < 2 or not outputs:
        return 0
    image, weight, output = infos[0], infos[1], outputs[0]
    if image is None or weight is None or image.dtype is None:
        return 0
    if image.shape is None or weight.shape is None or output.shape is None:
        return 0
    positions = math.prod(weight.shape[2:])
    is_depthwise = weight.shape[1] == 1 and image.shape[1] > 1
    if positions <= 1 or is_depthwise:
        return 0
    elements = math.prod(image.shape[:2]) * positions * math.prod(output.shape[2:])
    return upper(image.dtype.nbytes(elements) or 0)
