"""Fifth stage: `KernelPlan` → `MemoryPlan`: what is alive when.

Definition of "alive": a graph input from the start to its last use, a graph output to the end, any
other tensor from the node that makes it to its last use; inputs and outputs of a running node are
alive together. Nothing runs in place and nothing is aliased. Weights and what derives from
constants alone are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, lower, upper
from onnxroof.cost import Role, Status

if TYPE_CHECKING:
    from onnxroof.cost import GraphCost
    from onnxroof.fusion.plan import KernelPlan


@dataclass(frozen=True, slots=True)
class Step:
    """A node in execution order: its index and label."""

    index: int
    label: str


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A tensor alive at the peak."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a model keeps alive while it runs.

    Attributes:
        peak_activation_bytes: Largest sum of tensors alive at once, in file order.
        peak_node: The node that runs then; None for a graph without nodes.
        peak_tensors: The tensors alive then, largest first.
        live_bytes: Sum alive while each node runs, by node index.
        weight_bytes: Bytes of the weights as stored.
        unknown: Tensors whose size is not known: with any, the peak is a lower bound.
    """

    peak_activation_bytes: int
    peak_node: Step | None
    peak_tensors: tuple[LiveTensor, ...]
    live_bytes: tuple[int, ...]
    weight_bytes: int
    unknown: tuple[str, ...]

    @property
    def is_lower_bound(self) -> bool:
        """Whether a tensor's size is unknown."""
        return bool(self.unknown)


def plan_memory(plan: KernelPlan) -> MemoryPlan:
    """Sweep over the nodes in file order and add up what is alive.

    Sizes that are only bounded enter at their upper bound; subtracting an interval from a sum it
    is part of would widen it.
    """
    cost = plan.cost
    last_use = _last_uses(cost)
    bounded, unknown = _sizes(cost, last_use)
    sizes = {name: upper(nbytes) for name, nbytes in bounded.items()}
    dying: dict[int, list[str]] = {}
    for name, index in last_use.items():
        dying.setdefault(index, []).append(name)
    live = sum(sizes[item.name] for item in cost.shaped.graph.inputs if item.name in sizes)
    live_bytes: list[int] = []
    peak, peak_at = live, -1
    for index, cost_node in enumerate(cost.nodes):
        if cost_node.status is Status.FOLDED:
            live_bytes.append(live)
            continue
        node = cost_node.node
        for name in node.outputs:
            if name in sizes:
                live += sizes[name]
        live_bytes.append(live)
        if live > peak or peak_at < 0:
            peak, peak_at = max(live, peak), index
        live -= sum(sizes.get(name, 0) for name in dying.get(index, ()))
    alive = _alive_at(cost, peak_at, last_use, bounded)
    return MemoryPlan(
        peak_activation_bytes=interval(min(peak, sum(lower(t.nbytes) for t in alive)), peak),
        peak_node=Step(peak_at, cost.nodes[peak_at].name) if peak_at >= 0 else None,
        peak_tensors=alive,
        live_bytes=tuple(live_bytes),
        weight_bytes=sum(w.stored_bytes or 0 for w in cost.weights if w.role is Role.WEIGHT),
        unknown=unknown,
    )


def _last_uses(cost: GraphCost) -> dict[str, int]:
    """Activation → index of the last node that reads it (or makes it, if none reads it)."""
    last_use: dict[str, int] = {item.name: -1 for item in cost.shaped.graph.inputs}
    for index, cost_node in enumerate(cost.nodes):
        if cost_node.status is Status.FOLDED:
            continue
        node = cost_node.node
        for name in node.inputs:
            if name in last_use:
                last_use[name] = index
        for _, body in node.subgraphs:
            for name in body.captures:
                if name in last_use:
                    last_use[name] = index
        for name in node.outputs:
            if name:
                last_use[name] = index
    end = len(cost.nodes)
    for name in cost.shaped.graph.outputs:
        if name in last_use:
            last_use[name] = end
    return last_use


def _sizes(cost: GraphCost, names: dict[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Bytes of the activations, and those whose size is unknown."""
    sizes: dict[str, int] = {}
    unknown: list[str] = []
    tensors = cost.shaped.tensors
    for name in names:
        nbytes = tensors[name].nbytes
        if nbytes is None:
            unknown.append(name)
        else:
            sizes[name] = nbytes
    return sizes, tuple(unknown)


def _alive_at(
    cost: GraphCost, step: int, last_use: dict[str, int], sizes: dict[str, int]
) -> tuple[LiveTensor, ...]:
    born = {
        name: index for index, node in enumerate(cost.nodes) for name in node.node.outputs if name
    }
    alive = [
        LiveTensor(name, sizes[name])
        for name, last in last_use.items()
        if name in sizes and born.get(name, -1) <= step <= last
    ]
    return tuple(sorted(alive, key=lambda tensor: -tensor.nbytes))
