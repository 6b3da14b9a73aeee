"""Patterns drawn as text, and the matcher that finds them from their last node upward.

A drawing is a list of assignments, one operator a line, in execution order:

    m = ReduceMean(x)
    d = Sub(x, m)
    q = Pow(d, #2) | Mul(d, d)
    g = Mul(n, #) else n

`#` is any constant and `#2` one of that value; `A/B(…)` is either operator; `|` separates
alternatives; `else n` makes the line optional: where it does not fit, the name stands for `n`.
Names that no line assigns are the pattern's inputs. Arguments of commutative operators match in
either order; arguments left out of the drawing (axes, bounds) are free. Views are transparent.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.fusion.groups import Grouping
    from onnxroof.ops.call import Value

COMMUTATIVE = frozenset({"Add", "Mul", "Sum", "And", "Or", "Max", "Min"})


@dataclass(frozen=True, slots=True)
class Call:
    """One alternative of a line: operators and arguments, and how many of these are constants."""

    operators: frozenset[str]
    arguments: tuple[str, ...]
    constants: int


@dataclass(frozen=True, slots=True)
class Line:
    """One name, what may make it, and the name it stands for where nothing fits.

    Attributes:
        name: What later lines call its result.
        calls: The alternatives.
        otherwise: The name it stands for where none fits; "" where one must.
        kinds: All operators of the alternatives.
        makers: Operators one of which makes what the name stands for; empty where that may be an
            input of the pattern.
        inner: Operators one of which makes the first argument, where that is the same for all
            alternatives and cannot be another argument.
        needs: Per alternative each argument of which it is known what makes it: its position and
            line.
    """

    name: str
    calls: tuple[Call, ...]
    otherwise: str
    kinds: frozenset[str]
    makers: frozenset[str]
    inner: frozenset[str]
    needs: tuple[Needs, ...]


Needs = tuple[tuple[int, Line], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A parsed drawing.

    Attributes:
        lines: By name.
        entries: Names the pattern may end with, longest form first.
        needed: Per required line the operators of which the graph must have one.
        inputs: Names no line assigns, in order of appearance.
    """

    lines: Mapping[str, Line]
    entries: tuple[str, ...]
    needed: tuple[frozenset[str], ...]
    inputs: tuple[str, ...]


_LINE = re.compile(r"^(\w+) = (.+?)(?: else (\w+))?$")
_CALL = re.compile(r"^([\w/]+)\((.*)\)$")


@lru_cache(maxsize=256)
def parse(text: str) -> Drawing:
    """The drawing in its text. Raises ValueError for a line that is none."""
    lines: dict[str, Line] = {}
    inputs: dict[str, None] = {}
    for written in filter(None, map(str.strip, text.splitlines())):
        found = _LINE.match(written)
        if found is None:
            raise ValueError(f"not a line of a drawing: {written!r}")
        name, calls, otherwise = found.groups()
        alternatives = tuple(map(_call, calls.split(" | ")))
        kinds = frozenset().union(*(call.operators for call in alternatives))
        makers = _makers(kinds, lines.get(otherwise)) if otherwise else kinds
        needs = tuple([_needs(call, lines) for call in alternatives])
        inner = frozenset() if otherwise else _inner(alternatives, lines)
        line = Line(name, alternatives, otherwise or "", kinds, makers, inner, needs)
        for call in line.calls:
            for argument in call.arguments:
                if not argument.startswith("#") and argument not in lines:
                    inputs[argument] = None
        lines[name] = line
    last = next(reversed(lines))
    entries = [last]
    while lines[entries[-1]].otherwise in lines:
        entries.append(lines[entries[-1]].otherwise)
    needed = [line.kinds for line in lines.values() if not line.otherwise]
    return Drawing(lines, tuple(entries), tuple(needed), tuple(inputs))


def _makers(kinds: frozenset[str], otherwise: Line | None) -> frozenset[str]:
    """What makes an optional line or what it stands for; empty where that may be an input."""
    if otherwise is None or not otherwise.makers:
        return frozenset()
    return kinds | otherwise.makers


def _inner(calls: tuple[Call, ...], lines: Mapping[str, Line]) -> frozenset[str]:
    """What must make the only argument of a line; empty where that is not known."""
    arguments = {call.arguments for call in calls}
    if len(arguments) != 1 or len(calls[0].arguments) != 1:
        return frozenset()
    before = lines.get(calls[0].arguments[0])
    return frozenset() if before is None else before.makers


def _needs(call: Call, lines: Mapping[str, Line]) -> Needs:
    """Position and line of each argument of which it is known what makes it."""
    before = [(at, lines[name]) for at, name in enumerate(call.arguments) if name in lines]
    return tuple([(at, line) for at, line in before if line.makers])


def possible_ends(grouping: Grouping, line: Line) -> list[int]:
    """Nodes and groups that could be the line, in execution order; spares most attempts to match.

    They are sought from what must feed them: of that there is less.
    """
    nodes = grouping.graph.nodes
    found: set[int] = set()
    for call, needs in zip(line.calls, line.needs, strict=True):
        if not needs:
            found.update(grouping.anchors(call.operators))
            continue
        _, before = needs[0]
        made = [
            name
            for maker in grouping.anchors(before.makers)
            if _fits_inside(grouping, before, maker)
            for name in nodes[maker].node.outputs
        ]
        found.update(
            [
                reader
                for name in made
                for reader in grouping.readers(name)
                if len(nodes[reader].call.constants) >= call.constants
                and grouping.kind(reader) in call.operators
            ]
        )
    return sorted(found)


def _may_be(grouping: Grouping, line: Line, maker: int) -> bool:
    """Whether the node or group could make what the line stands for."""
    return grouping.kind(maker) in line.makers and _fits_inside(grouping, line, maker)


def _fits_inside(grouping: Grouping, line: Line, maker: int) -> bool:
    """Whether what makes its first argument could, where that is known of the line."""
    if not line.inner or maker in grouping.groups:
        return True
    graph = grouping.graph
    first = graph.nodes[maker].node.inputs[0]
    before = graph.producer.get(graph.source.get(first, first))
    return before is not None and grouping.kind(before) in line.inner


def _call(text: str) -> Call:
    found = _CALL.match(text.strip())
    if found is None:
        raise ValueError(f"not a call of a drawing: {text!r}")
    operators, written = found.groups()
    arguments = tuple(filter(None, map(str.strip, written.split(","))))
    constants = [argument for argument in arguments if argument.startswith("#")]
    return Call(frozenset(operators.split("/")), arguments, len(constants))


class Match:
    """One attempt to find a drawing; `bound` maps its names to tensors, `nodes` are those used."""

    __slots__ = ("_trail", "bound", "drawing", "forbidden", "grouping", "nodes", "optional")

    def __init__(self, grouping: Grouping, drawing: Drawing, forbidden: frozenset[int]) -> None:
        self.grouping = grouping
        self.drawing = drawing
        self.forbidden = forbidden
        self.bound: dict[str, str] = {}
        self.nodes: list[int] = []
        self.optional: set[int] = set()
        self._trail: list[str] = []

    def ends_at(self, entry: str, index: int) -> bool:
        """Whether the drawing, ended at line `entry`, fits with this node as its last."""
        self._bind(entry, self.grouping.output(index))
        return self._calls(self.drawing.lines[entry], index)

    def _bind(self, name: str, tensor: str) -> None:
        self.bound[name] = tensor
        self._trail.append(name)

    def _undo(self, names: int, nodes: int) -> None:
        """Forget what was bound and used after the first so many."""
        trail, bound = self._trail, self.bound
        while len(trail) > names:
            del bound[trail.pop()]
        del self.nodes[nodes:]

    def _name(self, name: str, tensor: str) -> bool:
        """Whether the name can stand for the tensor."""
        known = self.bound.get(name)
        if known is not None:
            return known == tensor
        line = self.drawing.lines.get(name)
        if line is None:
            self._bind(name, tensor)
            return True
        index = self.grouping.graph.producer.get(tensor, -1)
        # most optional lines are not there: the operator tells it before anything is bound
        if index >= 0 and self.grouping.kind(index) in line.kinds and index not in self.forbidden:
            names, nodes = len(self._trail), len(self.nodes)
            self._bind(name, tensor)
            if self._calls(line, index):
                if line.otherwise:
                    self.optional.update(self.nodes[nodes:])
                return True
            self._undo(names, nodes)
        if not line.otherwise or not self._name(line.otherwise, tensor):
            return False
        self._bind(name, tensor)
        return True

    def _calls(self, line: Line, index: int) -> bool:
        """Whether one of the line's alternatives fits the node or group."""
        grouping = self.grouping
        group = grouping.groups.get(index)
        if group is None:
            kind, members = grouping.graph.nodes[index].node.kind, [index]
        elif group.closed or group.last != index:
            return False
        else:
            kind, members = group.kind, group.nodes
        for call, needs in zip(line.calls, line.needs, strict=True):
            if kind in call.operators and self._arguments(call, needs, index, kind):
                self.nodes.extend(members)
                return True
        return False

    def _arguments(self, call: Call, needs: Needs, index: int, kind: str) -> bool:
        given = self._given(index)
        wanted = call.arguments
        if len(given) < len(wanted):
            return False
        grouping, producer = self.grouping, self.grouping.graph.producer
        swaps = kind in COMMUTATIVE and len(wanted) == 2 and len(given) == 2
        for order in (given, given[::-1]) if swaps else (given,):
            for at, before in needs:
                maker = producer.get(order[at][1])
                if maker is None or not _may_be(grouping, before, maker):
                    break
            else:
                if self._in_order(wanted, order, index):
                    return True
        return False

    def _in_order(self, wanted: tuple[str, ...], given: list[tuple[int, str]], index: int) -> bool:
        """Whether each wanted argument can stand for the one given; nothing is bound where not."""
        names, nodes = len(self._trail), len(self.nodes)
        for sought, found in zip(wanted, given, strict=False):
            if not self._argument(sought, found, index):
                self._undo(names, nodes)
                return False
        return True

    def _given(self, index: int) -> list[tuple[int, str]]:
        """Arguments of the node (position, tensor), or those of a group's drawing (−1, tensor)."""
        graph = self.grouping.graph
        group = self.grouping.groups.get(index)
        if group is not None and group.inputs:
            return [(-1, tensor) for tensor in group.inputs]
        names = graph.nodes[index].node.inputs
        return [(at, graph.shown_by(name)) for at, name in enumerate(names) if name]

    def _argument(self, wanted: str, given: tuple[int, str], index: int) -> bool:
        position, tensor = given
        info = None
        if position >= 0:
            info = self.grouping.graph.nodes[index].call.inputs[position]
        is_constant = info is not None and info.constant
        if wanted[0] != "#":
            return not is_constant and self._name(wanted, tensor)
        if not is_constant:
            return False
        return len(wanted) == 1 or _is_value(self.grouping.graph.value(tensor), float(wanted[1:]))


def _is_value(value: Value | None, expected: float) -> bool:
    """Whether every element is the expected one, to the accuracy of half precision."""
    if value is None:
        return False
    flat = value.ravel().tolist()
    return bool(flat) and all(math.isclose(item, expected, rel_tol=2e-3) for item in flat)
