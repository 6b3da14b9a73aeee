"""Third stage: `ShapedGraph` → `GraphCost`: work, parameters and compulsory traffic per node.

Work comes from each operator's cost rule. Traffic is compulsory traffic: every distinct tensor in
once, out once, unless the rule says otherwise (a Gather reads the rows it takes). Which constants
are weights, which steer shapes and which are scales is decided here by who reads them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, is_exact, largest, lower, smallest, upper
from onnxroof.ops.call import Impossible, Undetermined
from onnxroof.shapes import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxroof.graph.types import Constant, DType, Node
    from onnxroof.ops.call import OpCall, OpCost
    from onnxroof.ops.registry import Operator
    from onnxroof.shapes import ShapedGraph


class Role(Enum):
    """What a constant is for."""

    WEIGHT = "weight"
    QUANTIZATION = "quantization"
    CONTROL = "control"
    UNUSED = "unused"


class Status(Enum):
    """How a node's cost is known.

    COUNTED: by its formula. FREE: no arithmetic, for a stated reason. FOLDED: its inputs are
    constants, so it runs before the first inference. UNKNOWN: no formula, or a shape is missing.
    """

    COUNTED = "counted"
    FREE = "free"
    FOLDED = "folded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call costs: all that equal calls share. None means unknown, never zero.

    Attributes:
        status: How the cost is known.
        macs: Multiply-accumulate pairs.
        flops: 2·macs plus every other arithmetic operation.
        transcendentals: exp, log, erf … evaluations, also in flops.
        input_bytes: Activation bytes read.
        weight_read_bytes: Constant bytes read: weights, scales (after folding).
        output_bytes: Bytes written.
        compute_dtype: Type of the multiply-accumulates, or of the first input.
        note: Why free or unknown; what the formula assumed.
        reads: Bytes read of an input, by position, where not the whole tensor.
        writes: Bytes written of an output, by position, where not the whole tensor.
    """

    status: Status
    macs: int | None
    flops: int | None
    transcendentals: int | None
    input_bytes: int | None
    weight_read_bytes: int | None
    output_bytes: int | None
    compute_dtype: DType | None
    note: str
    reads: Mapping[int, int] | None = None
    writes: Mapping[int, int] | None = None


class NodeCost:
    """What one node costs, before fusion. Never changed once made.

    The counts are those of `CallCost`, shared between nodes with equal calls.

    Attributes:
        node: The node.
        call: Its inputs and outputs as sized.
        parameters: Elements of the weights it reads.
        weight_bytes: Bytes of those weights as stored.
        bodies: Costs of the subgraphs it runs, for control flow.
    """

    __slots__ = ("_cost", "bodies", "call", "node", "parameters", "weight_bytes")

    def __init__(
        self,
        node: Node,
        call: OpCall,
        cost: CallCost,
        parameters: int = 0,
        weight_bytes: int = 0,
        bodies: tuple[BodyCost, ...] = (),
    ) -> None:
        self.node = node
        self.call = call
        self._cost = cost
        self.parameters = parameters
        self.weight_bytes = weight_bytes
        self.bodies = bodies

    @property
    def name(self) -> str:
        """The node's name, never empty."""
        return self.node.label

    @property
    def op_type(self) -> str:
        """The operator."""
        return self.node.op_type

    @property
    def domain(self) -> str:
        """The operator's domain, "" for ai.onnx."""
        return self.node.domain

    @property
    def status(self) -> Status:
        """How the cost is known."""
        return self._cost.status

    @property
    def macs(self) -> int | None:
        """Multiply-accumulate pairs."""
        return self._cost.macs

    @property
    def flops(self) -> int | None:
        """2·macs plus every other arithmetic operation."""
        return self._cost.flops

    @property
    def transcendentals(self) -> int | None:
        """Evaluations of exp, log, erf …, also in flops."""
        return self._cost.transcendentals

    @property
    def input_bytes(self) -> int | None:
        """Activation bytes read."""
        return self._cost.input_bytes

    @property
    def weight_read_bytes(self) -> int | None:
        """Constant bytes read: weights and scales, as they are after folding."""
        return self._cost.weight_read_bytes

    @property
    def output_bytes(self) -> int | None:
        """Bytes written."""
        return self._cost.output_bytes

    @property
    def compute_dtype(self) -> DType | None:
        """Type of the multiply-accumulates, or of the first input."""
        return self._cost.compute_dtype

    @property
    def note(self) -> str:
        """Why free or unknown; what the formula assumed."""
        return self._cost.note

    @property
    def traffic_bytes(self) -> int | None:
        """Bytes in and out; None when a part is unknown."""
        parts = (self.input_bytes, self.weight_read_bytes, self.output_bytes)
        return None if None in parts else sum(part or 0 for part in parts)

    def __repr__(self) -> str:
        return f"NodeCost({self.name!r}, {self.op_type}, {self._cost})"


@dataclass(frozen=True, slots=True)
class BodyCost:
    """A subgraph a node runs: its cost for one trip, and how often."""

    name: str
    cost: GraphCost
    trips: int
    alternative: bool
    per_trip: bool


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant of the model and what it is for.

    `parameters` is its element count when it is a weight, else 0. `bytes` are as stored.
    """

    constant: Constant
    role: Role
    parameters: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the model; with unknown nodes they are lower bounds (`is_lower_bound`).

    `macs`, `flops`, … are upper ends where counts are bounded ("at most"); `macs_min` and
    `flops_min` the lower ends ("at least"). Shared weights count once.
    """

    macs: int
    macs_min: int
    flops: int
    flops_min: int
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


@dataclass(frozen=True, slots=True)
class GraphCost:
    """Costs of every node of a graph, in execution order."""

    shaped: ShapedGraph
    nodes: tuple[NodeCost, ...]
    weights: tuple[Weight, ...]
    roots: Mapping[str, tuple[Constant, ...]]


def count_costs(shaped: ShapedGraph) -> GraphCost:
    """Apply every node's cost rule and find out what the constants are for."""
    roles: dict[object, tuple[Constant, Role]] = {}
    counter = _Counter(roles)
    cost = counter.graph(shaped, {})
    weights = tuple(counter.weight(constant, role) for constant, role in roles.values())
    return GraphCost(cost.shaped, cost.nodes, weights, cost.roots)


class _Counter:
    """The state of one count: role and, where packed, elements of each stored tensor."""

    def __init__(self, roles: dict[object, tuple[Constant, Role]]) -> None:
        self.roles = roles
        self.unpacked: dict[object, int] = {}

    def graph(
        self, shaped: ShapedGraph, outer_roots: Mapping[str, tuple[Constant, ...]]
    ) -> GraphCost:
        """Costs of one graph; `outer_roots` tells which constants captured names come from."""
        roots: dict[str, tuple[Constant, ...]] = {
            name: (constant,) for name, constant in shaped.graph.constants.items()
        }
        for name in shaped.graph.captures:
            if name in outer_roots:
                roots[name] = outer_roots[name]
        for constant in shaped.graph.constants.values():
            self.roles.setdefault(constant.identity, (constant, Role.UNUSED))
        nodes = tuple(
            [
                self.node(node, call, roots)
                for node, call in zip(shaped.graph.nodes, shaped.calls, strict=True)
            ]
        )
        for name in shaped.graph.outputs:
            for constant in roots.get(name, ()):
                is_weight = _is_weight_type(constant.dtype)
                self._use(constant, Role.WEIGHT if is_weight else Role.CONTROL)
        return GraphCost(shaped, nodes, (), roots)

    def node(self, node: Node, call: OpCall, roots: dict[str, tuple[Constant, ...]]) -> NodeCost:
        """The cost of one node."""
        weights: dict[object, Constant] = {}
        for name, info in zip(node.inputs, call.inputs, strict=True):
            if info is not None and info.constant and name in roots:
                self._read_constants(node, call, roots, weights)
                break
        if call.folded or _only_known_values(call):
            self._fold(node, call, roots)
            return NodeCost(node, call, _FOLDED)
        if call.bodies:
            return self._with_bodies(node, call, roots, weights)
        cost = _call_cost(node, call)
        if not weights:
            return NodeCost(node, call, cost)
        return NodeCost(node, call, cost, *self._size(weights))

    def _read_constants(
        self,
        node: Node,
        call: OpCall,
        roots: dict[str, tuple[Constant, ...]],
        weights: dict[object, Constant],
    ) -> None:
        """Note what each constant input is for; collect those that are the node's weights."""
        for position, name in enumerate(node.inputs):
            info = call.inputs[position]
            if info is None or not info.constant:
                continue
            for constant in roots.get(name, ()):
                role = _role(call, position, constant)
                if role is None:
                    continue
                self._use(constant, role)
                if role is Role.WEIGHT:
                    weights[constant.identity] = constant
                    self._unpack(call, position, constant)

    def _unpack(self, call: OpCall, position: int, constant: Constant) -> None:
        """Note how many values the bytes of a packed weight hold."""
        if call.operator is None or call.operator.unpacked is None or len(constant.shape) < 1:
            return
        try:
            self.unpacked[constant.identity] = call.operator.unpacked(call, position)
        except (Undetermined, Impossible):
            return

    def weight(self, constant: Constant, role: Role) -> Weight:
        """The record of a constant: a weight's elements are parameters."""
        parameters = self._elements(constant) if role is Role.WEIGHT else 0
        return Weight(constant, role, parameters, constant.stored_bytes)

    def _elements(self, constant: Constant) -> int:
        return self.unpacked.get(constant.identity) or math.prod(constant.shape)

    def _size(self, weights: Mapping[object, Constant]) -> tuple[int, int]:
        """(elements, stored bytes) of some weights."""
        return (
            sum(self._elements(constant) for constant in weights.values()),
            sum(constant.stored_bytes or 0 for constant in weights.values()),
        )

    def _use(self, constant: Constant, role: Role) -> None:
        """Note a use; a weight anywhere is a weight, then quantization, then control."""
        known = self.roles.get(constant.identity)
        if known is None or _RANK[role] > _RANK[known[1]]:
            self.roles[constant.identity] = (constant, role)

    def _fold(self, node: Node, call: OpCall, roots: dict[str, tuple[Constant, ...]]) -> None:
        """What a folded node makes comes from the constants that pass through it."""
        passing: dict[object, Constant] = {}
        for position, name in enumerate(node.inputs):
            for constant in roots.get(name, ()):
                if _role(call, position, constant) in (None, Role.WEIGHT):
                    passing[constant.identity] = constant
        for name in node.outputs:
            if name:
                roots[name] = tuple(passing.values())

    def _with_bodies(
        self,
        node: Node,
        call: OpCall,
        roots: dict[str, tuple[Constant, ...]],
        weights: dict[object, Constant],
    ) -> NodeCost:
        bodies = tuple(
            BodyCost(
                body.name,
                self.graph(body.shaped, roots),  # type: ignore[arg-type]
                body.trips,
                body.alternative,
                body.per_trip,
            )
            for body in call.bodies
        )
        sums = [_body_sum(body) for body in bodies]
        combine = _one_of if any(body.alternative for body in bodies) else _all_of
        macs, flops, transcendentals, inputs, reads, outputs = (
            combine([total[column] for total in sums]) for column in range(6)
        )
        known = all(
            inner.status is not Status.UNKNOWN for body in bodies for inner in body.cost.nodes
        )
        for body in bodies:
            for inner in body.cost.nodes:
                for position, name in enumerate(inner.node.inputs):
                    info = inner.call.inputs[position]
                    if name and info is not None and info.constant:
                        for constant in body.cost.roots.get(name, ()):
                            if self.roles[constant.identity][1] is Role.WEIGHT:
                                weights[constant.identity] = constant
        note = call.operator.free if call.operator is not None else ""
        cost = CallCost(
            Status.COUNTED if known else Status.UNKNOWN,
            macs, flops, transcendentals, inputs, reads, outputs, _main_dtype(bodies),
            note if known else "a node of its body is unknown",
        )  # fmt: skip
        return NodeCost(node, call, cost, *self._size(weights), bodies)


_RANK = {Role.UNUSED: 0, Role.CONTROL: 1, Role.QUANTIZATION: 2, Role.WEIGHT: 3}


_SCALED_BY_PARAMETERS = frozenset({"Add", "Mul", "PRelu"})
"""Elementwise operators whose single-element operand may be learned: a bias, a scale, a slope."""


def _role(call: OpCall, position: int, constant: Constant) -> Role | None:
    """What reading a constant at an input makes it; None: decided by who reads the folded result.

    Weights are floating-point constants and integers of up to 16 bits; wider integers and booleans
    index and steer, unless the operator says that this input is a weight (an int32 bias). A single
    number in elementwise arithmetic is a literal of the model's code, not a parameter, except a
    one-element initializer that Add, Mul or PRelu reads. So is an initial state that a Constant
    node holds: the zeros of the model's code.
    """
    operator = call.operator
    if operator is not None:
        if position in operator.quantization:
            return Role.QUANTIZATION
        if position in operator.control:
            return Role.CONTROL
        if position in operator.integer_weights:
            return Role.WEIGHT
        if _is_literal(operator, position, constant):
            return Role.CONTROL
    if not _is_weight_type(constant.dtype):
        return Role.CONTROL
    return None if call.folded else Role.WEIGHT


def _is_literal(operator: Operator, position: int, constant: Constant) -> bool:
    """A single number or a zero state that the exporter wrote for a literal in the code."""
    if position in operator.states:
        return constant.origin == "Constant"
    if not operator.pointwise:
        return False
    shape = constant.shape
    if not shape:
        return True
    if math.prod(shape) != 1:
        return False
    return constant.origin == "Constant" or operator.op_type not in _SCALED_BY_PARAMETERS


_FOLDED = CallCost(Status.FOLDED, 0, 0, 0, 0, 0, 0, None, "its inputs are constants")


def _is_weight_type(dtype: DType) -> bool:
    """Floats and integers of up to 16 bits; wider integers and booleans index and steer."""
    if dtype.is_float:
        return True
    return dtype.is_integer and dtype.bits is not None and dtype.bits <= 16


def _only_known_values(call: OpCall) -> bool:
    """Shape arithmetic: every output's value is known, so no device computes it."""
    outputs = call.outputs
    return bool(outputs) and all(info.constant for info in outputs) and not call.bodies


def _work(call: OpCall) -> tuple[OpCost | None, Status, str]:
    """(cost, status, note) of a call by its operator's rule."""
    operator = call.operator
    if call.problem:
        return None, Status.UNKNOWN, call.problem
    if operator is None or operator.cost_rule is None:
        name = f"{call.node.domain}.{call.op_type}" if call.node.domain else call.op_type
        return None, Status.UNKNOWN, f"no formula is known for operator {name}"
    try:
        cost = operator.cost_rule(call)
    except Undetermined as answer:
        return None, Status.UNKNOWN, call.reason or str(answer)
    except (Impossible, *MALFORMED) as error:
        return None, Status.UNKNOWN, f"its formula cannot be applied: {error!s:.200}"
    if not cost.flops and operator.free:
        return cost, Status.FREE, cost.note or operator.free
    return cost, Status.COUNTED, cost.note


def _call_cost(node: Node, call: OpCall) -> CallCost:
    """The cost of a call, kept with it for every node that shares it."""
    if call.cost is not None:
        return call.cost
    work, status, note = _work(call)
    inputs, reads, outputs = _traffic(node, call, work)
    first = next((info.dtype for info in call.inputs if info is not None), None)
    if work is None:
        call.cost = CallCost(status, None, None, None, inputs, reads, outputs, first, note)
    else:
        call.cost = CallCost(
            status, work.macs, work.flops, work.transcendentals, inputs, reads, outputs,
            work.compute_dtype or first, note, work.reads, work.writes,
        )  # fmt: skip
    return call.cost


def _traffic(
    node: Node, call: OpCall, cost: OpCost | None
) -> tuple[int | None, int | None, int | None]:
    """Compulsory bytes: (activations read, constants read, written); None where unknown."""
    reads = (cost.reads if cost is not None else None) or {}
    writes = (cost.writes if cost is not None else None) or {}
    control = call.operator.control if call.operator is not None else ()
    seen: set[str] = set()
    activations: int | None = 0
    constants: int | None = 0
    for position, name in enumerate(node.inputs):
        info = call.inputs[position]
        if not name or info is None or name in seen:
            continue
        if position in control and position not in reads:
            continue
        seen.add(name)
        nbytes = reads.get(position, info.nbytes)
        if info.constant:
            constants = None if nbytes is None or constants is None else constants + nbytes
        else:
            activations = None if nbytes is None or activations is None else activations + nbytes
    written: int | None = 0
    for position, name in enumerate(node.outputs):
        if not name:
            continue
        known = call.outputs[position].nbytes if position < len(call.outputs) else None
        nbytes = writes.get(position, known)
        written = None if nbytes is None or written is None else written + nbytes
    return activations, constants, written


Sums = tuple[int, int, int, int | None, int | None, int | None]


def _body_sum(body: BodyCost) -> Sums:
    """Work and traffic of all trips; unknown nodes leave lower bounds."""
    nodes, trips = body.cost.nodes, body.trips
    return (
        trips * sum(n.macs or 0 for n in nodes),
        trips * sum(n.flops or 0 for n in nodes),
        trips * sum(n.transcendentals or 0 for n in nodes),
        trips * sum(n.input_bytes or 0 for n in nodes),
        trips * sum(n.weight_read_bytes or 0 for n in nodes),
        trips * sum(n.output_bytes or 0 for n in nodes),
    )


def _all_of(values: list[int | None]) -> int:
    return sum(value or 0 for value in values)


def _one_of(values: list[int | None]) -> int:
    known = [value or 0 for value in values]
    return interval(lower(smallest(*known)), upper(largest(*known)))


def _main_dtype(bodies: tuple[BodyCost, ...]) -> DType | None:
    """The type most of the bodies' multiply-accumulates have."""
    work: Counter[DType] = Counter()
    for body in bodies:
        for node in body.cost.nodes:
            if node.compute_dtype is not None:
                work[node.compute_dtype] += int(node.macs or 0) + 1
    return work.most_common(1)[0][0] if work else None


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
        is_lower_bound=any(
            n.status is Status.UNKNOWN or n.traffic_bytes is None for n in nodes
        ),
        is_upper_bound=not (is_exact(macs) and is_exact(flops)),
        per_trip=any(body.per_trip for _, body in each_body(cost)),
    )


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
    graphs = [cost, *(body.cost for _, body in each_body(cost))]
    for node in (node for graph in graphs for node in graph.nodes):
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
