"""Sums over a model's nodes, and how complete they are."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.bounded import is_exact, lower, upper
from onnxroof.cost.records import BodyCost, GraphCost, NodeCost, Role, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the model; with unknown nodes they are lower bounds (`is_lower_bound`).

    `macs`, `flops`, … are upper ends where counts are bounded ("at most"); `macs_min` and
    `flops_min` the lower ends ("at least"). `folded_macs` is the part of `macs` whose operands are
    all constants, which a runtime computes once. Shared weights count once.
    """

    macs: int
    macs_min: int
    flops: int
    flops_min: int
    folded_macs: int
    transcendentals: int
    macs_by_dtype: Mapping[str, int]
    parameters: int
    weight_bytes: int
    quantization_bytes: int
    control_bytes: int
    unused_parameters: int
    nonzero_parameters: int
    traffic_bytes: int
    is_lower_bound: bool
    is_upper_bound: bool
    per_trip: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many nodes were counted, and who was not.

    `unknown` maps an operator to (nodes, reason).
    """

    nodes: int
    counted: int
    free: int
    folded: int
    unknown: Mapping[str, tuple[int, str]]
    by_source: Mapping[str, int]

    @property
    def complete(self) -> bool:
        """Whether every node has a cost."""
        return not self.unknown


def total(cost: GraphCost) -> Totals:
    """Sums over a model."""
    nodes = cost.nodes
    macs = sum(node.macs or 0 for node in nodes)
    flops = sum(node.flops or 0 for node in nodes)
    by_dtype: Counter[str] = Counter()
    _add_macs_by_dtype(cost, 1, by_dtype)
    weights = [w for w in cost.weights if w.role is Role.WEIGHT]
    return Totals(
        macs=macs,
        macs_min=lower(macs),
        flops=flops,
        flops_min=lower(flops),
        folded_macs=_folded_macs(cost),
        transcendentals=sum(node.transcendentals or 0 for node in nodes),
        macs_by_dtype=dict(sorted(by_dtype.items())),
        parameters=sum(w.parameters for w in weights),
        weight_bytes=sum(w.stored_bytes or 0 for w in weights),
        quantization_bytes=_bytes_of(cost, Role.QUANTIZATION),
        control_bytes=_bytes_of(cost, Role.CONTROL),
        unused_parameters=sum(
            math.prod(w.constant.shape) for w in cost.weights if w.role is Role.UNUSED
        ),
        nonzero_parameters=sum(
            w.parameters if w.constant.nonzeros is None else w.constant.nonzeros for w in weights
        ),
        traffic_bytes=sum(
            (n.input_bytes or 0) + (n.weight_read_bytes or 0) + (n.output_bytes or 0) for n in nodes
        ),
        is_lower_bound=any(n.status is Status.UNKNOWN or n.traffic_bytes is None for n in nodes),
        is_upper_bound=not (is_exact(macs) and is_exact(flops)),
        per_trip=any(body.per_trip for _, body in each_body(cost)),
    )


def _folded_macs(cost: GraphCost) -> int:
    """Multiply-accumulates of constants in all trips; of alternatives those of the dearest."""
    folded = 0
    for node in cost.nodes:
        if node.bodies:
            parts = [
                (
                    body.trips * upper(sum(inner.macs or 0 for inner in body.cost.nodes)),
                    body.trips * _folded_macs(body.cost),
                )
                for body in node.bodies
            ]
            is_choice = any(body.alternative for body in node.bodies)
            folded += max(parts)[1] if is_choice else sum(part for _, part in parts)
        elif node.status is Status.FOLDED:
            folded += node.macs or 0
    return folded


def _bytes_of(cost: GraphCost, role: Role) -> int:
    return sum(w.stored_bytes or 0 for w in cost.weights if w.role is role)


def _add_macs_by_dtype(cost: GraphCost, trips: int, by_dtype: Counter[str]) -> None:
    for node in cost.nodes:
        if node.bodies:
            _add_body_macs(node.bodies, trips, by_dtype)
        elif node.macs:
            label = node.compute_dtype.label if node.compute_dtype is not None else "unknown"
            by_dtype[label] += trips * node.macs


def _add_body_macs(bodies: tuple[BodyCost, ...], trips: int, by_dtype: Counter[str]) -> None:
    """All bodies' multiply-accumulates; of alternatives, each type's most."""
    most: Counter[str] = Counter()
    for body in bodies:
        own: Counter[str] = Counter()
        _add_macs_by_dtype(body.cost, trips * body.trips, own)
        if body.alternative:
            most |= own
        else:
            by_dtype.update(own)
    by_dtype.update(most)


def _each_graph(cost: GraphCost) -> Iterator[GraphCost]:
    """The graph and every body at any depth."""
    yield cost
    for _, body in each_body(cost):
        yield body.cost


def each_body(cost: GraphCost) -> Iterator[tuple[NodeCost, BodyCost]]:
    """Every body at any depth, with the node that runs it."""
    for node in cost.nodes:
        for body in node.bodies:
            yield node, body
            yield from each_body(body.cost)


def coverage(cost: GraphCost) -> Coverage:
    """How many nodes, bodies included, have a cost."""
    counts: Counter[Status] = Counter()
    sources: Counter[str] = Counter()
    unknown: dict[str, tuple[int, str]] = {}
    for node in (node for graph in _each_graph(cost) for node in graph.nodes):
        counts[node.status] += 1
        operator = node.call.operator
        sources[operator.source if operator is not None else "none"] += 1
        if node.status is Status.UNKNOWN and not node.bodies:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            seen, reason = unknown.get(name, (0, node.note))
            unknown[name] = (seen + 1, reason)
    return Coverage(
        nodes=sum(counts.values()),
        counted=counts[Status.COUNTED],
        free=counts[Status.FREE],
        folded=counts[Status.FOLDED],
        unknown=unknown,
        by_source=dict(sources),
    )
