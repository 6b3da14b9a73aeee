"""An anchor and what joins its kernel: steps after it, in order, and steps before it.

From the anchor a chain follows edges with a single consumer. Each step names the operators that
may stand there and a condition; a repeated step may occur several times, every step may be absent.
A candidate that looks right and must not join keeps its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.fusion.groups import Group

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.groups import Grouping
    from onnxroof.ops.call import TensorInfo

FITS = None
"""A condition's answer when the candidate may join."""
NO_CANDIDATE = ""
"""A condition's answer when the node is something else altogether: nothing to report."""


@dataclass(slots=True)
class Edge:
    """A tensor between the growing group and a candidate; what conditions look at.

    Never changed; not frozen, because that would take most of the time of a plan.
    """

    grouping: Grouping
    anchor: NodeCost
    tensor: str
    candidate: NodeCost

    def other(self) -> TensorInfo | None:
        """The candidate's other operand, for a binary operator."""
        infos = self.candidate.call.inputs
        if len(infos) != 2:
            return None
        source = self.grouping.graph.source
        first = self.candidate.node.inputs[0]
        return infos[1] if source.get(first, first) == self.tensor else infos[0]

    def info(self) -> TensorInfo | None:
        """What is known of the tensor."""
        return self.grouping.graph.info(self.tensor)


Condition = "Callable[[Edge], str | None]"


@dataclass(frozen=True, slots=True)
class Step:
    """What may join.

    Attributes:
        what: In words, for messages.
        kinds: Operators and composite kinds that may stand here.
        check: Returns `FITS`, a reason, or `NO_CANDIDATE`.
        folds: It vanishes into the anchor's weights and does not run.
        repeats: Whether it may occur several times.
        notable: Whether a failure is worth reporting.
    """

    what: str
    kinds: frozenset[str]
    check: Callable[[Edge], str | None] | None = None
    folds: bool = False
    repeats: bool = False
    notable: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """A rule that grows a kernel around an anchor.

    Attributes:
        name: The rule's name.
        anchors: Operators and composite kinds it starts from.
        then: Steps after the anchor, in order.
        why: What makes one kernel of it right.
        before: Steps that may make the anchor's inputs, nearest first.
        kind: What the grown group is to later rules; "" for the anchor's own kind.
        open_after: Whether later rules may absorb the group.
        through_views: Whether a change of shape between two steps does no harm.
    """

    name: str
    anchors: frozenset[str]
    then: tuple[Step, ...]
    why: str
    before: tuple[Step, ...] = ()
    kind: str = ""
    open_after: bool = False
    through_views: bool = False

    def apply(self, grouping: Grouping) -> None:
        """Grow every anchor forward, then backward; last ones first.

        The branch that ends last takes a shared addition; what could fold into the convolution
        before it or the one after it folds into the one before.
        """
        anchors = grouping.anchors(self.anchors)
        if not anchors:
            return
        after, before = _kinds(self.then), _kinds(self.before)
        grown: dict[int, Group] = {}
        for index in reversed(anchors):
            if _may_grow(grouping, index) and self._is_followed(grouping, index, after):
                grown[index] = group = self._start(grouping, index)
                size = len(group.nodes)
                self._forward(grouping, group)
                self._keep(grouping, group, size)
        if not grouping.has_any(before):
            return
        for index in reversed(anchors):
            if index not in grown:
                if not _may_grow(grouping, index) or not _is_preceded(grouping, index, before):
                    continue
                grown[index] = self._start(grouping, index)
            group = grown[index]
            size = len(group.nodes)
            self._backward(grouping, group)
            self._keep(grouping, group, size)

    def _is_followed(self, grouping: Grouping, index: int, kinds: frozenset[str]) -> bool:
        """Whether what reads the anchor's result could join, or a reason not to could be kept."""
        if grouping.explain:
            return bool(self.then)
        reader = grouping.only_reader(grouping.graph.nodes[index].node.outputs[0])
        return reader >= 0 and grouping.kind(reader) in kinds

    def _start(self, grouping: Grouping, index: int) -> Group:
        """The anchor with what it has grouped already."""
        group = Group(
            list(grouping.members(index)), self.kind or grouping.kind(index), self.name, index
        )
        known = grouping.groups.get(index)
        if known is None:
            group.anchor = index
        else:
            group.anchor, group.folded, group.note = known.anchor, known.folded, known.note
            group.inputs = known.inputs
        return group

    def _keep(self, grouping: Grouping, group: Group, size: int) -> None:
        """Register the group if it grew beyond `size` nodes."""
        if len(group.nodes) > size:
            group.closed = not self.open_after
            grouping.add(group)

    def _forward(self, grouping: Grouping, group: Group) -> None:
        position, steps, nodes = 0, self.then, grouping.graph.nodes
        anchor = nodes[group.anchor]
        while position < len(steps):
            tensor = nodes[group.last].node.outputs[0]
            reader = grouping.only_reader(tensor)
            if reader < 0 or not grouping.is_open(reader):
                break
            edge = Edge(grouping, anchor, tensor, nodes[reader])
            found = self._step(edge, reader, position)
            if found < 0:
                break
            step = steps[found]
            _absorb(grouping, group, reader, step)
            group.last = grouping.last(reader)
            position = found if step.repeats else found + 1
        if grouping.explain:
            self._explain(grouping, group, position)

    def _step(self, edge: Edge, reader: int, position: int) -> int:
        """Position of the step the reader takes, or −1."""
        kind = edge.grouping.kind(reader)
        for found in range(position, len(self.then)):
            step = self.then[found]
            if (
                kind in step.kinds
                and (step.check is None or step.check(edge) is FITS)
                and (self.through_views or not crosses_view(edge.grouping, edge.tensor, reader))
            ):
                return found
        return -1

    def _backward(self, grouping: Grouping, group: Group) -> None:
        """Absorb what makes the anchor's inputs, as long as nobody else reads it."""
        graph = grouping.graph
        anchor = grouping.node(group.anchor)
        names = group.inputs or anchor.node.inputs
        pending = [graph.source.get(name, name) for name in names if name]
        inside = set(group.nodes)
        used: set[str] = set()
        while pending:
            tensor = pending.pop()
            maker = graph.producer.get(tensor)
            if maker is None or maker in inside or grouping.last(maker) != maker:
                continue
            step = self._before(grouping, anchor, tensor, maker)
            if step is None or step.what in used:
                continue
            shared = tensor in graph.exits or not inside.issuperset(graph.readers[tensor])
            if shared:
                if step.notable:
                    grouping.miss((maker, group.anchor), self.name, grouping.why_shared(tensor))
                continue
            _absorb(grouping, group, maker, step)
            if not step.repeats:
                used.add(step.what)
            inside.update(grouping.members(maker))
            names = grouping.node(maker).node.inputs
            pending.extend([graph.source.get(name, name) for name in names if name])

    def _before(self, grouping: Grouping, anchor: NodeCost, tensor: str, maker: int) -> Step | None:
        kind = grouping.kind(maker)
        for step in self.before:
            if kind not in step.kinds or not grouping.is_open(maker):
                continue
            edge = Edge(grouping, anchor, tensor, grouping.node(maker))
            answer = FITS if step.check is None else step.check(edge)
            if answer is FITS:
                return step
            if answer and step.notable:
                grouping.miss((maker, anchor.node.index), self.name, answer)
        return None

    def _explain(self, grouping: Grouping, group: Group, position: int) -> None:
        """Keep the reason if a notable candidate follows that did not join."""
        tensor = grouping.node(group.last).node.outputs[0]
        for reader in grouping.graph.readers.get(tensor, ()):
            kind = grouping.kind(reader)
            for at, step in enumerate(self.then):
                if step.notable and kind in step.kinds:
                    reason = self._reason(grouping, group, reader, (at, position))
                    if reason:
                        grouping.miss((*group.nodes, reader), self.name, reason)
                    return

    def _reason(
        self, grouping: Grouping, group: Group, reader: int, places: tuple[int, int]
    ) -> str:
        at, position = places
        step = self.then[at]
        tensor = grouping.node(group.last).node.outputs[0]
        edge = Edge(grouping, grouping.node(group.anchor), tensor, grouping.node(reader))
        answer = step.check(edge) if step.check is not None else FITS
        if answer is not FITS:
            return answer
        if grouping.only_reader(tensor) < 0:
            return grouping.why_shared(tensor)
        if at < position:
            between = grouping.node(group.last).op_type
            return f"{between} in between: {step.what} cannot fold through it"
        if crosses_view(grouping, tensor, reader):
            return "a change of shape in between"
        return ""


def _kinds(steps: tuple[Step, ...]) -> frozenset[str]:
    """What any of the steps may be."""
    return frozenset().union(*[step.kinds for step in steps])


def _may_grow(grouping: Grouping, index: int) -> bool:
    """Whether the anchor is alone, or the last node of an open group."""
    group = grouping.groups.get(index)
    return group is None or (not group.closed and group.last == index)


def _is_preceded(grouping: Grouping, index: int, kinds: frozenset[str]) -> bool:
    """Whether something of these kinds makes an input of the anchor."""
    graph, group = grouping.graph, grouping.groups.get(index)
    anchor = index if group is None else group.anchor
    for name in (group and group.inputs) or graph.nodes[anchor].node.inputs:
        maker = graph.producer.get(graph.source.get(name, name))
        if maker is not None and grouping.kind(maker) in kinds:
            return True
    return False


def crosses_view(grouping: Grouping, tensor: str, reader: int) -> bool:
    """Whether the reader sees the tensor under another shape."""
    graph = grouping.graph
    if not graph.is_viewed(tensor):
        return False
    for index in grouping.members(reader):
        cost_node = graph.nodes[index]
        for position, name in enumerate(cost_node.node.inputs):
            if name == tensor:
                break
            if graph.source.get(name) == tensor and name not in graph.permuted:
                known, seen = graph.info(tensor), cost_node.call.inputs[position]
                return known is None or seen is None or known.shape != seen.shape
    return False


def _absorb(grouping: Grouping, group: Group, index: int, step: Step) -> None:
    absorbed = grouping.groups.get(index)
    members = [index] if absorbed is None else absorbed.nodes
    group.nodes.extend(members)
    if step.folds:
        group.folded.add(index)
