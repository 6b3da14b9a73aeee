"""Second stage: `Graph` + `Bindings` → `ShapedGraph`: one walk in execution order.

Every node's rules come from the operator registry; results are memoized by signature. An operator
nobody registered falls back to its schema (`ops.fallback`), then to the types the file declares.
What stays unknown is recorded with its reason; a node that contradicts its operator's text is a
problem of that node and the walk goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from onnxroof.bindings import Bindings, declared_info
from onnxroof.bounded import BoundedInt, largest, lower
from onnxroof.errors import NodeProblem, SizeOutOfBoundsError
from onnxroof.graph.types import DType, is_countable
from onnxroof.graph.values import TYPE_OF_NUMPY
from onnxroof.ops import load_plugins, load_rules
from onnxroof.ops.call import MALFORMED, Impossible, OpCall, TensorInfo, Undetermined
from onnxroof.ops.control_flow import GRAPH_RULES, Body
from onnxroof.scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from onnxroof.graph.types import Constant, Graph, Node
    from onnxroof.ops.call import Value
    from onnxroof.ops.registry import Operator, Registry

K = TypeVar("K")
V = TypeVar("V")

LARGEST_VALUE = 4096
"""Elements of the largest tensor whose value is evaluated."""

MOST_BODY_NODES = 200_000
"""Nodes of bodies walked, counted again for every trip that is followed."""

LONGEST_MESSAGE = 500
"""Characters of the longest reason that is kept."""

MOST_CALLS = 60_000
"""Calls a memo keeps, and tensors; a further one empties it.

Several hundred different networks have some 35,000; each takes two or three kilobytes.
"""

_ABSENT = TensorInfo(None, None)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A tensor whose shape is not known, the node that makes it, and why."""

    tensor: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShapedGraph:
    """A graph with every node's call sized.

    Attributes:
        graph: What the file says.
        calls: One per node, in execution order.
        tensors: Every tensor of this graph (bodies have their own) by name.
    """

    graph: Graph
    calls: tuple[OpCall, ...]
    tensors: Mapping[str, TensorInfo]

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The graph's outputs, in order."""
        return tuple(self.tensors.get(name, _ABSENT) for name in self.graph.outputs)


@dataclass(frozen=True, slots=True)
class ShapeFindings:
    """What the walk has to say besides sizes."""

    unresolved: tuple[Unresolved, ...]
    problems: tuple[NodeProblem, ...]
    assumptions: tuple[str, ...]
    data_dependent: tuple[str, ...]


class Memo:
    """Results by signature, shared by all walks that use the same precision and registry.

    Equal tensors are one record, so that most nodes are found in `seen`, by the records they read:
    hashing those costs nothing. What is not found there is looked up in `calls` by its signature.
    """

    def __init__(
        self, retype: Mapping[DType, DType] | None = None, registry: Registry | None = None
    ) -> None:
        self.registry = registry or load_rules()
        self.retype = dict(retype or {})
        self.seen: dict[tuple[object, ...], OpCall] = {}
        self.calls: dict[tuple[object, ...], OpCall] = {}
        self.tensors: dict[tuple[object, ...], TensorInfo] = {}
        self.predictors: dict[tuple[object, ...], object] = {}

    def one(self, info: TensorInfo, stored: tuple[object, ...] | None = None) -> TensorInfo:
        """The one record of all tensors of which the same is known.

        Args:
            info: What is known.
            stored: What a constant is known by; None for a tensor known by its key alone.
        """
        if stored is None:
            if info.may_have_value or not info.exact or info.kind != "tensor":
                return info
            stored = info.key
        return self.with_room(self.tensors).setdefault(stored, info)

    def with_room(self, table: dict[K, V]) -> dict[K, V]:
        """One of the memo's tables; all are emptied when it is full, since they share records."""
        if len(table) >= MOST_CALLS:
            self.seen.clear()
            self.calls.clear()
            self.tensors.clear()
            self.predictors.clear()
        return table

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled empty: what it holds is worked out again."""
        return (Memo, (self.retype, self.registry))


def infer_shapes(
    graph: Graph, bindings: Bindings, memo: Memo | None = None
) -> tuple[ShapedGraph, ShapeFindings]:
    """Size every tensor of the graph at the given bindings.

    Raises:
        UnboundDimensionError: A free dimension other than a leading one is not bound.
        UnknownDimensionError: A binding for a dimension or input the model does not have.
        SizeOutOfBoundsError: A data-dependent size is bound to one that it cannot have.
    """
    walker = _Walker(bindings, memo or Memo())
    bound = bindings.bind_inputs(graph).items()
    inputs = {name: walker.memo.one(walker.retyped(info)) for name, info in bound}
    shaped = walker.walk(graph, inputs)
    bindings.check_all_used(walker.data_dependent)
    return shaped, ShapeFindings(
        tuple(walker.unresolved),
        tuple(walker.problems),
        tuple(walker.assumptions),
        tuple([name for name, size in walker.data_dependent.items() if size is None]),
    )


class _Walker:
    """The state of one walk."""

    def __init__(self, bindings: Bindings, memo: Memo) -> None:
        self.registry = memo.registry
        self._body_nodes_left = MOST_BODY_NODES
        self.bindings = bindings
        self.memo = memo
        self.retyped_to = frozenset(memo.retype.values())
        self.unresolved: list[Unresolved] = []
        self.problems: list[NodeProblem] = []
        self.assumptions: list[str] = []
        self.data_dependent: dict[str, int | None] = {}  # in the order met, with the size bound
        self._times_named: dict[str, int] = {}

    def walk(
        self,
        graph: Graph,
        inputs: Mapping[str, TensorInfo],
        outer: Scope | None = None,
    ) -> ShapedGraph:
        """Size one graph; `outer` is the graph around it."""
        tensors = self._constants(graph.constants)
        tensors.update(inputs)
        operators: dict[tuple[str, str, int], Operator | None] = {}
        seen = self.memo.seen
        tensors.update(self._captured(graph, outer))
        calls: list[OpCall] = []
        scope = Scope(graph, tensors, calls, outer, self.retyped_to)
        nameless = tensors.get("")  # of a file that has one; a node cannot read it
        find: Callable[[str], TensorInfo | None] = tensors.__getitem__
        tensors[""] = None  # type: ignore[assignment] # an absent input, until the walk ends
        for node in graph.nodes:
            names, results = node.inputs, node.outputs
            infos = tuple(map(find, names))
            kind = (node.domain, node.op_type, node.opset)
            operator = operators.get(kind)
            if operator is None:
                operator = operators[kind] = self._operator(node)
            # inputs that repeat and outputs that are absent belong to the signature
            read = len(names)
            plain = read == 1 or (names[0] != names[1] if read == 2 else len({*names}) == read)
            plain = plain and (results[0] != "" if len(results) == 1 else "" not in results)
            key = (operator, node.attributes, infos, len(results)) if plain else None
            call = seen.get(key) if key is not None else None
            if call is None:
                if node.subgraphs:
                    call = self._with_bodies(node, infos, operator, scope)
                else:
                    call = self._evaluate(node, infos, operator, key)
                call = self._attended(graph, node, call, scope)
            calls.append(call)
            outputs = call.outputs
            for position, name in enumerate(results):
                if name:
                    tensors[name] = outputs[position] if position < len(outputs) else _ABSENT
        for name in ("", *graph.captures):
            del tensors[name]
        if nameless is not None:
            tensors[""] = nameless
        return ShapedGraph(graph, tuple(calls), tensors)

    def _captured(self, graph: Graph, outer: Scope | None) -> dict[str, TensorInfo]:
        """What a body reads of the graphs around it.

        Raises:
            Undetermined: Bodies within bodies, walked trip by trip, go on without end.
        """
        if outer is None:
            return dict.fromkeys(graph.captures, _ABSENT)
        self._body_nodes_left -= len(graph.nodes)
        if self._body_nodes_left < 0:
            raise Undetermined("its loops are nested and unrolled too far to be followed")
        return {name: outer.find(name) or _ABSENT for name in graph.captures}

    def _attended(self, graph: Graph, node: Node, call: OpCall, scope: Scope) -> OpCall:
        """The call after what is rare: notes said, unknowns recorded, fresh sizes named."""
        if not call.needs_attention:
            return call
        ranged = self._ranged(node, call, scope) if call.reason else None
        if ranged is not None:
            call = ranged
        if call.notes:
            self.assumptions.extend(f"{node.label}: {note}" for note in call.notes)
        if call.reason or call.problem:
            return self._unknown(graph, node, call)
        if ranged is None and (call.operator is None or not call.operator.data_dependent):
            return call
        return _with_outputs(call, self._named(node, call.outputs))

    def _ranged(self, node: Node, call: OpCall, scope: Scope) -> OpCall | None:
        """The call sized by bounds of what is computed at run time; None where that fails."""
        if node.subgraphs:  # its inputs were bounded before its bodies were walked
            return None
        # the call's own inputs may be an equal call's, with other values
        own = tuple([scope.find(name) if name else None for name in node.inputs])
        infos = _bounded(node, own, call.operator, scope)
        if infos == own:
            return None
        ranged = self._sized(node, infos, call.operator)
        return None if ranged.reason or ranged.problem else ranged

    def _operator(self, node: Node) -> Operator | None:
        """The registered operator; installed plug-ins are consulted before giving up."""
        operator = self.registry.find(node.domain, node.op_type, node.opset)
        if operator is not None and operator.cost_rule is not None:
            return operator
        if operator is None and load_plugins():
            operator = self.registry.find(node.domain, node.op_type, node.opset)
        if operator is None and not node.subgraphs:
            from onnxroof.ops.fallback import expandable

            operator = expandable(node.domain, node.op_type, node.opset)
        return operator

    # -- one node --------------------------------------------------------------------------

    def _evaluate(
        self,
        node: Node,
        infos: tuple[TensorInfo | None, ...],
        operator: Operator | None,
        seen_as: tuple[object, ...] | None = None,
    ) -> OpCall:
        """The node's call with outputs, from the memo when an equal one was sized before.

        One that can be shared and needs no attention is found by `seen_as` from then on.
        """
        key = _signature(node, infos, operator)
        if key is None:
            return self._sized(node, infos, operator)
        call = self.memo.calls.get(key)
        if call is None:
            call = self.memo.with_room(self.memo.calls)[key] = self._sized(node, infos, operator)
        if seen_as is not None and not call.needs_attention:
            self.memo.with_room(self.memo.seen)[seen_as] = call
        return call

    def _sized(
        self, node: Node, infos: tuple[TensorInfo | None, ...], operator: Operator | None
    ) -> OpCall:
        """A new call, with outputs or the reason why they are not known."""
        call = OpCall(node, infos, operator)
        call.folded = operator is not None and not operator.random and not call.activations
        try:
            self._size(call)
        except Undetermined as answer:
            call.reason = _short(str(answer))
        except Impossible as answer:
            call.problem = _short(str(answer))
        except MALFORMED as error:
            call.problem = f"the node is not what the operator's text says ({error!r:.200})"
        return call

    def _size(self, call: OpCall) -> None:
        operator = call.operator
        if operator is not None and operator.shape_rule is not None:
            outputs = operator.shape_rule(call)
        elif operator is not None and operator.source == "function body":
            outputs = self._expand(call)
        else:
            from onnxroof.ops.fallback import infer_by_schema

            outputs = infer_by_schema(call)
        call.outputs = tuple([_possible(info) for info in outputs])
        values = self._values(call, operator)
        call.outputs = tuple(
            [
                self._finished(info, values[position] if position < len(values) else None, call)
                for position, info in enumerate(call.outputs)
            ]
        )

    def _expand(self, call: OpCall) -> tuple[TensorInfo, ...]:
        """Run the operator's function body once, in place of a rule."""
        from onnxroof.ops.fallback import function_body

        body = function_body(call)
        bound = {
            f"i{position}": info for position, info in enumerate(call.inputs) if info is not None
        }
        shaped = self.walk(body, bound)
        call.bodies = (Body("function body", shaped),)
        return shaped.outputs

    def _values(self, call: OpCall, operator: Operator | None) -> Sequence[Value | None]:
        """Values of the outputs where all inputs have one and the result is tiny."""
        if operator is None or operator.value_rule is None:
            return ()
        if not operator.value_from_shape and not _all_valued(call.inputs):
            return ()
        for info in call.outputs:
            if info.kind == "tensor" and (
                info.shape is None or math.prod(info.shape) > LARGEST_VALUE
            ):
                return ()
        try:
            return operator.value_rule(self._as_in_the_file(call, operator))
        except Undetermined:
            return ()

    def _as_in_the_file(self, call: OpCall, operator: Operator) -> OpCall:
        """The call on its known values in the types the file has for them.

        Shape arithmetic is done as the file says, in whatever type weights are stored: a size of
        320 is none of int8.
        """
        if not self.memo.retype or operator.shape_rule is None:
            return call
        infos = tuple([None if info is None else _typed_as_its_value(info) for info in call.inputs])
        if infos == call.inputs:
            return call
        own = OpCall(call.node, infos, operator)
        own.outputs = tuple(operator.shape_rule(own))
        return own

    def _finished(self, info: TensorInfo, value: Value | None, call: OpCall) -> TensorInfo:
        if value is not None:
            known = TensorInfo(info.dtype, info.shape, value=value, constant=True)
            return self.retyped(known) if info.shape else known
        if info.may_have_value:  # a rule's own input: an equal call's has another value
            info = info.like()
        return self.memo.one(self.retyped(info.marked(constant=call.folded)))

    def retyped(self, info: TensorInfo) -> TensorInfo:
        """The tensor as stored under the requested precision."""
        target = self.memo.retype.get(info.dtype) if info.dtype else None
        if target is None or info.kind != "tensor":
            return info
        return info.stored_as(target)

    def _constants(self, constants: Mapping[str, Constant]) -> dict[str, TensorInfo]:
        """Constants by name; those of equal type, shape and (where kept) bytes are one record."""
        known = self.memo.tensors
        found: dict[str, TensorInfo] = {}
        for name, constant in constants.items():
            raw = constant.raw
            key = (constant.dtype, constant.shape, raw)
            info = known.get(key)
            if info is None or (raw is None and constant.may_have_value):
                source = constant if constant.may_have_value else None
                info = TensorInfo(constant.dtype, constant.shape, constant=True, source=source)
                if constant.shape or source is None:
                    info = self.retyped(info)
                if raw is not None or source is None:
                    info = self.memo.one(info, key)
            found[name] = info
        return found

    def _with_bodies(
        self,
        node: Node,
        infos: tuple[TensorInfo | None, ...],
        operator: Operator | None,
        scope: Scope,
    ) -> OpCall:
        """A control-flow operator: its bodies are walked for the inputs its rule chooses."""
        rule = None if node.domain else GRAPH_RULES.get(node.op_type)
        if rule is None:
            return self._evaluate(node, infos, operator)
        call = OpCall(node, _bounded(node, infos, operator, scope), operator)

        def walk(body: Graph, inputs: Sequence[TensorInfo]) -> ShapedGraph:
            bound = {item.name: info for item, info in zip(body.inputs, inputs, strict=False)}
            for item in body.inputs[len(inputs) :]:
                bound[item.name] = _ABSENT
            return self.walk(body, bound, scope)

        try:
            outputs, call.bodies = rule(call, walk)
            call.outputs = tuple([_possible(info) for info in outputs])
        except Undetermined as answer:
            call.reason = _short(str(answer))
        except Impossible as answer:
            call.problem = _short(str(answer))
        except MALFORMED as error:
            call.problem = f"the node is not what the operator's text says ({error!r:.200})"
        return call

    # -- what is not known -----------------------------------------------------------------

    def _unknown(self, graph: Graph, node: Node, call: OpCall) -> OpCall:
        """The call with the file's own types for what no rule could tell, and a record of it."""
        outputs: list[TensorInfo] = []
        for position, name in enumerate(node.outputs):
            info = call.outputs[position] if position < len(call.outputs) else _ABSENT
            if info.shape is None and name and name in graph.declared:
                declared = declared_info(graph.declared[name], self.bindings)
                if declared.shape is not None and self.bindings.resized:
                    declared = TensorInfo(declared.dtype, None)
                if declared.shape is None or is_countable(declared.shape):
                    info = self.retyped(declared)
            if info.shape is None and info.kind == "tensor" and name:
                self.unresolved.append(Unresolved(name, node.label, call.problem or call.reason))
            outputs.append(info)
        if call.problem:
            shown = ", ".join("absent" if info is None else repr(info) for info in call.inputs)
            self.problems.append(
                NodeProblem(node.label, node.op_type, _short(shown) or "none", call.problem)
            )
        return _with_outputs(call, tuple(outputs))

    def _named(self, node: Node, outputs: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
        """Data-dependent sizes get a name of their own, and the size bound to it if any."""
        named = list(outputs)
        sizes: dict[int, int] = {}  # one size that several outputs share has one name
        for position, info in enumerate(outputs):
            if info.exact or info.shape is None or not node.outputs[position : position + 1]:
                continue
            dims: list[int] = []
            for axis, dim in enumerate(info.shape):
                if isinstance(dim, BoundedInt) and not dim.name:
                    if id(dim) not in sizes:
                        sizes[id(dim)] = self._size_called(f"{node.outputs[position]}.{axis}", dim)
                    dims.append(sizes[id(dim)])
                else:
                    dims.append(dim)
            named[position] = TensorInfo(info.dtype, tuple(dims))
        return tuple(named)

    def _size_called(self, name: str, dim: BoundedInt) -> int:
        size = self.data_dependent[name] = self.bindings.resolve(name)
        if size is None:  # another trip's or branch's tensor of this name has another size
            times = self._times_named[name] = self._times_named.get(name, 0) + 1
            return BoundedInt(int(dim), dim.low, name if times == 1 else f"{name}#{times}")
        if not dim.low <= size <= int(dim):
            raise SizeOutOfBoundsError(name, size, dim.low, int(dim))
        return size


def _bounded(
    node: Node, infos: tuple[TensorInfo | None, ...], operator: Operator | None, scope: Scope
) -> tuple[TensorInfo | None, ...]:
    """The inputs, with bounds where one holds sizes that are computed at run time."""
    found = list(infos)
    for position in () if operator is None else operator.sizes:
        info = infos[position] if position < len(infos) else None
        if info is not None and info.value is None:
            found[position] = scope.bounded(node.inputs[position]) or info
    return tuple(found)


def _short(text: str) -> str:
    """A message that may spell out a shape or attribute of any length, cut."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def _possible(info: TensorInfo) -> TensorInfo:
    """The tensor, if one of its size can be; a size that may be negative is at least 0.

    Raises:
        Impossible: A size is negative, or there are too many elements for any runtime.
        Undetermined: Only bounds are known, and the upper one is beyond every runtime.
    """
    shape = info.shape
    if shape is None:
        return info
    if shape and min(shape) < 0:  # a bounded size counts as its upper bound
        raise Impossible(f"its result would have a negative size: {_spelled(shape)}")
    if not is_countable(shape):
        what = f"its result would have more than 2^63 elements: {_spelled(shape)}"
        raise Impossible(what) if info.exact else Undetermined(what)
    if info.exact or all(lower(dim) >= 0 for dim in shape):
        return info
    return TensorInfo(info.dtype, tuple([largest(dim, 0) for dim in shape]))


def _spelled(shape: Sequence[int]) -> str:
    shown = [str(dim) for dim in shape[:12]]
    return "×".join(shown) + ("×…" if len(shape) > len(shown) else "")


def _signature(
    node: Node, infos: tuple[TensorInfo | None, ...], operator: Operator | None
) -> tuple[object, ...] | None:
    """What the node's result depends on; None when it must not be shared."""
    if operator is None or node.subgraphs:
        return None
    inputs, outputs = node.inputs, node.outputs
    parts: list[object] = [operator, node.attributes, len(outputs)]
    if "" in outputs:
        parts.append(tuple(map(bool, outputs)))
    if len(inputs) > 1 and len(set(inputs)) < len(inputs):
        parts.append(tuple(map(inputs.index, inputs)))  # a tensor read twice is one read
    if operator.value_rule is not None and _may_be_valued(infos):
        valued: Container[int] = range(len(infos))
    else:
        valued = (*operator.control, *operator.positions)
    for position, info in enumerate(infos):
        if info is None:
            parts.append(None)
        elif not info.exact:
            return None
        else:
            parts.append(info.value_key if position in valued else info.key)
    return tuple(parts)


def _may_be_valued(infos: tuple[TensorInfo | None, ...]) -> bool:
    """As `_all_valued`, without looking at the values."""
    for info in infos:
        if info is not None and not (info.constant and info.may_have_value):
            return False
    return True


def _all_valued(infos: tuple[TensorInfo | None, ...]) -> bool:
    """Whether every given input is a constant with a known value."""
    for info in infos:
        if info is not None and (not info.constant or info.value is None):
            return False
    return True


def _typed_as_its_value(info: TensorInfo) -> TensorInfo:
    """A tensor under the type its elements have, where these are known."""
    dtype = None if info.value is None else TYPE_OF_NUMPY.get(info.value.dtype.type)
    return info if dtype is None or dtype is info.dtype else info.stored_as(dtype)


def _with_outputs(call: OpCall, outputs: tuple[TensorInfo, ...]) -> OpCall:
    """A copy of a (perhaps shared) call with other outputs."""
    copy = OpCall(call.node, call.inputs, call.operator)
    copy.folded, copy.reason, copy.problem = call.folded, call.reason, call.problem
    copy.notes, copy.bodies, copy.outputs = call.notes, call.bodies, outputs
    return copy
