"""How the costs of a loop's body go from trip to trip: what the sum over all of them can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.ops.call import MALFORMED, Impossible, Undetermined

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from onnxroof.ops.call import OpCall, OpCost
    from onnxroof.ops.control_flow import ShapedBody

    Quantities = tuple[int, int, int, int, int]

_NONE: Quantities = (0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Course:
    """What is true of each count and of each node's bytes over the trips that were looked at.

    Attributes:
        even: The same step from each trip to the next: half the trips like the first and half like
            the last is the sum.
        below: On a line or a parabola that is open above, so nowhere above the line from the first
            trip to the last: the same is at most the sum.
        falls: One is larger before the last trip than in it. Where none is, as many trips like the
            last are at most the sum.
    """

    even: bool
    below: bool
    falls: bool


def course(walked: Mapping[int, ShapedBody]) -> Course:
    """The course of a body's costs.

    Args:
        walked: Trip → the body as sized in it: the first three or all, the last and others.
    """
    trips = sorted(walked)
    costs = [[each for call in walked[trip].calls for each in _quantities(call)] for trip in trips]
    even, below, falls = True, True, False
    for values in zip(*costs, strict=True):
        step, bend = _step_and_bend(values)
        fits = all(
            value == values[0] + trip * step + bend * (trip * (trip - 1) // 2)
            for trip, value in zip(trips, values, strict=True)
        )
        even = even and fits and not bend
        below = below and fits and bend >= 0
        falls = falls or max(values) > values[-1]
    return Course(even, below, falls)


def _step_and_bend(values: tuple[int, ...]) -> tuple[int, int]:
    """The first and the second difference of a sequence at its beginning."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step, values[2] - values[1] - step if len(values) > 2 else 0


def decides(body: ShapedBody, dependent: Container[str]) -> bool:
    """Whether an If of the body takes one of its branches for what is in some tensors."""
    return any(
        (call.kind == "If" and len(call.bodies) == 1 and call.node.inputs[0] in dependent)
        or any(decides(inner.shaped, dependent) for inner in call.bodies)
        for call in body.calls
    )  # fmt: skip


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
