"""What a graph holds in quantized form, followed from node to node.

What DequantizeLinear makes floating-point is read as it is stored. A product of integers that are
not dequantized is in steps of quantization until something scales it; so are weights of at most
eight bits that are only cast. A constant that scales or shifts them is a scale or a zero point, as
it is in the operator that does all of it at once (DynamicQuantizeMatMul, DequantizeLinear).
So are weights that lie several to an integer, once bit arithmetic has taken them apart (`packed`),
and weights that a table gives.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.cost.packed import (
    BITWISE,
    CASTS,
    FEWEST,
    Packed,
    elements_at,
    elements_of,
    taken_at,
)
from onnxroof.cost.records import Role
from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.cost.records import CallCost, GraphCost
    from onnxroof.graph.types import Constant, Node
    from onnxroof.ops.call import OpCall
    from onnxroof.shapes import ShapedGraph

_DEQUANTIZE = "DequantizeLinear"
_DYNAMIC = "DynamicQuantizeLinear"
_QUANTIZE = "QuantizeLinear"
_INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "MatMulInteger16"})
_FLOAT_PRODUCTS = frozenset({
    "Conv", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul",
})  # fmt: skip
_PRODUCTS = _FLOAT_PRODUCTS | _INTEGER_PRODUCTS
_SCALING = frozenset({"Div", "Mul"})
_SHIFTING = frozenset({"Add", "Sub"})
_UNPACKING = CASTS | {"Gather"}
SOURCES = _UNPACKING | _INTEGER_PRODUCTS | {_DEQUANTIZE, _DYNAMIC}
"""Operators that make a quantized tensor of one that is not known to be."""

_MEETING = _SCALING | _SHIFTING
_CODED = frozenset({"Gather", "GatherElements"})
"""Operators that may look weights up in a code book."""

PREPARED = _CODED | BITWISE | {"Sub"}
"""Operators of folded nodes whose operands tell more than their types."""

_TAKING = frozenset({"Slice", "Split"})
_CARRYING = _TAKING | {"Clip", "Expand", "Gather", "MaxPool", "Pad", "Relu"}
_OPERANDS = 2
"""Of an integer product, each with a scale of its own."""

_MOST_BITS = 8
"""Of an element of a weight that is taken for quantized when it is cast."""

_MOST_CODES = 256
"""In the code book of a weight whose elements are numbers of codes."""


class Quantized:
    """Which tensors of a graph are quantized, by name; filled in execution order.

    A node that is no source (`SOURCES`) matters only where something is known (`is_empty`).

    `stored`: floating-point tensors that hold dequantized values → the type these are stored in;
    `steps`: tensors that count in steps of a quantization → how many scales they still lack, one
    for each operand of an integer product, 0 for a weight that is scaled before its product;
    `scales`: tensors that are scales which a run finds → how many they are the product of.

    Args:
        unpacked: Where to note how many values a stored tensor holds that is packed, by identity.
    """

    def __init__(self, unpacked: dict[object, int]) -> None:
        self.is_empty = True
        self.stored: dict[str, DType] = {}
        self.steps: dict[str, int] = {}
        self.scales: dict[str, int] = {}
        self._coded: dict[object, bool] = {}  # by identity → is it the table of codes
        self._decoded: Node | None = None
        self._weights: set[str] = set()  # in steps, and before their product
        self._packed = Packed(unpacked)
        self._unpacked = unpacked
        self._given: frozenset[str] = frozenset()
        self._in_body: tuple[OpCall | None, frozenset[int]] = (None, frozenset())

    def enter(self, shaped: ShapedGraph) -> frozenset[str]:
        """Begin a graph; returns what `leave` needs at its end.

        Its names may be those of other tensors in other graphs. Where integers are multiplied, what
        QuantizeLinear is given as a scale is one, for nodes that come before it, too.
        """
        outer, graph = self._given, shaped.graph
        if not self.is_empty:
            self._forget([item.name for item in graph.inputs] + list(graph.constants))
        given: list[str] = []
        if not _INTEGER_PRODUCTS.isdisjoint([node.kind for node in graph.nodes]):
            calls = zip(graph.nodes, shaped.calls, strict=True)
            given = [
                node.inputs[1]
                for node, call in calls
                if node.kind == _QUANTIZE and 1 in call.activations
            ]
        self.scales.update(dict.fromkeys(given, 1))
        self.leave(frozenset(given))
        return outer

    def leave(self, outer: frozenset[str]) -> None:
        """End a graph that was begun with `enter`."""
        self._given = outer
        self._see_if_empty()

    def _see_if_empty(self) -> None:
        known = self.stored or self.steps or self.scales or self._given or self._coded
        self.is_empty = not (known or self._packed.origin)

    def hand_out(self, made: str, results: Sequence[str]) -> None:
        """A result of an If is what the results of all branches are, if they agree."""
        stored = {self.stored.get(name) for name in results}
        steps = {self.steps.get(name) for name in results}
        if len(stored) == 1 and None not in stored:
            self.stored[made] = self.stored[results[0]]
        if len(steps) == 1 and None not in steps:
            self.steps[made] = self.steps[results[0]]
        self._see_if_empty()

    def role_at(self, node: Node, call: OpCall, position: int, constant: Constant) -> Role | None:
        """What a constant is that meets a quantized tensor; None: it is what the reader says."""
        if constant.identity in self._coded and not call.folded:
            return self._role_of_coded(call, constant)
        if call.bodies:
            if self._in_body[0] is not call:
                self._in_body = call, _scales_in_body(call)
            return Role.QUANTIZATION if position in self._in_body[1] else None
        if node.kind in BITWISE and call.folded:
            return Role.CONTROL if position != taken_at(call) else None
        if node.kind in _MEETING and len(node.inputs) == _OPERANDS:
            return self._role_beside(node, call, position, constant)
        return None

    def _role_of_coded(self, call: OpCall, constant: Constant) -> Role | None:
        """What is decoded is the weight of a product, or else a table that indices choose from."""
        is_weight = call.operator is None or not call.operator.pointwise
        if self._coded[constant.identity]:
            return Role.QUANTIZATION if is_weight else Role.WEIGHT
        return None if is_weight else Role.CONTROL

    def _role_beside(
        self, node: Node, call: OpCall, position: int, constant: Constant
    ) -> Role | None:
        """The same of an operand of elementwise arithmetic, by what the other one is."""
        other = node.inputs[1 - position]
        if node.kind in _SCALING and other in self.scales:
            return Role.QUANTIZATION if self.scales[other] < _OPERANDS else None
        lacking = self.steps.get(other)
        if lacking is None or not (lacking or call.folded) or (node.kind, position) == ("Sub", 0):
            return None
        if call.folded:  # with as many elements as the weight it is no scale of it, but a mask
            if node.kind in _SCALING and not constant.dtype.is_float and self._packed.holds(other):
                return Role.CONTROL  # a shift, written as a product
            if node.kind == "Add" and other not in self._weights:
                return None  # the bias of a product of constants
            stored = self._unpacked.get(constant.identity) or math.prod(constant.shape)
            is_scale = stored < elements_at(call, 1 - position)
        elif node.kind == "Add":
            is_offset = not constant.dtype.is_float and lacking < _OPERANDS  # of an index
            return Role.WEIGHT if constant.shape and not is_offset else None
        else:
            is_scale = True
        return Role.QUANTIZATION if is_scale else None

    def follow(self, node: Node, call: OpCall, scope: GraphCost) -> None:
        """Note what a node makes of quantized tensors."""
        if not node.inputs or not node.outputs:
            return
        self._forget(node.outputs)
        is_weight = node is self._decoded or (
            call.folded and bool(self._packed.origin) and self._packed.follow(node, call, scope)
        )
        if is_weight:
            self.steps.update(dict.fromkeys(node.outputs, 1))
        elif begins_quantized(call) and _is_quantized_in_file(node, call, scope):
            self._begin(node, call)
            is_weight = node.kind in _UNPACKING
        else:
            self._carry(node, call)
            is_weight = node.kind not in _PRODUCTS and not self._weights.isdisjoint(node.inputs)
        if is_weight and call.folded:
            self._weights.update(node.outputs)
        if self._given:
            self.scales.update({name: 1 for name in node.outputs if name in self._given})
        self._see_if_empty()

    def _forget(self, names: Sequence[str]) -> None:
        """Another branch or body may have called another tensor so."""
        if self._packed.origin:
            self._packed.forget(names)
        for name in names:
            self.steps.pop(name, None)
            self.stored.pop(name, None)
            self.scales.pop(name, None)
            self._weights.discard(name)

    def prepare(self, node: Node, call: OpCall, scope: GraphCost) -> dict[object, Constant] | None:
        """Before a folded node's constants are read (`PREPARED`): note what its operands hold.

        Weights of at most eight bits from which a zero point is subtracted, a stored tensor from
        which a bit operation takes values, or the codes of a weight and which of them it has: both
        of these pass into the result, and are returned.
        """
        if node.kind in _CODED:
            return self._read_code_book(node, call, scope)
        if node.kind == "Sub":
            made = call.outputs[0] if call.outputs else None
            is_whole = elements_at(call, 0) == elements_of(made)
            if is_whole and any(map(_is_narrow_integer, scope.origins(node.inputs[0]))):
                self.steps.setdefault(node.inputs[0], 1)
                self._weights.add(node.inputs[0])
                self.is_empty = False
        else:
            self._packed.find(node, call, scope)
            self._see_if_empty()
        return None

    def _read_code_book(
        self, node: Node, call: OpCall, scope: GraphCost
    ) -> dict[object, Constant] | None:
        """What passes into a weight that is looked up in a code book; None where none is.

        A few bits choose each code; the codes lie in one row for all, or (GatherElements) in rows
        along the axis. Whether they are one is known once the result is read.
        """
        if len(node.inputs) < _OPERANDS or elements_at(call, 1) < FEWEST:
            return None
        codes, name = call.inputs[0], node.inputs[1]
        if codes is None or not codes.shape:
            return None
        axis = call.attributes.get("axis", 0)
        rank = len(codes.shape)
        is_row = rank == 1 or node.kind == "GatherElements"
        if not is_row or not isinstance(axis, int) or not -rank <= axis < rank:
            return None
        tables, chosen = scope.origins(node.inputs[0]), scope.origins(name)
        is_narrow = name in self._packed.origin or any(map(_is_narrow_integer, chosen))
        if upper(codes.shape[axis]) > _MOST_CODES or not is_narrow:
            return None
        self._coded.update({item.identity: False for item in chosen})
        self._coded.update({item.identity: True for item in tables})
        self._decoded = node
        self.is_empty = False
        return {item.identity: item for item in (*tables, *chosen)}

    def _begin(self, node: Node, call: OpCall) -> None:
        """What a source makes."""
        outputs = node.outputs
        if node.kind == _DYNAMIC:
            if len(outputs) > 1:
                self.scales[outputs[1]] = 1
        elif node.kind == _DEQUANTIZE:
            if call.inputs[0] is not None and call.inputs[0].dtype is not None:
                self.stored[outputs[0]] = call.inputs[0].dtype
        else:
            self.steps[outputs[0]] = _OPERANDS if node.kind in _INTEGER_PRODUCTS else 1

    def _carry(self, node: Node, call: OpCall) -> None:
        """What another node makes of tensors that are known."""
        names, made, kind = node.inputs, node.outputs[0], node.kind
        steps = self.steps
        if kind in _SCALING:
            self._scale(names, made, call)
        elif kind in _SHIFTING or kind == "Concat":
            self._join(names, made, call)
        elif kind in _FLOAT_PRODUCTS:
            for at, name in enumerate(names):
                if steps.get(name) and _is_constant(call, at) and (at < 2 or kind == "Einsum"):
                    steps[made] = steps[name]
        elif call.only_moves or kind in _TAKING:
            self._move(names[0], node.outputs)
            if names[0] in self.stored:
                self.stored.update(dict.fromkeys(node.outputs, self.stored[names[0]]))
        elif kind in _CARRYING or (kind in CASTS and _may_hold_steps(call)):
            self._move(names[0], node.outputs)

    def _join(self, names: tuple[str, ...], made: str, call: OpCall) -> None:
        """Steps stay steps under a constant shift or bias, or next to others."""
        lacking = [self.steps[name] for name in names if name in self.steps]
        if not lacking:
            return
        if len(lacking) == len(names) or (
            call.kind in _SHIFTING
            and all(name in self.steps or _is_constant(call, at) for at, name in enumerate(names))
            and not (call.folded and elements_at(call, 0) == elements_at(call, 1))
        ):
            self.steps[made] = max(lacking)

    def _move(self, name: str, outputs: tuple[str, ...]) -> None:
        for made in outputs:
            if name in self.steps:
                self.steps[made] = self.steps[name]
            if name in self.scales:
                self.scales[made] = self.scales[name]

    def _scale(self, names: tuple[str, ...], made: str, call: OpCall) -> None:
        """Scales multiply to a scale; steps are left once every operand's scale is in them."""
        counted = [name for name in names if name in self.steps]
        if counted:
            lacking = self.steps[counted[0]]
            others = [name for name in names if name in self.scales]
            if others:
                lacking -= sum(self.scales[name] for name in others)
            elif call.folded and counted[0] in self._weights:
                lacking = 0
            elif lacking < _OPERANDS or any(_is_constant(call, at) for at in range(len(names))):
                return  # a run's factor is the scale of a run's operand, a constant the whole scale
            else:
                lacking -= 1
            if len(counted) == 1 and (lacking > 0 or counted[0] in self._weights):
                self.steps[made] = lacking
            return
        known = [name for name in names if name in self.scales]
        if known and all(
            name in self.scales or _is_constant(call, at) for at, name in enumerate(names)
        ):
            self.scales[made] = sum(self.scales.get(name, 1) for name in names)

    def as_stored(self, node: Node, call: OpCall, cost: CallCost) -> CallCost:
        """A product of two quantized operands runs on their type; constants are read as stored."""
        held = [self.stored.get(name) for name in node.inputs]
        if not any(held):
            return cost
        dtype = cost.compute_dtype
        operands = [stored for stored in held[:_OPERANDS] if stored is not None]
        if cost.macs and len(operands) == _OPERANDS:
            dtype = max(operands, key=_bits).multiplied
        saved, of_rule = 0, cost.reads or {}
        for at, (name, info, stored) in enumerate(zip(node.inputs, call.inputs, held, strict=True)):
            if info is None or stored is None or not info.constant or name in node.inputs[:at]:
                continue
            read, bits = of_rule.get(at, info.nbytes), _bits(info.dtype)
            if read and bits:
                saved += read + -read * _bits(stored) // bits
        reads = cost.weight_read_bytes
        if (dtype is cost.compute_dtype and not saved) or reads is None:
            return cost
        return replace(cost, compute_dtype=dtype, weight_read_bytes=reads - saved)


def _scales_in_body(call: OpCall) -> frozenset[int]:
    """Positions of what Scan or Loop hands to its body and all in it read as quantization data."""
    shaped: ShapedGraph = call.bodies[0].shaped  # type: ignore[assignment]
    given = shaped.graph.inputs
    offset = len(given) - len(call.inputs)
    positions = {item.name: at - offset for at, item in enumerate(given)}
    scales: set[int] = set()
    others: set[int] = set()
    for inner, node in zip(shaped.calls, shaped.graph.nodes, strict=True):
        if node.kind == "Identity":  # it hands a Loop's state on
            continue
        declared = inner.operator.quantization if inner.operator is not None else ()
        for place, name in enumerate(node.inputs):
            if name in positions:
                (scales if place in declared else others).add(positions[name])
    return frozenset(scales - others)


def _is_constant(call: OpCall, position: int) -> bool:
    info = call.inputs[position]
    return info is not None and info.constant


def begins_quantized(call: OpCall) -> bool:
    """Whether counting may follow the result of a node through the graph (see `Quantized`)."""
    kind, infos = call.kind, call.inputs
    if kind in _UNPACKING:  # a constant of at most eight bits is looked up in or cast
        info = infos[0] if infos else None
        if info is None or not info.constant or info.dtype is DType.BOOL:
            return False
        return 0 < _bits(info.dtype) <= _MOST_BITS and (kind == "Gather" or _may_hold_steps(call))
    return kind in SOURCES


def _is_narrow_integer(constant: Constant) -> bool:
    return constant.dtype.is_integer and 0 < _bits(constant.dtype) <= _MOST_BITS


def _is_quantized_in_file(node: Node, call: OpCall, scope: GraphCost) -> bool:
    """Not just under the precision that was asked for."""
    stored = scope.origins(node.inputs[0]) if call.kind in _UNPACKING else ()
    return not stored or any(0 < _bits(constant.dtype) <= _MOST_BITS for constant in stored)


def _may_hold_steps(call: OpCall) -> bool:
    """Whether a cast makes what arithmetic on quantized values is done in; int64 are indices."""
    made = call.outputs[0].dtype if call.outputs else None
    return made is not None and (made.is_float or made in (DType.INT8, DType.INT16, DType.INT32))


def _bits(dtype: DType | None) -> int:
    """Bits of an element; 0 where they are not known."""
    return (dtype.bits if dtype is not None else None) or 0
