"""Weights that lie several to an integer and that bit arithmetic in nodes takes apart.

A stored tensor from which a folded shift or mask takes values holds weights, whatever its type.
Followed from there through what only moves, casts, joins and shifts integers, the last of it has as
many elements as the tensor has values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.graph.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.cost.records import GraphCost
    from onnxroof.graph.types import Constant, Graph, Node
    from onnxroof.ops.call import OpCall, TensorInfo

    Group = tuple[Constant, ...]

BITWISE = frozenset({"BitShift", "BitwiseAnd", "Mod"})
"""Operators that take packed values apart."""

CASTS = frozenset({"Cast", "CastLike"})
_BEFORE = CASTS | {
    "Concat", "Div", "Expand", "Gather", "Reshape", "Slice", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
}  # fmt: skip
_ASSEMBLING = frozenset({"Concat", "Gather", "ScatterND", "Slice", "Split", "Where"})
_ARITHMETIC = BITWISE | {"Add", "BitwiseOr", "BitwiseXor", "Div", "Mul", "Sub"}
_MERGING = frozenset({"Add", "BitwiseOr", "BitwiseXor"})

_MOST_JOINED = 64
"""Stored tensors that are followed as one."""

FEWEST = 2
"""Elements that values are taken from; single ones are mostly dimensions."""

_NARROW_BITS = 8
"""Of an element that is hardly ever a position."""

_JOINING = frozenset({"Concat", "ScatterND"})
_FLOATS = frozenset(dtype.code for dtype in DType if dtype.is_float)
"""What the attribute of a Cast says, whatever precision is asked for."""

_FROM = {"ScatterND": 2, "Where": 1}
"""Position of what the result holds, where it is not the first input."""


class Packed:
    """Which tensors are taken from stored integers that hold several values in each of their own.

    Attributes:
        origin: Name of such a tensor → the stored ones, joined to one before they are taken apart.

    Args:
        values: Where to note how many values a stored tensor holds, by identity.
    """

    def __init__(self, values: dict[object, int]) -> None:
        self.origin: dict[str, Group] = {}
        self._values = values
        self._parts: set[str] = set()
        self._floats: set[str] = set()
        self._sources: dict[int, dict[str, Group]] = {}
        self._groups: dict[tuple[object, ...], Group] = {}

    def holds(self, name: str) -> bool:
        """Whether a tensor holds values of a packed one, still as integers."""
        return name in self.origin and name not in self._floats

    def find(self, node: Node, call: OpCall, scope: GraphCost) -> None:
        """Note which stored tensors a folded bit operation takes values from."""
        at = taken_at(call)
        name = node.inputs[at]
        if name in self.origin or elements_at(call, at) < FEWEST:
            return
        found = self._joined(name, scope)
        if found and all(_may_be_packed(constant, node.kind) for constant in found):
            self.origin[name] = found
            scope.roots[name] = found
            for constant in found:
                self._values.setdefault(constant.identity, math.prod(constant.shape))

    def _joined(self, name: str, scope: GraphCost) -> Group:
        """The stored tensors that a tensor is made of by what leaves values packed; one record."""
        graph = scope.shaped.graph
        sources = self._sources.get(id(graph))
        if sources is None:
            sources = self._sources[id(graph)] = _sources(graph, scope)
        found = sources.get(name) or scope.origins(name)
        return self._groups.setdefault(tuple([item.identity for item in found]), found)

    def follow(self, node: Node, call: OpCall, scope: GraphCost) -> bool:
        """Whether what a folded node makes is taken from packed tensors, too."""
        kind, names = node.kind, node.inputs
        at = self._taken_from(node, call)
        group = self.origin.get(names[at]) if at < len(names) else None
        made = call.outputs[0] if call.outputs else None
        if group is None or not elements_of(made) or not self._is_followed(node, call, names[at]):
            return False
        self.origin.update({name: group for name in node.outputs if name})
        before, values = elements_at(call, at), elements_of(made)
        if kind == "Concat":
            values = sum(
                elements_at(call, position)
                for position, name in enumerate(names)
                if (self.origin.get(name) or self._joined(name, scope)) is group
            )
        elif names[at] in self._parts or (values < before and kind not in _ARITHMETIC):
            self._parts.update(node.outputs)
            return True
        if kind in BITWISE or kind in _JOINING:
            self._note(group, values)
        elif kind in _MERGING:
            self._merge(names, group, values, call)
        return True

    def _taken_from(self, node: Node, call: OpCall) -> int:
        """Position of the input whose values the result holds."""
        if node.kind in BITWISE:
            return taken_at(call)
        if node.kind == "Concat":
            names = enumerate(node.inputs)
            return next((at for at, name in names if name in self.origin), 0)
        return _FROM.get(node.kind, 0)

    def _is_followed(self, node: Node, call: OpCall, name: str) -> bool:
        """Whether a node keeps the values apart: it moves, joins or casts them or works on bits."""
        kind = node.kind
        if kind in CASTS or call.only_moves or kind in _ASSEMBLING:
            to = call.attributes.get("to")
            is_cast = isinstance(to, int) and to in _FLOATS
            if is_cast or name in self._floats:
                self._floats.update(node.outputs)
            return True
        return kind in _ARITHMETIC and name not in self._floats

    def _note(self, group: Group, values: int) -> None:
        """The values of stored tensors together; each has its part of them."""
        stored = [math.prod(constant.shape) for constant in group]
        for constant, elements in zip(group, stored, strict=True):
            self._values[constant.identity] = -(-values * elements // max(sum(stored), 1))

    def _merge(self, names: tuple[str, ...], group: Group, values: int, call: OpCall) -> None:
        """Of two tensors that hold some bits of the same values only one counts them."""
        for position, name in enumerate(names):
            other = self.origin.get(name, group)
            if other is not group and elements_at(call, position) == values:
                self._note(other, 0)

    def forget(self, names: Iterable[str]) -> None:
        """Tensors of these names are others now."""
        for name in names:
            self.origin.pop(name, None)
        self._parts.difference_update(names)
        self._floats.difference_update(names)


def _may_be_packed(constant: Constant, kind: str) -> bool:
    """Bits of a row of numbers, or their remainders, are a pattern and not values packed in it."""
    is_row = sum(dimension > 1 for dimension in constant.shape) < 2
    dtype = constant.dtype
    is_narrow = dtype.bits is not None and dtype.bits <= _NARROW_BITS
    return (
        dtype.is_integer
        and bool(constant.shape)
        and not (is_row and (kind == "Mod" or not is_narrow))
    )


def _sources(graph: Graph, scope: GraphCost) -> dict[str, Group]:
    """Tensors that nodes make of stored ones before they are taken apart → the stored ones."""
    sources: dict[str, Group] = {}
    for node in graph.nodes:
        if node.kind not in _BEFORE or not node.outputs:
            continue
        found: dict[object, Constant] = {}
        for name in node.inputs if node.kind == "Concat" else node.inputs[:1]:
            found.update({item.identity: item for item in sources.get(name) or scope.origins(name)})
        if 0 < len(found) <= _MOST_JOINED:
            sources[node.outputs[0]] = tuple(found.values())
    return sources


def taken_at(call: OpCall) -> int:
    """Position of the packed values of a bit operation; the other holds shifts or a mask."""
    return int(len(call.inputs) > 1 and elements_at(call, 1) > elements_at(call, 0))


def elements_at(call: OpCall, position: int) -> int:
    """Elements of an input, at most; 0 where that is not known."""
    return elements_of(call.inputs[position])


def elements_of(info: TensorInfo | None) -> int:
    """Elements of a tensor, at most; 0 where that is not known."""
    return 0 if info is None or info.shape is None else upper(info.elements)
