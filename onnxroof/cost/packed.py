"""Weights that lie several to an integer and that bit arithmetic in nodes takes apart.

A stored tensor from which a folded shift or mask takes values holds weights, whatever its type.
Followed from there through what only moves, casts, joins and shifts integers, the last of it has as
many elements as the tensor has values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import upper

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.cost.records import GraphCost
    from onnxroof.graph.types import Constant, Node
    from onnxroof.ops.call import OpCall

BITWISE = frozenset({"BitShift", "BitwiseAnd"})
"""Operators that take packed values apart."""

_CASTS = frozenset({"Cast", "CastLike"})
_BEFORE = _CASTS | {"Div", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
_BEHIND = _CASTS | BITWISE | {"Add", "BitwiseOr", "Concat", "Div", "Gather", "Mod", "Slice", "Sub"}


class Packed:
    """Which integers are taken from stored tensors that hold several values in each of their own.

    Attributes:
        origin: Name of such integers → the stored tensor.

    Args:
        values: Where to note how many values a stored tensor holds, by identity.
    """

    def __init__(self, values: dict[object, int]) -> None:
        self.origin: dict[str, Constant] = {}
        self._values = values
        self._makers: tuple[object, dict[str, Node]] = (None, {})

    def find(self, node: Node, call: OpCall, scope: GraphCost) -> None:
        """Note which stored tensor a folded bit operation takes values from."""
        name, origin = node.inputs[taken_at(call)], self.origin
        graph = scope.shaped.graph
        if self._makers[0] is not graph:
            self._makers = graph, {made: maker for maker in graph.nodes for made in maker.outputs}
        passed = [name]
        while name not in origin and not scope.origins(name):
            maker = self._makers[1].get(name)
            if maker is None or not maker.inputs or maker.kind not in _BEFORE:
                return
            name = maker.inputs[0]
            passed.append(name)
        constant = origin.get(name) or scope.origins(name)[0]
        if constant.shape and constant.dtype.is_integer:
            origin.update(dict.fromkeys(passed, constant))
            scope.roots.update(dict.fromkeys(passed, (constant,)))
            self._values.setdefault(constant.identity, math.prod(constant.shape))

    def follow(self, node: Node, call: OpCall) -> bool:
        """Whether what a folded node makes are integers taken from a packed tensor, too."""
        if not (call.only_moves or node.kind in _BEHIND):
            return False
        at = taken_at(call) if node.kind in BITWISE else 0
        constant, made = self.origin.get(node.inputs[at]), call.outputs[0] if call.outputs else None
        if constant is None or made is None or made.dtype is None or made.dtype.is_float:
            return False
        values = upper(made.elements)
        if node.kind == "Concat":
            parts = enumerate(node.inputs)
            values = sum(
                [elements_at(call, at) for at, name in parts if self.origin.get(name) is constant]
            )
        self.origin[node.outputs[0]] = constant
        self._values[constant.identity] = values
        return True

    def forget(self, names: Iterable[str]) -> None:
        """Tensors of these names are others now."""
        for name in names:
            self.origin.pop(name, None)


def taken_at(call: OpCall) -> int:
    """Position of the packed values of a bit operation; the other holds shifts or a mask."""
    return int(len(call.inputs) > 1 and elements_at(call, 1) > elements_at(call, 0))


def elements_at(call: OpCall, position: int) -> int:
    """Elements of an input, at most; 0 where that is not known."""
    info = call.inputs[position]
    return 0 if info is None or info.shape is None else upper(info.elements)
