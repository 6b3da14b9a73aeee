"""How the costs of a loop's body go from trip to trip: what the sum over all of them can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.ops.call import MALFORMED, Impossible, Undetermined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.ops.call import OpCall, OpCost
    from onnxroof.ops.control_flow import ShapedBody

    Quantities = tuple[int, int, int, int, int]

_NONE: Quantities = (0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Course:
    """What is true of each count and of each node's bytes over the trips that were looked at.

    Attributes:
        even: The same step from each trip to the next: half the trips like the first and half like
            the last is the sum. It is at most the sum where nothing is `above`.
        above: One is larger in between than on the line from the first trip to the last.
        falls: One is larger before the last trip than in it. Where none is, as many trips like the
            last are at most the sum.
    """

    even: bool
    above: bool
    falls: bool


def course(last: int, walked: Mapping[int, ShapedBody]) -> Course:
    """The course of a body's costs.

    Args:
        last: The number of the last trip, from 0.
        walked: Trip → the body as sized in it; the first, the last and some in between.
    """
    costs = {trip: [_quantities(call) for call in body.calls] for trip, body in walked.items()}
    even, above, falls = True, False, False
    for trip, between in costs.items():
        for begin, here, end in zip(costs[0], between, costs[last], strict=True):
            for low, value, high in zip(begin, here, end, strict=True):
                off = last * value - (last - trip) * low - trip * high
                even = even and not off
                above = above or off > 0
                falls = falls or value > high
    return Course(even, above, falls)


def _quantities(call: OpCall) -> Quantities:
    """(MACs, FLOPs, transcendentals, bytes read, bytes written) of a call; what is unknown is 0."""
    if call.bodies and not call.folded:
        parts = [
            tuple(upper(body.trips) * each for each in _quantities(inner))
            for body in call.bodies
            for inner in body.shaped.calls
        ]
        return tuple(map(sum, zip(*parts, strict=True))) if parts else _NONE  # type: ignore[return-value]
    if call.folded or all(info.constant for info in call.outputs):
        return _NONE
    cost = _cost(call)
    reads, writes = (cost.reads, cost.writes) if cost is not None else (None, None)
    given = {at: info.nbytes for at, info in enumerate(call.inputs) if info is not None}
    made = {at: info.nbytes for at, info in enumerate(call.outputs)}
    read = sum(map(_bytes, {**given, **(reads or {})}.values()))
    written = sum(map(_bytes, {**made, **(writes or {})}.values()))
    if cost is None:
        return (0, 0, 0, read, written)
    work = cost.macs, cost.flops, cost.transcendentals
    return (*map(upper, work), read, written)  # type: ignore[return-value]


def _bytes(count: int | None) -> int:
    return 0 if count is None else upper(count)


def _cost(call: OpCall) -> OpCost | None:
    """The call's cost by its operator's rule; None where it has none."""
    rule = None if call.operator is None else call.operator.cost_rule
    if rule is None:
        return None
    try:
        return rule(call)
    except (Undetermined, Impossible, *MALFORMED):
        return None
