"""Third stage: `ShapedGraph` → `GraphCost`: work, parameters and compulsory traffic per node.

Work comes from each operator's cost rule. Traffic is compulsory traffic: every distinct tensor in
once, out once, unless the rule says otherwise (a Gather reads the rows it takes). Which constants
are weights, which steer shapes and which are scales is decided here by who reads them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, largest, lower, smallest, upper
from onnxroof.cost.constants import is_weight_type, role_at
from onnxroof.cost.quantized import PREPARED, SOURCES, Quantized
from onnxroof.cost.records import BodyCost, CallCost, GraphCost, NodeCost, Role, Status, Stock
from onnxroof.ops.call import MALFORMED, Impossible, Undetermined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxroof.graph.types import Constant, DType, Node
    from onnxroof.ops.call import OpCall, OpCost, TensorInfo
    from onnxroof.shapes import ShapedGraph


def count_costs(shaped: ShapedGraph) -> GraphCost:
    """Apply every node's cost rule and find out what the constants are for."""
    counter = _Counter()
    cost = counter.graph(shaped, None)
    return GraphCost(shaped, cost.nodes, counter.stock, cost.roots)


class _Counter:
    """The state of one count.

    `stock`: what is known so far of each stored tensor; `quantized`: of the tensors that hold
    quantized values.
    """

    def __init__(self) -> None:
        self.stock = Stock()
        self.quantized = Quantized(self.stock.unpacked)

    def graph(self, shaped: ShapedGraph, outer: GraphCost | None) -> GraphCost:
        """Costs of one graph; `outer`, as far as counted, is the one around it."""
        graph, stored = shaped.graph, self.stock.constants
        for constant in graph.constants.values():
            stored.setdefault(constant.identity, constant)
        roots: dict[str, tuple[Constant, ...]] = {}
        if outer is not None:
            roots = {name: outer.origins(name) for name in graph.captures}
        scope = GraphCost(shaped, (), None, roots)
        around = self.quantized.enter(shaped)
        nodes = tuple(
            [
                self.node(node, call, scope)
                for node, call in zip(graph.nodes, shaped.calls, strict=True)
            ]
        )
        self.quantized.leave(around)
        for name in graph.outputs:
            for constant in scope.origins(name):
                is_weight = is_weight_type(constant.dtype)
                self.stock.use(constant, Role.WEIGHT if is_weight else Role.CONTROL)
        return GraphCost(shaped, nodes, None, roots)

    def node(self, node: Node, call: OpCall, scope: GraphCost) -> NodeCost:
        """The cost of one node."""
        held = self._read_constants(node, call, scope) if call.constants else _NOTHING
        quantized = self.quantized
        if node.kind in SOURCES or not quantized.is_empty:
            quantized.follow(node, call, scope)
        if call.bodies and not call.folded:
            return self._with_bodies(node, call, scope, held)
        cost = call.cost
        if cost is None:  # kept with the call for every node that shares it
            cost = call.cost = _call_cost(node, call)
        if cost.status is _FOLDED_STATUS:
            if held:  # what it makes comes from the constants that pass through it
                made = self._followed(tuple(held.values()))
                scope.roots.update((name, made) for name in node.outputs if name)
            return NodeCost(node, call, cost)
        if quantized.stored:
            cost = quantized.as_stored(node, call, cost)
        if not held:
            return NodeCost(node, call, cost)
        return NodeCost(node, call, cost, *self._size(held))

    def _read_constants(  # noqa: C901 - the one loop over all constants
        self, node: Node, call: OpCall, scope: GraphCost
    ) -> Mapping[object, Constant]:
        """Note what each constant input is for; those held by the node, by identity.

        A node that runs holds its weights; one that is folded also what passes into its result.
        """
        held: dict[object, Constant] = {}
        inputs, stored, use = node.inputs, scope.shaped.graph.constants, self.stock.use
        roles, packed = call.roles, self.stock.unpacked
        if call.folded and node.kind in PREPARED:
            passing = self.quantized.prepare(node, call, scope)
            if passing is not None:
                return passing
        unpacked = call.operator.unpacked if call.operator else None
        quantized = self.quantized if call.bodies or not self.quantized.is_empty else None
        for position in call.constants:
            name = inputs[position]
            constant = stored.get(name)
            items = scope.roots.get(name, ()) if constant is None else (constant,)
            if not items:
                self._note_made(call, position, name)
            for item in items:
                role = None
                if quantized is not None:
                    role = quantized.role_at(node, call, position, item)
                if role is None:
                    # for a stored tensor the same in all nodes of this call: kept with it
                    key = (position, item.origin)
                    role = _UNREAD if constant is None else roles.get(key, _UNREAD)
                    if role is _UNREAD:
                        role = role_at(call, position, item, is_packed=item.identity in packed)
                        if constant is not None:
                            roles[key] = role
                if role is not None:
                    use(item, role)
                if role is None or role is _WEIGHT:
                    held[item.identity] = item
                    if unpacked is not None:
                        self._unpack(unpacked, call, position, item)
        return held

    def _followed(self, roots: tuple[Constant, ...]) -> tuple[Constant, ...]:
        """Of many constants that pass into one result, what is decided later: only the last.

        The others are weights, whoever reads the result: else long chains take quadratic time.
        """
        if len(roots) <= _MOST_ROOTS:
            return roots
        for constant in roots[:-1]:
            self.stock.use(constant, _WEIGHT if is_weight_type(constant.dtype) else Role.CONTROL)
        return roots[-1:]

    def _note_made(self, call: OpCall, position: int, name: str) -> None:
        """Note a weight of a product that no stored tensor is part of: the graph makes it."""
        info, operator = call.inputs[position], call.operator
        if not position or call.kind not in _PRODUCTS or info is None or not info.shape:
            return
        if operator is None or position not in (
            *operator.quantization, *operator.control, *operator.states,
        ):  # fmt: skip
            self.stock.made[name] = math.prod(info.shape)

    def _unpack(
        self,
        unpacked: Callable[[OpCall, int], int],
        call: OpCall,
        position: int,
        constant: Constant,
    ) -> None:
        """Note how many values the bytes of a packed weight hold."""
        stored = math.prod(constant.shape)
        try:
            values, read = unpacked(call, position), call.input(position).elements
        except (Undetermined, Impossible, *MALFORMED):
            return
        if not constant.shape or values == read or not read:
            return
        values = -(-stored * values // read)  # of a part of it, or of it with others
        known = self.stock.unpacked.get(constant.identity, values)
        self.stock.unpacked[constant.identity] = min(known, values)  # less what fills a block up

    def _size(self, weights: Mapping[object, Constant]) -> tuple[int, int]:
        """(elements, stored bytes) of some weights."""
        elements = stored_bytes = 0
        for constant in weights.values():
            elements += self.stock.elements(constant)
            stored_bytes += constant.stored_bytes or 0
        return elements, stored_bytes

    def _with_bodies(
        self,
        node: Node,
        call: OpCall,
        scope: GraphCost,
        held: Mapping[object, Constant],
    ) -> NodeCost:
        weights = dict(held)
        bodies = tuple(
            BodyCost(
                body.name,
                self.graph(body.shaped, scope),  # type: ignore[arg-type]
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
        status = _status_of(bodies, call)
        for body in bodies:
            for inner in body.cost.nodes:
                for position, name in enumerate(inner.node.inputs):
                    info = inner.call.inputs[position]
                    if name and info is not None and info.constant:
                        for constant in body.cost.origins(name):
                            if self.stock.roles.get(constant.identity) is Role.WEIGHT:
                                weights[constant.identity] = constant
        note = call.operator.free if call.operator is not None else ""
        cost = CallCost(
            status, macs, flops, transcendentals, inputs, reads, outputs, _main_dtype(bodies),
            "a node of its body is unknown" if status is Status.UNKNOWN else note,
        )  # fmt: skip
        if status is _FOLDED_STATUS:
            made = _made_in(bodies, node.outputs)
            scope.roots.update({name: self._followed(roots) for name, roots in made.items()})
        if node.kind == "If" and not self.quantized.is_empty:
            branches = [body.cost.shaped.graph.outputs for body in bodies]
            for name, *results in zip(node.outputs, *branches, strict=False):
                self.quantized.hand_out(name, results)
        return NodeCost(node, call, cost, *self._size(weights), bodies)


def _status_of(bodies: tuple[BodyCost, ...], call: OpCall) -> Status:
    """Of a node with bodies: folded where all in them is, unknown where anything is."""
    found = {inner.status for body in bodies for inner in body.cost.nodes}
    if Status.UNKNOWN in found:
        return Status.UNKNOWN
    if found <= {_FOLDED_STATUS} and _only_known(call.outputs):
        return _FOLDED_STATUS
    return Status.COUNTED


def _made_in(
    bodies: tuple[BodyCost, ...], names: tuple[str, ...]
) -> dict[str, tuple[Constant, ...]]:
    """Results of a folded node with bodies → the constants they come from, each once."""
    found: dict[str, dict[object, Constant]] = {name: {} for name in names}
    for body in bodies:
        for name, made in zip(names, body.cost.shaped.graph.outputs, strict=False):
            found[name].update({item.identity: item for item in body.cost.origins(made)})
    return {name: tuple(items.values()) for name, items in found.items() if name}


_NOTHING: Mapping[object, Constant] = {}

_MOST_ROOTS = 256
"""Stored tensors in one folded result that are followed to its reader."""

_FOLDED_STATUS, _WEIGHT, _UNREAD = Status.FOLDED, Role.WEIGHT, Role.UNUSED
"""Looked up once: as members of their enumerations they take ten times as long."""

_FOLDED = CallCost(Status.FOLDED, 0, 0, 0, 0, 0, 0, None, "its inputs are constants")

_PRODUCTS = frozenset({
    "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "Einsum", "FusedConv", "FusedGemm",
    "FusedMatMul", "GRU", "Gemm", "LSTM", "MatMul", "MatMulInteger", "NhwcFusedConv", "QLinearConv",
    "QLinearMatMul", "RNN",
})  # fmt: skip
"""Products with weights: constant inputs after the first one, whoever made them."""


def _folded_cost(call: OpCall) -> CallCost:
    """Nothing at run time; multiply-accumulates of constants still count as the graph's work."""
    operator = call.operator
    if not call.folded or operator is None or operator.free or operator.pointwise:
        return _FOLDED
    work, _, _ = _work(call)
    if work is None or not (work.macs or call.kind in _PRODUCTS):
        return _FOLDED
    return CallCost(
        Status.FOLDED, _count(work.macs), _count(work.flops), _count(work.transcendentals), 0, 0, 0,
        work.compute_dtype or _first_dtype(call),
        "its inputs are constants: computed once, before the first inference",
    )  # fmt: skip


def _only_known(outputs: tuple[TensorInfo, ...]) -> bool:
    """Shape arithmetic: every output's value is known, so no device computes it."""
    return bool(outputs) and all(info.constant for info in outputs)


def _work(call: OpCall) -> tuple[OpCost | None, Status, str]:
    """(cost, status, note) of a call by its operator's rule."""
    operator = call.operator
    if call.problem:
        return None, Status.UNKNOWN, call.problem
    if operator is None or operator.cost_rule is None:
        name = f"{call.node.domain}.{call.op_type}" if call.node.domain else call.op_type
        return None, Status.UNKNOWN, f"no formula is known for operator {name}"
    try:
        cost = _consistent(_whole(operator.cost_rule(call)))
        is_free = not cost.flops and bool(operator.free)
    except Undetermined as answer:
        return None, Status.UNKNOWN, call.reason or str(answer)
    except (Impossible, *MALFORMED) as error:
        return None, Status.UNKNOWN, f"its formula cannot be applied: {error!s:.200}"
    if is_free:
        return cost, Status.FREE, cost.note or operator.free
    return cost, Status.COUNTED, cost.note


def _call_cost(node: Node, call: OpCall) -> CallCost:
    """The cost of a call, at run time or before it."""
    if call.folded or (not call.bodies and _only_known(call.outputs)):
        return _folded_cost(call)
    return _running_cost(node, call)


def _running_cost(node: Node, call: OpCall) -> CallCost:
    """The cost of a call that is made at run time."""
    work, status, note = _work(call)
    inputs, reads, outputs = _traffic(node, call, work)
    first = _first_dtype(call)
    if work is None:
        return CallCost(status, None, None, None, inputs, reads, outputs, first, note)
    return CallCost(
        status, _count(work.macs), _count(work.flops), _count(work.transcendentals),
        inputs, reads, outputs, work.compute_dtype or first, note, work.reads, work.writes,
    )  # fmt: skip


def _first_dtype(call: OpCall) -> DType | None:
    return next((info.dtype for info in call.inputs if info is not None), None)


def _consistent(cost: OpCost) -> OpCost:
    """The cost. Raises Undetermined for one that a rule of the user's own got wrong."""
    if upper(cost.flops) < 2 * upper(cost.macs):
        raise Undetermined(
            f"its formulas contradict each other: flops, {upper(cost.flops):,}, include 2·macs,"
            f" which alone are {2 * upper(cost.macs):,}"
        )
    return cost


def _whole(cost: OpCost) -> OpCost:
    """The cost with plain integers. Raises TypeError where a formula gave something else."""
    counts = cost.macs, cost.flops, cost.transcendentals
    if all(isinstance(count, int) for count in counts):
        return cost
    macs, flops, transcendentals = map(index, counts)
    return replace(cost, macs=macs, flops=flops, transcendentals=transcendentals)


def _count(value: int) -> int:
    """A count is never negative, however little is known of the sizes in it."""
    return value if lower(value) >= 0 else largest(value, 0)


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
