"""What a graph holds in quantized form, followed from node to node.

What DequantizeLinear makes floating-point is read as it is stored. A product of integers that are
not dequantized is in steps of quantization until something scales it; so are weights of at most
eight bits that are only cast. A constant that scales or shifts them is a scale or a zero point, as
it is in the operator that does all of it at once (DynamicQuantizeMatMul, DequantizeLinear).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.cost.records import Role
from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from onnxroof.cost.records import CallCost
    from onnxroof.graph.types import Constant, Node
    from onnxroof.ops.call import OpCall, TensorInfo

_DEQUANTIZE = "DequantizeLinear"
_DYNAMIC = "DynamicQuantizeLinear"
_INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "MatMulInteger16"})
_FLOAT_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
_SCALING = frozenset({"Div", "Mul"})
_SHIFTING = frozenset({"Add", "Sub"})
_CASTS = frozenset({"Cast", "CastLike"})
_UNPACKING = _CASTS | {"Gather"}
SOURCES = frozenset({_DEQUANTIZE, _DYNAMIC, *_INTEGER_PRODUCTS, *_UNPACKING})
"""Operators that make a quantized tensor of one that is not known to be."""

_MEETING = _SCALING | _SHIFTING
_CARRYING = frozenset({"Gather", "Relu", "Split"})
_OPERANDS = 2
"""Of an integer product, each with a scale of its own."""

_MOST_BITS = 8
"""Of an element of a weight that is taken for quantized when it is cast."""


class Quantized:
    """Which tensors of a graph are quantized, by name; filled in execution order.

    A node that is no source (`SOURCES`) matters only where something is known (`is_empty`).

    `stored`: floating-point tensors that hold dequantized values → what they were dequantized from;
    `steps`: tensors that count in steps of a quantization → how many scales they still lack, one
    for each operand of an integer product; `scales`: tensors that are scales which a run finds →
    how many they are the product of.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self.stored: dict[str, TensorInfo] = {}
        self.steps: dict[str, int] = {}
        self.scales: dict[str, int] = {}

    def role_at(self, node: Node, call: OpCall, position: int, constant: Constant) -> Role | None:
        """What a constant is that meets a quantized tensor; None: it is what the reader says."""
        names = node.inputs
        if node.kind not in _MEETING or len(names) != 2:
            return None
        other = names[1 - position]
        if node.kind in _SCALING and other in self.scales:
            return Role.QUANTIZATION if self.scales[other] < _OPERANDS else None
        if other not in self.steps or (node.kind == "Sub" and position == 0):
            return None
        if call.folded:  # with as many elements as the weight it is no scale of it, but a mask
            is_smaller = math.prod(constant.shape) < _elements(call, 1 - position)
            return Role.QUANTIZATION if is_smaller else None
        return Role.WEIGHT if node.kind == "Add" else Role.QUANTIZATION

    def follow(self, node: Node, call: OpCall) -> None:
        """Note what a node makes of quantized tensors."""
        if not node.inputs or not node.outputs:
            return
        for name in node.outputs:  # another branch may call another tensor so
            self.steps.pop(name, None)
            self.stored.pop(name, None)
            self.scales.pop(name, None)
        if begins_quantized(call):
            self._begin(node, call)
        else:
            self._carry(node, call)
        self.is_empty = not (self.stored or self.steps or self.scales)

    def _begin(self, node: Node, call: OpCall) -> None:
        """What a source makes."""
        outputs = node.outputs
        if node.kind == _DYNAMIC:
            if len(outputs) > 1:
                self.scales[outputs[1]] = 1
        elif node.kind == _DEQUANTIZE:
            if call.inputs[0] is not None:
                self.stored[outputs[0]] = call.inputs[0]
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
                if name in steps and _is_constant(call, at):
                    steps[made] = steps[name]
        elif call.only_moves:
            self._move(names[0], node.outputs)
            if names[0] in self.stored:
                self.stored[made] = self.stored[names[0]]
        elif kind in _CARRYING or (kind in _CASTS and _may_hold_steps(call)):
            self._move(names[0], node.outputs)

    def _join(self, names: tuple[str, ...], made: str, call: OpCall) -> None:
        """Steps stay steps under a constant shift or bias, or next to others."""
        lacking = [self.steps[name] for name in names if name in self.steps]
        if not lacking:
            return
        if len(lacking) == len(names) or (
            call.kind in _SHIFTING
            and all(name in self.steps or _is_constant(call, at) for at, name in enumerate(names))
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
            others = [name for name in names if name in self.scales]
            lacking = self.steps[counted[0]] - sum(self.scales[name] for name in others)
            if len(counted) == 1 and others and lacking > 0:
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
        if cost.macs and len(held) > 1 and held[0] is not None and held[1] is not None:
            dtype = held[0].dtype.multiplied if held[0].dtype is not None else None
        saved = 0
        for info, stored in zip(call.inputs, held, strict=True):
            if info is not None and stored is not None and info.constant:
                saved += (info.nbytes or 0) - (stored.nbytes or 0)
        reads = cost.weight_read_bytes
        if (dtype is cost.compute_dtype and not saved) or reads is None:
            return cost
        return replace(cost, compute_dtype=dtype, weight_read_bytes=max(reads - saved, 0))


def _is_constant(call: OpCall, position: int) -> bool:
    info = call.inputs[position]
    return info is not None and info.constant


def _elements(call: OpCall, position: int) -> int:
    info = call.inputs[position]
    return 0 if info is None or info.shape is None else upper(info.elements)


def begins_quantized(call: OpCall) -> bool:
    """Whether counting follows the result of a node through the graph (see `Quantized`)."""
    kind = call.kind
    if kind in _UNPACKING:
        return _unpacks(call)
    return kind in SOURCES


def _unpacks(call: OpCall) -> bool:
    """A constant of at most eight bits an element is looked up in or made floating-point."""
    info = call.inputs[0] if call.inputs else None
    if info is None or not info.constant or info.dtype is None or info.dtype is DType.BOOL:
        return False
    bits = info.dtype.bits
    if bits is None or bits > _MOST_BITS:
        return False
    return call.kind == "Gather" or _may_hold_steps(call)


def _may_hold_steps(call: OpCall) -> bool:
    """Whether a cast makes what arithmetic on quantized values is done in; int64 are indices."""
    made = call.outputs[0].dtype if call.outputs else None
    return made is not None and (made.is_float or made in (DType.INT16, DType.INT32))
