"""When each tensor is alive, and the sums that follow.

Definition of "alive", in steps of the execution order: a graph input from the start to its last
use, a graph output to the end, any other tensor from the step that makes it to its last use;
inputs and outputs of a running step are alive together. An input nobody reads is never alive.
What derives from constants alone is a weight and not counted. A step that runs a subgraph also
holds the subgraph's own tensors (see `body_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, compress
from operator import not_
from typing import TYPE_CHECKING

from onnxroof.bounded import lower
from onnxroof.cost import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxroof.cost import BodyCost, GraphCost, NodeCost


@dataclass(frozen=True, slots=True, eq=False)
class Lifetimes:
    """Tensors as parallel lists, and what steps need besides.

    Attributes:
        names: The tensors.
        sizes: Their bytes, upper ends where only bounds are known.
        births: First step each is alive in.
        deaths: Last step each is alive in.
        extra: Bytes each step needs besides: bodies of control flow, workspace.
        unknown: Tensors whose size is not known, those in bodies included; they count nothing.
        least: Lower ends of the sizes that are only bounded, by position.
        bounded_bodies: Whether sizes in bodies are only bounded; they count at the upper end.
    """

    names: list[str]
    sizes: list[int]
    births: list[int]
    deaths: list[int]
    extra: list[int]
    unknown: tuple[str, ...]
    least: dict[int, int]
    bounded_bodies: bool = False

    @property
    def is_upper_bound(self) -> bool:
        """Whether a size is known by its bounds only."""
        return bool(self.least) or self.bounded_bodies

    def live_bytes(self) -> list[int]:
        """Bytes alive in each step."""
        steps = len(self.extra)
        change = [0] * (steps + 1)
        for size, birth, death in zip(self.sizes, self.births, self.deaths, strict=True):
            if death >= birth:
                change[birth] += size
                change[death + 1] -= size
        live = list(accumulate(change[:steps]))
        if any(self.extra):
            live = [held + extra for held, extra in zip(live, self.extra, strict=True)]
        return live

    def alive_in(self, step: int) -> list[int]:
        """Positions of the tensors alive in a step."""
        return [
            position
            for position, (birth, death) in enumerate(zip(self.births, self.deaths, strict=True))
            if birth <= step <= death
        ]

    def lower_bytes(self, positions: Iterable[int]) -> int:
        """Sum of the lower ends of these tensors' sizes."""
        least, sizes = self.least, self.sizes
        return sum(least.get(position, sizes[position]) for position in positions)

    def merged(self, pairs: Iterable[tuple[str, str]]) -> Lifetimes:
        """The same where each pair of tensors shares one buffer, as large as the larger.

        A pair with a name that is no activation (a view of a weight) takes no bytes at all.
        """
        position = {name: at for at, name in enumerate(self.names)}
        sizes, births, deaths = list(self.sizes), list(self.births), list(self.deaths)
        buffer: dict[int, int] = {}
        for kept, taken in pairs:
            mine = position.get(taken)
            if mine is None:
                continue
            into = position.get(kept)
            if into is not None:
                into = buffer.get(into, into)
                sizes[into] = max(sizes[into], sizes[mine])
                births[into] = min(births[into], births[mine])
                deaths[into] = max(deaths[into], deaths[mine])
                buffer[mine] = into
            sizes[mine] = 0
        return replace(self, sizes=sizes, births=births, deaths=deaths)


def node_lifetimes(cost: GraphCost, order: Sequence[int] | None = None) -> Lifetimes:
    """Lifetimes when the graph's nodes run in file order, or in the order given."""
    nodes = cost.nodes if order is None else [cost.nodes[index] for index in order]
    deaths: dict[str, int] = {item.name: -1 for item in cost.shaped.graph.inputs}
    births = [0] * len(deaths)  # in the order of `deaths`: a tensor is made once
    extra = [0] * len(nodes)
    inside: list[Lifetimes] = []
    folded = Status.FOLDED
    for step, cost_node in enumerate(nodes):
        if cost_node.status is folded:
            continue
        node = cost_node.node
        for name in node.inputs:
            if name in deaths:
                deaths[name] = step
        if node.subgraphs:
            _read_captures(cost_node, step, deaths)
            bodies = [_own_lifetimes(cost_node, body) for body in cost_node.bodies]
            extra[step] = _most_alive(bodies)
            inside += bodies
        for name in node.outputs:
            if name:
                deaths[name] = step
                births.append(step)
    end = len(nodes) - 1
    for name in cost.shaped.graph.outputs:
        if name in deaths:
            deaths[name] = end
    found = _lists(cost, births, deaths, extra)
    return _with_inside(found, inside) if inside else found


def _read_captures(node: NodeCost, step: int, deaths: dict[str, int]) -> None:
    for _, body in node.node.subgraphs:
        for name in body.captures:
            if name in deaths:
                deaths[name] = step


def _with_inside(found: Lifetimes, bodies: Sequence[Lifetimes]) -> Lifetimes:
    """The lifetimes with what is not exactly known of the bodies."""
    unknown = [name for body in bodies for name in body.unknown]
    return replace(
        found,
        unknown=(*found.unknown, *unknown),
        bounded_bodies=any(body.is_upper_bound for body in bodies),
    )


def _lists(
    cost: GraphCost, births: list[int], deaths: dict[str, int], extra: list[int]
) -> Lifetimes:
    tensors = cost.shaped.tensors
    found = [tensors[name].nbytes for name in deaths]
    known = [size is not None for size in found]
    sizes = [size for size in found if size is not None]
    return Lifetimes(
        names=list(compress(deaths, known)),
        sizes=list(map(int, sizes)),  # the upper ends
        births=list(compress(births, known)),
        deaths=list(compress(deaths.values(), known)),
        extra=extra,
        unknown=tuple(compress(deaths, map(not_, known))),
        least={at: lower(size) for at, size in enumerate(sizes) if type(size) is not int},
    )


def body_bytes(node: NodeCost) -> int:
    """Bytes the largest body of a control-flow node holds at its peak, for one trip.

    What it captures is alive outside. The outputs of an If's branch and the state a Loop or Scan
    carries out are written where the node's own outputs lie, so they are not counted again.
    """
    return _most_alive([_own_lifetimes(node, body) for body in node.bodies])


def _most_alive(bodies: Iterable[Lifetimes]) -> int:
    return max((nbytes for body in bodies for nbytes in body.live_bytes()), default=0)


def _own_lifetimes(node: NodeCost, body: BodyCost) -> Lifetimes:
    """Lifetimes of the tensors of a body that lie nowhere outside."""
    outputs = body.cost.shaped.graph.outputs
    carried = outputs if node.op_type == "If" else outputs[: _states(node)]
    own = node_lifetimes(body.cost).merged(("", name) for name in set(carried))
    if not own.unknown:
        return own
    return replace(own, unknown=tuple([name for name in own.unknown if name not in carried]))


def _states(node: NodeCost) -> int:
    """How many outputs of the body are carried on, the condition of a Loop included."""
    if node.kind == "Loop":
        return 1 + max(len(node.node.inputs) - 2, 0)
    scans = node.call.attributes.get("num_scan_inputs", 0)
    return max(len(node.node.inputs) - scans, 0) if isinstance(scans, int) else 0
