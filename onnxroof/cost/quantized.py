"""What a graph holds in quantized form, followed from node to node.

What DequantizeLinear makes floating-point is read as it is stored. A product of integers that are
not dequantized is in steps of quantization until something scales it; so are weights of at most
eight bits that are only cast. A constant that scales or shifts them is a scale or a zero point, as
it is in the operator that does all of it at once (DynamicQuantizeMatMul, DequantizeLinear).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.cost.records import Role
from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from onnxroof.cost.records import CallCost
    from onnxroof.graph.types import Node
    from onnxroof.ops.call import OpCall, TensorInfo

_DEQUANTIZE = "DequantizeLinear"
_DYNAMIC = "DynamicQuantizeLinear"
_INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "MatMulInteger16"})
_FLOAT_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_SCALING = frozenset({"Div", "Mul"})
_SHIFTING = frozenset({"Add", "Sub"})
_UNPACKING = frozenset({"Cast", "Gather"})
SOURCES = frozenset({_DEQUANTIZE, _DYNAMIC, *_INTEGER_PRODUCTS, *_UNPACKING})
"""Operators that make a quantized tensor of one that is not known to be."""

_MEETING = _SCALING | _SHIFTING
_MOST_BITS = 8
"""Of an element of a weight that is taken for quantized when it is cast."""


class Quantized:
    """Which tensors of a graph are quantized, by name; filled in execution order.

    A node that is no source (`SOURCES`) matters only where something is known (`is_empty`).

    `stored`: floating-point tensors that hold dequantized values → what they were dequantized from;
    `steps`: tensors that count in steps of a quantization that nothing has scaled yet; `scales`:
    tensors that are scales which a run finds → whether a constant scale is part of them.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self.stored: dict[str, TensorInfo] = {}
        self.steps: set[str] = set()
        self.scales: dict[str, bool] = {}

    def role_at(self, node: Node, call: OpCall, position: int) -> Role | None:
        """What a constant is that meets a quantized tensor; None: it is what the reader says."""
        names = node.inputs
        if node.kind not in _MEETING or len(names) != 2:
            return None
        other = names[1 - position]
        if node.kind in _SCALING and other in self.scales:
            return Role.QUANTIZATION
        if other not in self.steps or (node.kind == "Sub" and position == 0):
            return None
        if call.folded:  # with as many elements as the weight it is no scale of it, but a mask
            is_smaller = _elements(call, position) < _elements(call, 1 - position)
            return Role.QUANTIZATION if is_smaller else None
        return Role.WEIGHT if node.kind == "Add" else Role.QUANTIZATION

    def follow(self, node: Node, call: OpCall) -> None:
        """Note what a node makes of quantized tensors."""
        if not node.inputs or not node.outputs:
            return
        for name in node.outputs:  # another branch may call another tensor so
            self.steps.discard(name)
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
                self.scales[outputs[1]] = False
        elif node.kind == _DEQUANTIZE:
            if call.inputs[0] is not None:
                self.stored[outputs[0]] = call.inputs[0]
        else:
            self.steps.add(outputs[0])

    def _carry(self, node: Node, call: OpCall) -> None:
        """What another node makes of tensors that are known."""
        names, made, kind = node.inputs, node.outputs[0], node.kind
        if kind in _SCALING:
            self._scale(names, made, call)
        elif kind in _SHIFTING or kind in _FLOAT_PRODUCTS:
            if not self.steps.isdisjoint(names[:2]):
                self.steps.add(made)
        elif _only_moves(call):
            self._move(names[0], made)
            if names[0] in self.stored:
                self.stored[made] = self.stored[names[0]]
        elif kind == "Gather" or (kind == "Cast" and _makes_floats(call)):
            self._move(names[0], made)

    def _move(self, name: str, made: str) -> None:
        if name in self.steps:
            self.steps.add(made)
        if name in self.scales:
            self.scales[made] = self.scales[name]

    def _scale(self, names: tuple[str, ...], made: str, call: OpCall) -> None:
        """A product of scales is a scale; steps are left by all but an activation's scale alone."""
        of_steps = [name in self.steps for name in names]
        if any(of_steps):
            other = names[of_steps.index(False)] if not all(of_steps) else ""
            if self.scales.get(other) is False:
                self.steps.add(made)
            return
        is_scale = [name in self.scales for name in names]
        if any(is_scale) and all(
            known or (info is not None and info.constant)
            for known, info in zip(is_scale, call.inputs, strict=True)
        ):
            self.scales[made] = not all(is_scale) or any(self.scales[name] for name in names)

    def as_stored(self, node: Node, call: OpCall, cost: CallCost) -> CallCost:
        """A product of two quantized operands runs on their type; constants are read as stored."""
        held = [self.stored.get(name) for name in node.inputs]
        if not any(held):
            return cost
        dtype = cost.compute_dtype
        if cost.macs and len(held) > 1 and held[0] is not None and held[1] is not None:
            dtype = held[0].dtype
        saved = 0
        for info, stored in zip(call.inputs, held, strict=True):
            if info is not None and stored is not None and info.constant:
                saved += (info.nbytes or 0) - (stored.nbytes or 0)
        reads = cost.weight_read_bytes
        if (dtype is cost.compute_dtype and not saved) or reads is None:
            return cost
        return replace(cost, compute_dtype=dtype, weight_read_bytes=max(reads - saved, 0))


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
    return call.kind == "Gather" or _makes_floats(call)


def _makes_floats(call: OpCall) -> bool:
    made = call.outputs[0].dtype if call.outputs else None
    return made is not None and made.is_float


def _only_moves(call: OpCall) -> bool:
    """Whether the output holds the first input's values, in another shape or order."""
    operator = call.operator
    return call.kind == "Transpose" or (operator is not None and operator.view)
