"""If, Loop, Scan, SequenceMap: which bodies run, how often, and what comes out.

A rule gets the call and a `walk` that sizes a body for given inputs; it returns the outputs and
the bodies with their trip counts. What a body costs is the sum of its nodes, so there is no
formula here: cost = trips × body, and for an If whose condition is not known, the interval over
its branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from onnxroof.bounded import BoundedInt, interval, is_exact, largest, lower, smallest, upper
from onnxroof.graph.types import DType, Graph
from onnxroof.ops.call import Impossible, OpCall, TensorInfo, Undetermined
from onnxroof.ops.geometry import normalize_axis
from onnxroof.ops.registry import declare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    if one.key == other.key:
        return one.marked(constant=False)
    dtype = one.dtype if one.dtype is other.dtype else None
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return TensorInfo(dtype, None, kind=one.kind)
    return TensorInfo(
        dtype,
        tuple(
            a if a == b and is_exact(a) and is_exact(b) else _between(a, b)
            for a, b in zip(one.shape, other.shape, strict=True)
        ),
    )


def _between(one: int, other: int) -> int:
    low, high = smallest(one, other), largest(one, other)
    return BoundedInt(upper(high), lower(low))


def run_loop(call: OpCall, walk: Walk) -> Outcome:
    """State variables keep their last value; scan outputs are stacked over the trips."""
    body = subgraph(call, "body")
    states = [info or _UNKNOWN for info in call.inputs[2:]]
    if len(body.inputs) != 2 + len(states):
        raise Impossible(
            f"the body takes {len(body.inputs)} inputs, iteration, condition and "
            f"{len(states)} state variables are {2 + len(states)}"
        )
    limit = _trip_limit(call)
    iteration = TensorInfo(DType.INT64, ())
    condition = TensorInfo(DType.BOOL, (), value=np.array(True), constant=True)
    varying = [state.marked(constant=False) for state in states]
    varying = [state if state.value is None else state.like() for state in varying]
    shaped = walk(body, (iteration, condition, *varying))
    trips, per_trip = _trips(call, limit, shaped.outputs[0] if shaped.outputs else _UNKNOWN)
    carried = shaped.outputs[1 : 1 + len(states)]
    changing = [i for i, new in enumerate(carried) if _signature(new) != _signature(varying[i])]
    settled = not changing and all(_is_sized(info) for info in shaped.outputs[1:])
    if not settled and is_exact(trips) and not per_trip and 0 < trips <= MOST_UNROLLED_TRIPS:
        return _unrolled(body, walk, condition, states, int(trips))
    if changing:
        for i in changing:
            varying[i] = TensorInfo(varying[i].dtype, None, kind=varying[i].kind)
        shaped = walk(body, (iteration, condition, *varying))
        call.note("a state variable changes shape from trip to trip: its size is not known")
    outputs = [
        info.marked(constant=False) if i not in changing else varying[i]
        for i, info in enumerate(shaped.outputs[1 : 1 + len(states)])
    ]
    if trips == 0 and is_exact(trips):
        outputs = [state.marked(constant=False) for state in states]
    scans = [_stacked(info, trips, per_trip=per_trip) for info in shaped.outputs[1 + len(states) :]]
    return [*outputs, *scans], (Body("body", shaped, trips, per_trip=per_trip),)


def _is_sized(info: TensorInfo) -> bool:
    """Whether every size in a value is known exactly."""
    if info.kind == "tensor":
        return info.shape is not None and info.exact
    parts = info.items if info.items is not None else (info.element,)
    return all(part is None or _is_sized(part) for part in parts)


def _signature(info: TensorInfo) -> tuple[object, ...]:
    return (info.kind, info.dtype, info.shape)


def _trip_limit(call: OpCall) -> int | None:
    """The first input's value; None when absent, computed at run time, or as good as no limit."""
    if not call.has(0):
        return None
    value = call.value(0)
    limit = NO_LIMIT if value is None else max(value.ravel().tolist()[0], 0)
    return None if lower(limit) >= NO_LIMIT else limit


def _trips(call: OpCall, limit: int | None, condition_out: TensorInfo) -> tuple[int, bool]:
    """(trips, whether they stand for "per trip")."""
    start = call.value(1)
    starts = not call.has(1) or (start is not None and bool(start.ravel()[0]))
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


def _unrolled(
    body: Graph,
    walk: Walk,
    condition: TensorInfo,
    states: list[TensorInfo],
    trips: int,
) -> Outcome:
    """Trip by trip, for sizes that depend on the trip (a list that grows, a moving slice)."""
    bodies: list[Body] = []
    scanned: list[Sequence[TensorInfo]] = []
    states = [state.marked(constant=False) for state in states]
    for trip in range(trips):
        iteration = TensorInfo(DType.INT64, (), value=np.array(trip), constant=True)
        shaped = walk(body, (iteration, condition, *states))
        bodies.append(Body("body", shaped))
        states = [info.marked(constant=False) for info in shaped.outputs[1 : 1 + len(states)]]
        scanned.append(shaped.outputs[1 + len(states) :])
    scans = [
        _stacked(infos[0], trips, per_trip=False)
        if len({_signature(info) for info in infos}) == 1
        else TensorInfo(infos[0].dtype, None)
        for infos in zip(*scanned, strict=True)
    ]
    return [*states, *scans], tuple(bodies)


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
    if len({int(length) for length in lengths}) > 1:
        raise Impossible(f"the scan inputs differ in length: {lengths}")
    state_infos = [
        info.like(info.dims[1:]) if legacy else info.like() if info.value is not None else info
        for info in states
    ]
    shaped = walk(body, (*(s.marked(constant=False) for s in state_infos), *slices))
    final = [
        info.like((*batch, *info.dims)) if legacy else info.marked(constant=False)
        for info in shaped.outputs[: len(states)]
    ]
    produced = shaped.outputs[len(states) :]
    out_axes = call.ints_attr("scan_output_axes") or (0,) * len(produced)
    stacked = []
    for info, axis in zip(produced, out_axes, strict=True):
        if info.shape is None:
            stacked.append(TensorInfo(info.dtype, None))
            continue
        position = normalize_axis(axis, len(info.shape) + 1)
        dims = (*info.shape[:position], lengths[0], *info.shape[position:])
        stacked.append(TensorInfo(info.dtype, (*batch, *dims)))
    trips = lengths[0] * batch[0] if legacy else lengths[0]
    return [*final, *stacked], (Body("body", shaped, trips),)


def run_sequence_map(call: OpCall, walk: Walk) -> Outcome:
    """The body runs once per element of the first sequence."""
    body = subgraph(call, "body")
    sequence = call.input(0)
    if sequence.items is None:
        raise Undetermined("the length of the input sequence is not known")
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
    outputs = [
        TensorInfo(infos[0].dtype, None, kind="sequence", items=tuple(infos), element=infos[0])
        for infos in zip(*results, strict=True)
    ]
    return outputs, tuple(bodies)


GRAPH_RULES: Mapping[str, GraphRule] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
    "SequenceMap": run_sequence_map,
}

declare("If", control=(0,), free="its cost is that of the branch that runs")
declare("Loop", control=(0, 1), free="its cost is that of its body, times the trips")
declare("Scan", free="its cost is that of its body, times the trips")
declare("SequenceMap", free="its cost is that of its body, once per element")
