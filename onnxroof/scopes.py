"""The tensors of one graph while it is walked, and what can be found out about their values.

A size that is computed at run time has no value, but often a range: its elements went through a
Clip, a Min, a Sigmoid on the way. Ranges are worked out when a shape rule misses a value, backward
from that tensor and no further than rules for ranges reach, so a model that computes no size from
its data never pays for them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bounded import interval, is_exact, lower, upper
from onnxroof.graph.types import DType
from onnxroof.graph.values import NUMPY_TYPE, TYPE_OF_NUMPY
from onnxroof.ops.arithmetic import settle
from onnxroof.ops.call import MALFORMED, OpCall, RangedCall, RuleError, TensorInfo
from onnxroof.ranges import Range, make, of_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.graph.types import Graph
    from onnxroof.ops.call import Value

    _Known = tuple[Value | None, Range]  # elements, bounded or exact, and a range they all lie in

MOST_NODES = 20_000
"""Nodes looked at for one size; the ranges of what lies further back stay open."""

MOST_ELEMENTS = 64
"""Elements of the largest tensor that is given one bounded integer each."""


class Scope:
    """One graph as far as it has been walked: its tensors and calls, and the graph around it.

    `tensors` and `calls` are the walk's own and grow with it. `retyped` are the types that a
    requested precision puts in place of the file's.
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Mapping[str, TensorInfo],
        calls: Sequence[OpCall],
        outer: Scope | None = None,
        retyped: frozenset[DType] = frozenset(),
    ) -> None:
        self.tensors = tensors
        self._graph = graph
        self._calls = calls
        self._outer = outer
        self._captures = frozenset(graph.captures)
        self._retyped = retyped
        self._producers: dict[str, int] = {}
        self._listed = 0
        self._found: dict[str, _Known] = {}

    def find(self, name: str) -> TensorInfo | None:
        """The tensor of that name, here or in a graph around; None if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tensors:
                return scope.tensors[name]
            scope = scope._outer
        return None

    def bounded(self, name: str) -> TensorInfo | None:
        """The tensor with bounds of its elements as its value; None where there are none.

        Elements are `BoundedInt`, or exact where the bounds meet.
        """
        value, _ = self._look_up(name)
        info = self.find(name)
        if value is None or info is None:
            return None
        return TensorInfo(info.dtype, info.shape, value=value)

    def range_of(self, name: str) -> Range:
        """Between which numbers the elements of a tensor lie, whatever the data are."""
        return self._look_up(name)[1]

    # -- the search ------------------------------------------------------------------------

    def _look_up(self, name: str) -> _Known:
        """What can be found out of a tensor's elements."""
        if name not in self._found and name not in self._captures:
            for index in self._needed(name):
                self._work_out(index)
        return self._known(name)

    def _known(self, name: str) -> _Known:
        """What was found here or around, or else what the tensor itself says."""
        if name not in self._found:
            if self._outer is not None and name in self._captures:
                self._found[name] = self._outer._look_up(name)
            else:
                self._found[name] = self._as_it_is(self.tensors.get(name))
        return self._found[name]

    def _needed(self, name: str) -> list[int]:
        """The nodes, in order, from which the range of a tensor follows."""
        self._list_producers()
        needed: set[int] = set()
        pending = [name]
        while pending and len(needed) < MOST_NODES:
            current = pending.pop()
            index = self._producers.get(current)
            if index is None or index in needed or current in self._found:
                continue
            operator = self._calls[index].operator
            if self.tensors[current].value is not None or operator is None:
                continue
            if operator.range_rule is not None or operator.value_rule is not None:
                needed.add(index)
                pending.extend(filter(None, self._graph.nodes[index].inputs))
        return sorted(needed)

    def _list_producers(self) -> None:
        """Every tensor made so far, by the position of its node."""
        for index in range(self._listed, len(self._calls)):
            self._producers.update(dict.fromkeys(self._graph.nodes[index].outputs, index))
        self._listed = len(self._calls)

    def _as_it_is(self, info: TensorInfo | None) -> _Known:
        if info is None:
            return None, of_type(None)
        value = info.value
        if value is None or not value.size or not _is_ordered(value):
            return value, of_type(self._dtype_in_file(info))
        items = value.ravel().tolist()
        low, high = min(map(lower, items)), max(items)
        if isinstance(high, int):
            high = upper(high)
        return value, make(low, high, TYPE_OF_NUMPY.get(value.dtype.type, info.dtype))

    def _dtype_in_file(self, info: TensorInfo) -> DType | None:
        """The type the file has, where another precision may have been put in its place."""
        return DType.FLOAT if info.dtype in self._retyped else info.dtype

    def _work_out(self, index: int) -> None:
        """Values and ranges of what one node makes, from those of what it reads."""
        node, call = self._graph.nodes[index], self._calls[index]
        read = [self._known(name) if name else (None, None) for name in node.inputs]
        # the call's own inputs may be an equal call's, with other values
        infos = [
            _valued(self.find(name), value) if name else None
            for name, (value, _) in zip(node.inputs, read, strict=True)
        ]
        ranged = RangedCall(call, tuple(infos), tuple([found for _, found in read]))
        values, ranges = _values(ranged), _ranges(ranged)
        for position, (name, info) in enumerate(zip(node.outputs, call.outputs, strict=False)):
            found = next(iter(ranges[position:]), of_type(self._dtype_in_file(info)))
            value = next(iter(values[position:]), None)
            self._found[name] = (_filled(info, found) if value is None else value, found)


def _valued(info: TensorInfo | None, value: Value | None) -> TensorInfo | None:
    """The tensor with a value, as rules for values want it."""
    if info is None or value is None:
        return info
    return TensorInfo(info.dtype, info.shape, value=value, constant=True)


def _values(call: RangedCall) -> Sequence[Value | None]:
    """Elements of the outputs, bounded or exact, where those of all inputs are known."""
    operator = call.operator
    if operator is None or operator.value_rule is None:
        return ()
    if any(info is not None and info.value is None for info in call.inputs):
        return ()
    if not all(map(_is_tiny, call.outputs)):
        return ()
    try:
        return operator.value_rule(call)
    except (RuleError, *MALFORMED):
        return ()


def _ranges(call: RangedCall) -> Sequence[Range]:
    operator = call.operator
    if operator is None or operator.range_rule is None:
        return ()
    try:
        return operator.range_rule(call)
    except (RuleError, *MALFORMED):
        return ()


def _filled(info: TensorInfo, found: Range) -> Value | None:
    """Every element of a tiny tensor of integers as what its range says of it."""
    dtype = found.dtype
    if dtype is None or not dtype.is_integer or dtype not in NUMPY_TYPE or not found.is_finite:
        return None
    if info.shape is None or not _is_tiny(info):
        return None
    elements = np.empty(math.prod(info.shape), dtype=object)  # one object each: no two are the same
    elements[:] = [interval(int(found.low), int(found.high)) for _ in range(elements.size)]
    return settle(elements.reshape(info.shape), NUMPY_TYPE[dtype])


def _is_ordered(value: Value) -> bool:
    """Whether the elements are numbers of which each is above, below or equal to another."""
    kind = value.dtype.kind
    return kind in "biuO" or (kind == "f" and not np.isnan(value).any())


def _is_tiny(info: TensorInfo) -> bool:
    """Whether a tensor has few elements, and exactly so many."""
    shape = info.shape
    return shape is not None and all(map(is_exact, shape)) and math.prod(shape) <= MOST_ELEMENTS
