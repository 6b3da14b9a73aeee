"""If, Loop, Scan, SequenceMap: which bodies run, how often, and what comes out.

A rule gets the call and a `walk` that sizes a body for given inputs; it returns the outputs and
the bodies with their trip counts. What a body costs is the sum of its nodes, so there is no
formula here: cost = trips × body, and for an If whose condition is not known, the interval over
its branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np

from onnxroof.bounded import ends, interval, is_exact, largest, lower, smallest, upper
from onnxroof.graph.types import DType, Graph
from onnxroof.ops.call import Impossible, OpCall, TensorInfo
from onnxroof.ops.course import course, decides
from onnxroof.ops.geometry import normalize_axis
from onnxroof.ops.registry import declare
from onnxroof.ops.sequence import common_shape, sequence_of, unknown_length

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

MOST_UNROLLED_TRIPS = 256
"""A loop whose sizes depend on the trip is followed trip by trip up to this many."""


NO_LIMIT = (1 << 31) - 1
"""Exporters write the largest integer as the trip limit of a while loop: no limit at all."""


class ShapedBody(Protocol):
    """A sized subgraph; the walk's result."""

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The body's outputs, in order."""
        ...

    @property
    def calls(self) -> tuple[OpCall, ...]:
        """The calls of the body's nodes, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Body:
    """A subgraph that a node runs.

    Attributes:
        name: The attribute that holds it ("then_branch", "body").
        shaped: Its sizes (a `ShapedGraph`).
        trips: How often it runs; a `BoundedInt` when only bounds are known.
        alternative: One of several of which exactly one runs (an If not decided before the run).
        per_trip: The trip count is not known at all; `trips` is 1 and stands for "per trip".
    """

    name: str
    shaped: ShapedBody
    trips: int = 1
    alternative: bool = False
    per_trip: bool = False


Walk = Callable[[Graph, "Sequence[TensorInfo]"], ShapedBody]
Outcome = tuple["Sequence[TensorInfo]", tuple[Body, ...]]
GraphRule = Callable[[OpCall, Walk], Outcome]

_UNKNOWN = TensorInfo(None, None)


def subgraph(call: OpCall, name: str) -> Graph:
    """The subgraph held by an attribute. Raises Impossible when missing."""
    for attribute, graph in call.node.subgraphs:
        if attribute == name:
            return graph
    raise Impossible(f"attribute {name} with its subgraph is missing")


def run_if(call: OpCall, walk: Walk) -> Outcome:
    """The taken branch when the condition is known, else both as alternatives."""
    condition = call.value(0)
    branches = [subgraph(call, "then_branch"), subgraph(call, "else_branch")]
    if condition is not None and condition.size == 1:
        taken = 0 if bool(condition.ravel()[0]) else 1
        shaped = walk(branches[taken], ())
        name = ("then_branch", "else_branch")[taken]
        call.note(f"the condition is known: {name} runs")
        return shaped.outputs, (Body(name, shaped),)
    both = [walk(branch, ()) for branch in branches]
    call.note(
        "the condition is computed at run time: counts are at most one branch, at least the other"
    )
    outputs = [
        _either(one, other) for one, other in zip(both[0].outputs, both[1].outputs, strict=False)
    ]
    return outputs, (
        Body("then_branch", both[0], alternative=True),
        Body("else_branch", both[1], alternative=True),
    )


def _either(one: TensorInfo, other: TensorInfo) -> TensorInfo:
    """What holds for a value that is one or the other: bounds where sizes differ."""
    if one is other or (one.exact and other.exact and one.value_key == other.value_key):
        return one.marked(constant=False)
    types = {info.dtype for info in (one, other)} - {None}
    dtype = types.pop() if len(types) == 1 else None
    if one.kind == other.kind != "tensor":
        element, items = _either_element(one, other), _either_items(one, other)
        return TensorInfo(dtype, None, kind=one.kind, items=items, element=element)
    shape = common_shape(one.shape, other.shape)
    return TensorInfo(dtype, shape, kind=one.kind if shape is None else "tensor")


def _either_element(one: TensorInfo, other: TensorInfo) -> TensorInfo | None:
    """What the elements of one of two lists are like; an empty list says nothing of them."""
    if one.element is None or other.element is None:
        return one.element or other.element
    return _either(one.element, other.element)


def _either_items(one: TensorInfo, other: TensorInfo) -> tuple[TensorInfo, ...] | None:
    """The elements of one of two lists, where both have equally many."""
    if one.items is None or other.items is None or len(one.items) != len(other.items):
        return None
    return tuple(map(_either, one.items, other.items))


def run_loop(call: OpCall, walk: Walk) -> Outcome:
    """State variables keep their last value; scan outputs are stacked over the trips."""
    body = subgraph(call, "body")
    states = [(info or _UNKNOWN).marked(constant=False) for info in call.inputs[2:]]
    if len(body.inputs) != 2 + len(states):
        raise Impossible(
            f"the body takes {len(body.inputs)} inputs, iteration, condition and "
            f"{len(states)} state variables are {2 + len(states)}"
        )
    limit = _trip_limit(call)
    varying = _of_any_value(states)
    shaped = walk(body, _arguments(varying))
    changing = _changed(varying, shaped)
    settled = not changing and all(_is_sized(info) for info in shaped.outputs[1:])
    if not settled and limit is not None and _starts(call):
        outcome = _unrolled(body, walk, states, limit)
        if outcome is not None:
            return outcome
    following = _following(body, changing)
    goes_on = shaped.outputs[0] if shaped.outputs else _UNKNOWN
    if body.outputs and body.outputs[0] in following:  # not the same in every trip
        goes_on = _UNKNOWN
    trips, per_trip = _trips(call, limit, goes_on)
    growth = _growth(body, shaped, {i: varying[i] for i in changing})
    if growth and not per_trip and trips:
        outcome = _growing(call, body, walk, states, growth, trips, following)
        if outcome is not None:
            return outcome
    if changing:
        shaped = _settle(body, walk, varying, shaped, changing)
        unsized = [i for i in changing if varying[i].shape is None]
        call.note(
            "a state variable changes shape from trip to trip: its size is "
            + ("not known" if unsized else "at most that of the first trip")
        )
    outputs = [
        info.marked(constant=False) if i not in changing else varying[i]
        for i, info in enumerate(shaped.outputs[1 : 1 + len(states)])
    ]
    if trips == 0 and is_exact(trips):
        outputs = states
    elif per_trip or not lower(trips):  # it may never run
        outputs = list(map(_either, states, outputs))
    scans = [_stacked(info, trips, per_trip=per_trip) for info in shaped.outputs[1 + len(states) :]]
    return [*outputs, *scans], (Body("body", shaped, trips, per_trip=per_trip),)


def _of_any_value(states: Sequence[TensorInfo]) -> list[TensorInfo]:
    """States as they are in any trip: their values change."""
    return [state if state.value is None else state.like() for state in states]


def _arguments(states: Sequence[TensorInfo], trip: int | None = None) -> Sequence[TensorInfo]:
    """What a loop gives its body in a trip, or in any trip: iteration, condition, states."""
    iteration = TensorInfo(DType.INT64, ())
    if trip is not None:
        iteration = TensorInfo(DType.INT64, (), value=np.array(trip), constant=True)
    return (iteration, TensorInfo(DType.BOOL, (), value=np.array(True), constant=True), *states)


def _changed(before: Sequence[TensorInfo], shaped: ShapedBody) -> set[int]:
    """The states that are not the same in size after a trip."""
    after = shaped.outputs[1 : 1 + len(before)]
    return {i for i, new in enumerate(after) if _signature(new) != _signature(before[i])}


def _following(body: Graph, changing: Iterable[int]) -> set[str]:
    """The tensors of a body that changing states have a part in, be it some trips later."""
    moving = {body.inputs[2 + i].name for i in changing}
    carried = list(zip(body.inputs[2:], body.outputs[1:], strict=False))
    while True:
        found = _dependent(body, set(moving))
        more = {state.name for state, result in carried if result in found}
        if more <= moving:
            return found
        moving |= more


def _settle(
    body: Graph,
    walk: Walk,
    varying: list[TensorInfo],
    shaped: ShapedBody,
    changing: set[int],
) -> ShapedBody:
    """Assume less of the states until what is assumed before a trip is true after it.

    `varying` becomes what is assumed, and `changing` takes the states that follow others.
    """
    results = shaped.outputs[1 : 1 + len(varying)]
    for i in changing:
        varying[i] = _widened(varying[i], results[i])
    while True:
        shaped = walk(body, _arguments(varying))
        results = shaped.outputs[1 : 1 + len(varying)]
        more = _changed(varying, shaped) - changing
        wrong = [i for i in changing if not _holds(varying[i], results[i])]
        if not more and not wrong:
            return shaped
        for i in wrong:
            varying[i] = TensorInfo(varying[i].dtype, None, kind=varying[i].kind)
        for i in more:
            varying[i] = _widened(varying[i], results[i])
        changing |= more


def _widened(before: TensorInfo, after: TensorInfo) -> TensorInfo:
    """What may be true of a changing state after any number of trips.

    Of a list that its elements are like those of the first trip, of a tensor that no size grows.
    """
    if before.kind == after.kind == "sequence":
        element = None if after.element is None else _either_element(before, after)
        return TensorInfo(before.dtype, None, kind="sequence", element=element)
    unknown = TensorInfo(before.dtype, None, kind=before.kind)
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return unknown
    if any(upper(b) > upper(a) for a, b in zip(before.shape, after.shape, strict=True)):
        return unknown
    return before.like(
        tuple(
            a if ends(a) == ends(b) else interval(0, upper(a))
            for a, b in zip(before.shape, after.shape, strict=True)
        )
    )


def _holds(assumed: TensorInfo, after: TensorInfo) -> bool:
    """Whether what was assumed of a state before a trip is true after it."""
    if assumed.shape is None:
        return assumed.element is None or _signature(assumed) == _signature(after)
    if after.shape is None or len(after.shape) != len(assumed.shape):
        return False
    return assumed.dtype is after.dtype and all(
        lower(a) <= lower(b) and upper(b) <= upper(a)
        for a, b in zip(assumed.shape, after.shape, strict=True)
    )


def _is_sized(info: TensorInfo) -> bool:
    """Whether every size in a value is known exactly."""
    if info.kind == "tensor":
        return info.shape is not None and info.exact
    parts = info.items if info.items is not None else (info.element,)
    return all(part is None or _is_sized(part) for part in parts)


def _signature(info: TensorInfo) -> tuple[object, ...]:
    """What must be the same before and after a trip for the next one to be like it."""
    items = None if info.items is None else tuple(map(_signature, info.items))
    element = None if info.element is None else _signature(info.element)
    shape = None if info.shape is None else tuple(map(ends, info.shape))
    return (info.kind, info.dtype, shape, items, element)


def _trip_limit(call: OpCall) -> int | None:
    """The first input's value; None when absent, computed at run time, or as good as no limit."""
    if not call.has(0):
        return None
    value = call.value(0)
    limit = NO_LIMIT if value is None else largest(value.ravel().tolist()[0], 0)
    return None if lower(limit) >= NO_LIMIT else limit


def _starts(call: OpCall) -> bool:
    """Whether the first trip is made for sure, if there is one at all."""
    start = call.value(1)
    return not call.has(1) or (start is not None and bool(start.ravel()[0]))


def _trips(call: OpCall, limit: int | None, condition_out: TensorInfo) -> tuple[int, bool]:
    """(trips, whether they stand for "per trip")."""
    start, starts = call.value(1), _starts(call)
    if start is not None and not bool(start.ravel()[0]):
        call.note("the condition is false from the start: the body never runs")
        return 0, False
    goes_on = condition_out.value is None or bool(np.asarray(condition_out.value).ravel()[0])
    if not goes_on:
        limit = 1 if limit is None else smallest(limit, 1)
    if limit is not None and starts and condition_out.value is not None:
        return limit, False
    if limit is not None:
        call.note(
            f"the trip count is an upper bound ({limit}): the body or an input may stop earlier"
        )
        return interval(1 if starts and lower(limit) else 0, upper(limit)), False
    call.note("the trip count is computed at run time: costs are those of one trip")
    return 1, True


def _stacked(info: TensorInfo, trips: int, *, per_trip: bool) -> TensorInfo:
    if per_trip or info.shape is None:
        return TensorInfo(info.dtype, None)
    return TensorInfo(info.dtype, (trips, *info.shape))


def _unrolled(body: Graph, walk: Walk, states: Sequence[TensorInfo], limit: int) -> Outcome | None:
    """Trip by trip, for sizes that depend on the trip (a list that grows, a moving slice).

    None where there may be too many, or where the data decide after which trip it stops.
    """
    if not is_exact(limit) or not 0 < limit <= MOST_UNROLLED_TRIPS:
        return None
    bodies: list[Body] = []
    scanned: list[Sequence[TensorInfo]] = []
    for trip in range(limit):
        shaped = walk(body, _arguments(states, trip))
        bodies.append(Body("body", shaped))
        states = [info.marked(constant=False) for info in shaped.outputs[1 : 1 + len(states)]]
        scanned.append(shaped.outputs[1 + len(states) :])
        goes_on = shaped.outputs[0].value if shaped.outputs else None
        if goes_on is None:
            return None
        if not bool(goes_on.ravel()[0]):
            break
    scans = [
        _stacked(infos[0], len(bodies), per_trip=not _alike(infos))
        for infos in zip(*scanned, strict=True)
    ]
    return [*states, *scans], tuple(bodies)


@dataclass(frozen=True, slots=True)
class _Growth:
    """A state variable that every trip makes longer by `rows` along `axis`."""

    axis: int
    rows: int

    def after(self, trips: int, state: TensorInfo) -> TensorInfo:
        """The state after so many trips."""
        dims = list(state.dims)
        dims[self.axis] = dims[self.axis] + self.rows * trips
        return state.like(tuple(dims))


def _growth(
    body: Graph, shaped: ShapedBody, changing: Mapping[int, TensorInfo]
) -> dict[int, _Growth]:
    """How the changing state variables grow; empty if one of them changes in another way.

    One grows that is concatenated with tensors which do not depend on any changing state: their
    sizes are then those of every trip.
    """
    makers = {name: index for index, node in enumerate(body.nodes) for name in node.outputs}
    states = {body.inputs[2 + i].name: i for i in changing}
    dependent = _dependent(body, set(states))
    growth: dict[int, _Growth] = {}
    for name, i in states.items():
        maker = makers.get(_origin(body, makers, body.outputs[1 + i]))
        if maker is None or body.nodes[maker].kind != "Concat":
            return {}
        call, names = shaped.calls[maker], body.nodes[maker].inputs
        own = [each for each in names if each in dependent]
        added = [
            info for each, info in zip(names, call.inputs, strict=True) if each not in dependent
        ]
        if len(own) != 1 or _origin(body, makers, own[0]) != name:
            return {}
        before, after = changing[i], shaped.outputs[1 + i]
        if before.shape is None or after.shape is None or before.dtype is not after.dtype:
            return {}
        axis = normalize_axis(call.attr("axis", 1), before.rank)
        growth[i] = _Growth(axis, sum(info.dims[axis] for info in added if info is not None))
    return growth


def _dependent(body: Graph, names: set[str]) -> set[str]:
    """These tensors and all that are made of them."""
    for node in body.nodes:
        if not names.isdisjoint(node.reads):
            names.update(node.outputs)
    return names


def _origin(body: Graph, makers: Mapping[str, int], name: str) -> str:
    """The tensor of which this is a copy, perhaps in another type."""
    for _ in body.nodes:
        node = body.nodes[makers[name]] if name in makers else None
        if node is None or node.kind not in ("Identity", "Cast") or not node.inputs:
            break
        name = node.inputs[0]
    return name


def _growing(
    call: OpCall,
    body: Graph,
    walk: Walk,
    states: Sequence[TensorInfo],
    growth: Mapping[int, _Growth],
    trips: int,
    following: Container[str],
) -> Outcome | None:
    """States that grow evenly, sized in some trips or, where these do not tell, in every one.

    The sum over all trips is exact where a trip's cost grows as evenly, and at most otherwise. None
    where another state follows the growing ones, so is not the same in every trip, or where nothing
    can be said of the trips in between.
    """
    most = upper(trips)
    some = {*_LOOKED_AT, most // 2, most - 2, most - 1}
    varying = _of_any_value(states)

    def walked_at(trips: Iterable[int], *, numbered: bool) -> dict[int, ShapedBody]:
        found: dict[int, ShapedBody] = {}
        for trip in trips:
            for i, each in growth.items():
                varying[i] = each.after(trip, states[i])
            found[trip] = walk(body, _arguments(varying, trip if numbered else None))
        return found

    walked = walked_at(sorted(trip for trip in some if 0 <= trip < most), numbered=False)
    is_every = most <= MOST_UNROLLED_TRIPS and not (
        _is_plain(body, walked[0], following) and course(walked).even
    )
    if is_every:
        walked = walked_at(range(most), numbered=True)
    scans_from = 1 + len(states)
    results = [shaped.outputs for shaped in walked.values()]
    carried = list(zip(*[outputs[1:scans_from] for outputs in results], strict=True))
    if any(not _alike(infos) for i, infos in enumerate(carried) if i not in growth):
        return None
    bodies = _every_body(walked, trips) if is_every else _some_bodies(walked, trips, following)
    if bodies is None:
        return None
    outputs = [
        growth[i].after(trips, states[i])
        if i in growth
        else reduce(_either, infos if lower(trips) else (states[i], *infos))
        for i, infos in enumerate(carried)
    ]
    scans = [
        _stacked(infos[0], trips, per_trip=not _alike(infos))
        for infos in zip(*[outputs[scans_from:] for outputs in results], strict=True)
    ]
    for each in growth.values():
        call.note(
            f"a state variable grows by {each.rows} along axis {each.axis} each trip"
            + ("" if is_every else f": {_COUNTED[len(bodies) == 1]}")
        )
    return [*outputs, *scans], bodies


_LOOKED_AT = (0, 1, 2, 3, 5, 8, 13)
"""Trips at which a loop is sized, besides the middle and the last ones."""

_POLYNOMIAL = frozenset(
    ("Shape", "Size", "SequenceLength", "Gather", "Slice", "Concat", "Unsqueeze", "Squeeze",
     "Reshape", "Identity", "Cast", "Add", "Sub", "Mul", "Neg")
)  # fmt: skip
"""Operators that make sizes of sizes without steps and choices: some trips tell all."""

_COUNTED = {
    False: "half the trips are counted as the first, half as the last",
    True: "all trips are counted as the last",
}


def _is_plain(body: Graph, shaped: ShapedBody, following: Container[str]) -> bool:
    """Whether no step and no choice is made by what grows."""
    return not decides(shaped, following) and all(
        node.kind in _POLYNOMIAL
        for node, call in zip(body.nodes, shaped.calls, strict=True)
        if any(name in following for name in node.outputs)
        and any(info.constant for info in call.outputs)
    )


def _alike(infos: Sequence[TensorInfo]) -> bool:
    """Whether a value has the same size in all trips that were looked at."""
    return len({_signature(info) for info in infos}) == 1


def _every_body(walked: Mapping[int, ShapedBody], trips: int) -> tuple[Body, ...]:
    """Each trip for itself: it runs, or it may."""
    least = lower(trips)
    return tuple(
        [
            Body("body", shaped, 1 if trip < least else interval(0, 1))
            for trip, shaped in walked.items()
        ]
    )


def _some_bodies(
    walked: Mapping[int, ShapedBody], trips: int, following: Container[str]
) -> tuple[Body, ...] | None:
    """Bodies whose counts make the sum over all trips; None where nothing can be said of it.

    Args:
        walked: Trip → the body as sized in it: the first, the last and some in between.
        trips: How many there are, or at most.
        following: The tensors that change from trip to trip.
    """
    if any(decides(shaped, following) for shaped in walked.values()):
        return None  # any trip in between may take the other branch
    most, half, least = upper(trips), upper(trips) // 2, lower(trips)
    going = course(walked)
    if not going.below:
        if going.falls:
            return None
        return (Body("body", walked[most - 1], interval(int(least == most), most)),)
    is_sum = going.even and is_exact(trips)
    sure = min(least, 1 if going.falls else half)  # trips that cost no less than the first
    parts = ((0, half, sure), (most - 1, half, 0), (half, most % 2, 0))
    return tuple(
        [
            Body("body", walked[trip], count if is_sum else interval(at_least, count))
            for trip, count, at_least in parts
            if count
        ]
    )


def run_scan(call: OpCall, walk: Walk) -> Outcome:
    """The body runs once per slice of the scan axis; scan outputs are stacked along an axis."""
    body = subgraph(call, "body")
    legacy = call.opset < 9
    inputs = [info or _UNKNOWN for info in call.inputs[1 if legacy else 0 :]]
    scan_count = call.attr("num_scan_inputs", 0)
    states, scans = inputs[: len(inputs) - scan_count], inputs[len(inputs) - scan_count :]
    if not scan_count or len(scans) != scan_count:
        raise Impossible(f"num_scan_inputs is {scan_count}, the node has {len(inputs)} inputs")
    batch = scans[0].dims[:1] if legacy else ()
    default_axes = (1 if legacy else 0,) * scan_count
    axes = call.ints_attr("scan_input_axes") or default_axes
    slices, lengths = [], []
    for info, axis in zip(scans, axes, strict=True):
        position = normalize_axis(axis, info.rank)
        dims = info.dims[:position] + info.dims[position + 1 :]
        slices.append(info.like(dims[1:] if legacy else dims))
        lengths.append(info.dims[position])
    length = lengths[0] if len(lengths) == 1 else _common_length(lengths)
    state_infos = [
        info.like(info.dims[1:]) if legacy else info.like() if info.value is not None else info
        for info in states
    ]
    shaped = walk(body, (*(s.marked(constant=False) for s in state_infos), *slices))
    final = [
        info.like((*batch, *info.dims)) if legacy else info.marked(constant=False)
        for info in shaped.outputs[: len(states)]
    ]
    if not lower(length):  # it may never run
        final = list(map(_either, states, final))
    produced = shaped.outputs[len(states) :]
    out_axes = call.ints_attr("scan_output_axes") or (0,) * len(produced)
    stacked = []
    for info, axis in zip(produced, out_axes, strict=True):
        if info.shape is None:
            stacked.append(TensorInfo(info.dtype, None))
            continue
        position = normalize_axis(axis, len(info.shape) + 1)
        dims = (*info.shape[:position], length, *info.shape[position:])
        stacked.append(TensorInfo(info.dtype, (*batch, *dims)))
    trips = length * batch[0] if legacy else length
    return [*final, *stacked], (Body("body", shaped, trips),)


def _common_length(lengths: Sequence[int]) -> int:
    """The length that all scan inputs have; of bounded ones, what all bounds allow."""
    low, high = max(map(lower, lengths)), min(map(upper, lengths))
    if low > high:
        raise Impossible(f"the scan inputs differ in length: {lengths}")
    return next(filter(is_exact, lengths), interval(low, high))


def run_sequence_map(call: OpCall, walk: Walk) -> Outcome:
    """The body runs once per element of the first sequence."""
    body = subgraph(call, "body")
    sequence = call.input(0)
    if sequence.items is None:
        call.note("the length of the sequence is not known: costs are those of one element")
        elements = [_each_element(info or _UNKNOWN) for info in call.inputs]
        shaped = walk(body, elements)
        outputs = [unknown_length(info.marked(constant=False).like()) for info in shaped.outputs]
        return outputs, (Body("body", shaped, per_trip=True),)
    bodies: list[Body] = []
    results: list[tuple[TensorInfo, ...]] = []
    for position in range(len(sequence.items)):
        arguments = []
        for info in call.inputs:
            whole = info or _UNKNOWN
            if whole.kind == "sequence" and whole.items is not None:
                arguments.append(whole.items[position] if position < len(whole.items) else _UNKNOWN)
            else:
                arguments.append(whole)
        shaped = walk(body, arguments)
        bodies.append(Body("body", shaped))
        results.append(shaped.outputs)
    return [sequence_of(infos) for infos in zip(*results, strict=True)], tuple(bodies)


def _each_element(info: TensorInfo) -> TensorInfo:
    """What a body gets of a sequence in each trip; another value whole."""
    return (info.element or _UNKNOWN) if info.kind == "sequence" else info


GRAPH_RULES: Mapping[str, GraphRule] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
    "SequenceMap": run_sequence_map,
}

declare("If", control=(0,), free="its cost is that of the branch that runs")
declare("Loop", control=(0, 1), sizes=(0,), free="its cost is that of its body, times the trips")
declare("Scan", free="its cost is that of its body, times the trips")
declare("SequenceMap", free="its cost is that of its body, once per element")
