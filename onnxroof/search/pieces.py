"""Cutting a graph where a single tensor is alive, so that equal pieces are planned once.

Networks repeat: a search space stacks one cell many times, and its candidates share cells. Where
one tensor alone connects what ran with what is to come, no kernel reaches across if at least two
kernels read the tensor (a kernel keeps a tensor inside only when all who read it are inside too),
or if all who read it begin a kernel in every runtime. Where a runtime's kernels store what they
also pass on, only the latter holds. Pieces between such places are planned one
by one, with the same kernels as the whole; a `Pricer` keeps what it found by their signatures. A
graph that cannot be cut is one piece.

A piece that is new falls into parts where it branches: cells of a search space differ in how they
are put together, hardly in what they are put together of. Parts meet in tensors that several nodes
read, under the same condition: at least two kernels must read them, in whatever parts these are.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from onnxroof.cost import GraphCost, NodeCost
from onnxroof.cost.quantized import begins_quantized
from onnxroof.fusion.plan import plan_kernels
from onnxroof.fusion.rules import all_rules
from onnxroof.fusion.runtimes import find_runtime
from onnxroof.latency.predict import Predictor

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from onnxroof.fusion.plan import Kernel, KernelPlan
    from onnxroof.hardware.profile import HardwareProfile, PeakKind
    from onnxroof.latency.runtime import RuntimeProfile
    from onnxroof.latency.times import KernelLatency
    from onnxroof.ops.call import OpCall
    from onnxroof.roofline import KernelTime
    from onnxroof.shapes import ShapedGraph

V = TypeVar("V")

MOST_PIECES = 100_000
"""Signatures of pieces, and of parts, that a pricer keeps before it starts afresh."""

ENDS = frozenset({
    "Add", "Sub", "Mul", "Div", "Sum", "Relu", "LeakyRelu", "PRelu", "Clip", "HardSwish", "Gelu",
    "Sigmoid", "HardSigmoid", "Tanh", "Elu", "Conv", "ConvTranspose", "Gemm", "MatMul",
    "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
    "Softmax", "AveragePool", "MaxPool", "GlobalAveragePool", "Concat",
})  # fmt: skip
"""Operators whose result may end a piece: computed work, never a view or a changed layout."""

STARTERS = frozenset({"Conv"})
"""Operators that join no kernel begun before them, except behind one of `JOINED`."""

JOINED = frozenset({"Pad", "BatchNormalization"})
"""What a starter may take into its own kernel from before it."""

REACHING = frozenset({
    "Concat", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
})  # fmt: skip
"""Readers that may take the work before them into their kernel though others read its result."""

BRANCHING = frozenset({
    "Conv", "BatchNormalization", "Relu", "LeakyRelu", "Clip", "Add", "AveragePool", "MaxPool",
    "GlobalAveragePool",
})  # fmt: skip
"""Operators at whose result a piece may fall into parts.

All are `ENDS`, and no drawing of a composite has the result of one inside that several of its lines
read: only then could a kernel reach across a tensor with several readers.
"""

DIVISIBLE = BRANCHING | {"Flatten", "Gemm"}
"""Operators of which a piece must consist to fall into parts."""

POOLS = frozenset({"AveragePool", "MaxPool", "GlobalAveragePool"})
NO_FOLLOWERS = POOLS | {"Add"}
"""Operators that run in no kernel with a pool whose result they read."""

BARS = frozenset({
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Transpose", "Loop", "If",
    "Scan",
})  # fmt: skip
"""Operators that runtimes follow through the whole graph: with one, the graph is one piece."""


class Line(Protocol):
    """A sized graph as a line of nodes; tensors are numbered in the order they come to be.

    Attributes:
        keys: What each node is, hashable; equal nodes have equal keys.
        calls: Their sized calls.
        reads: Numbers of the tensors each node reads; constants of its own are left out.
        first_outputs: Number of each node's first output; its others follow.
        last_uses: Last node that reads each tensor; the one that makes it if nobody does.
        inputs: Numbers of the graph's run-time inputs.
        outputs: Numbers of its outputs.
    """

    keys: list[object]
    calls: list[OpCall]
    reads: list[tuple[int, ...]]
    first_outputs: list[int]
    last_uses: list[int]
    inputs: list[int]
    outputs: list[int]

    def costed(self, pieces: Sequence[Piece]) -> GraphCost:
        """Pieces as one counted graph, side by side, their inputs named by `entry_name`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some nodes of a line, planned apart from the others.

    Attributes:
        nodes: Which, in order.
        entries: Numbers of the tensors they read that were made before.
        outputs: Numbers of the tensors that are read elsewhere.
    """

    nodes: Sequence[int]
    entries: tuple[int, ...]
    outputs: tuple[int, ...]


def entry_name(piece: int, entry: int) -> str:
    """What a tensor that a piece starts from is called in a graph of pieces."""
    return f"\x00{piece}.{entry}"


@dataclass(frozen=True, slots=True)
class Price:
    """What the kernels of a piece, or of a chain of pieces, cost.

    Attributes:
        kernel_seconds: Expected time of each in launch order.
        bound_seconds: Lower bound on the time of each.
        traffic_bytes: What they move.
        separable: Whether no kernel before it reaches into it.
    """

    kernel_seconds: tuple[float, ...]
    bound_seconds: tuple[float, ...]
    traffic_bytes: int
    separable: bool

    @property
    def latency_seconds(self) -> float:
        """Sum of the kernels' times, in launch order."""
        return sum(self.kernel_seconds)


@dataclass(frozen=True, slots=True)
class Planned:
    """What the kernels of a piece, or of a part of one, cost.

    Attributes:
        last_nodes: Which of its nodes ends each kernel; in launch order.
        kernel_seconds: Expected time of each kernel.
        bound_seconds: Lower bound on the time of each.
        traffic_bytes: What they move.
        readers: Per entry the kernels that read it, and their operators that do.
    """

    last_nodes: tuple[int, ...]
    kernel_seconds: tuple[float, ...]
    bound_seconds: tuple[float, ...]
    traffic_bytes: int
    readers: tuple[tuple[int, frozenset[str]], ...]


class Pricer:
    """Prices lines on one device and keeps the prices of pieces by signature.

    Args:
        hardware: The device.
        runtime: Whose fusions, algorithms and overheads to expect.
        peak: "vendor" or "sustained".
    """

    def __init__(self, hardware: HardwareProfile, runtime: RuntimeProfile, peak: PeakKind) -> None:
        self.hardware = hardware
        self.runtime = runtime
        self.peak = peak
        self._predictor = Predictor(hardware, runtime, peak)
        rules = all_rules()
        self._stores = any(
            getattr(rules[name], "stores", False) for name in find_runtime(runtime.fusion).rules
        )
        self._prices: dict[tuple[object, ...], Price] = {}
        self._plans: dict[tuple[object, ...], Planned] = {}

    def price(self, line: Line) -> Price:
        """The price of a whole graph."""
        starts = [
            (start, entry)
            for start, entry in cuts(line)
            if not start or self._may_separate(line, start, entry)
        ]
        while True:
            pieces = _pieces(line, starts)
            prices = self._look_up(line, pieces)
            kept = [at for at, price in zip(starts, prices, strict=True) if price.separable]
            if len(kept) == len(starts):
                return prices[0] if len(prices) == 1 else _joined(prices)
            starts = kept

    def _look_up(self, line: Line, pieces: Sequence[Piece]) -> list[Price]:
        """The price of each piece; what is new is planned in one go."""
        signatures = [_signature(line, piece) for piece in pieces]
        return _known(self._prices, signatures, pieces, lambda new: self._priced(line, new))

    def _priced(self, line: Line, pieces: Sequence[Piece]) -> list[Price]:
        """The prices of new pieces, each by its parts."""
        split = [[piece] if self._stores else parts(line, piece, ()) for piece in pieces]
        plans = iter(self._plan(line, list(chain.from_iterable(split))))
        return [
            self._composed(line, piece, found, list(islice(plans, len(found))))
            for piece, found in zip(pieces, split, strict=True)
        ]

    def _plan(self, line: Line, found: Sequence[Piece]) -> list[Planned]:
        """The plan of each part; what is new is planned in one go."""
        signatures = [_part_signature(line, part) for part in found]
        return _known(
            self._plans, signatures, found, lambda new: self._planned(line.costed(new), new)
        )

    def _composed(
        self, line: Line, piece: Piece, found: list[Piece], plans: list[Planned]
    ) -> Price:
        """The price of a piece from its parts; those that a kernel may reach across become one."""
        joined: set[int] = set()
        pooled = {line.first_outputs[at] for at in piece.nodes if line.calls[at].kind in POOLS}
        while True:
            readers: dict[int, int] = {}
            operators: dict[int, frozenset[str]] = {}
            for part, plan in zip(found, plans, strict=True):
                for entry, (count, reading) in zip(part.entries, plan.readers, strict=True):
                    readers[entry] = readers.get(entry, 0) + count
                    operators[entry] = operators.get(entry, frozenset()) | reading
            crossed = {
                tensor
                for part in found
                for tensor in part.outputs
                if tensor in readers
                and readers[tensor] + (tensor in piece.outputs) < 2
                and not operators[tensor] <= STARTERS
                and not (tensor in pooled and operators[tensor] <= NO_FOLLOWERS)
            }
            if not crossed:
                break
            joined |= crossed
            found = parts(line, piece, joined)
            plans = self._plan(line, found)
        kernels = [
            (part.nodes[last], seconds, bound)
            for part, plan in zip(found, plans, strict=True)
            for last, seconds, bound in zip(
                plan.last_nodes, plan.kernel_seconds, plan.bound_seconds, strict=True
            )
        ]
        if len(found) > 1:
            kernels.sort()
        return Price(
            tuple([seconds for _, seconds, _ in kernels]),
            tuple([bound for _, _, bound in kernels]),
            sum([plan.traffic_bytes for plan in plans]),
            not piece.nodes
            or piece.nodes[0] == 0
            or all(
                self._is_separable(readers.get(entry, 0), operators.get(entry, frozenset()))
                for entry in piece.entries
            ),
        )

    def _planned(self, cost: GraphCost, pieces: Sequence[Piece]) -> list[Planned]:
        plan = plan_kernels(cost, self.runtime.fusion)
        device = self._predictor.device
        bounds = [device.time(kernel, {}) for kernel in plan.kernels]
        times: list[KernelTime] | list[KernelLatency] = bounds
        if self.runtime.has_times:
            expected = self._predictor.kernel
            times = [
                expected(kernel, plan, bound)
                for kernel, bound in zip(plan.kernels, bounds, strict=True)
            ]
        firsts = list(accumulate([len(piece.nodes) for piece in pieces], initial=0))
        kernels: list[list[Kernel]] = [[] for _ in pieces]
        for kernel in plan.kernels:
            kernels[bisect_right(firsts, kernel.anchor) - 1].append(kernel)
        return [
            Planned(
                tuple([kernel.nodes[-1] - first for kernel in own]),
                tuple([times[kernel.index].seconds for kernel in own]),
                tuple([bounds[kernel.index].seconds for kernel in own]),
                sum([_traffic(kernel) for kernel in own]),
                tuple([_readers(plan, own, entry_name(at, entry)) for entry in piece.entries]),
            )
            for at, (first, piece, own) in enumerate(zip(firsts, pieces, kernels, strict=False))
        ]

    def _may_separate(self, line: Line, start: int, entry: int) -> bool:
        """A quick look before a piece is planned: who reads its input."""
        readers = {
            line.calls[at].kind
            for at in range(start, line.last_uses[entry] + 1)
            if entry in line.reads[at]
        }
        if readers <= STARTERS:
            return line.calls[start - 1].kind not in JOINED
        if self._stores or not REACHING.isdisjoint(readers):
            return False
        count = sum([entry in reads for reads in line.reads[start : line.last_uses[entry] + 1]])
        return count > 1

    def _is_separable(self, readers: int, operators: frozenset[str]) -> bool:
        """Whether at least two kernels read a piece's input, or starters alone."""
        if operators <= STARTERS:
            return bool(readers)
        return readers > 1 and not self._stores and REACHING.isdisjoint(operators)


def _known(
    table: dict[tuple[object, ...], V],
    signatures: Sequence[tuple[object, ...]],
    pieces: Sequence[Piece],
    make: Callable[[Sequence[Piece]], list[V]],
) -> list[V]:
    """What a table has for each piece; what it lacks is made in one go and kept.

    Another thread may empty the table at any time.
    """
    found = {signature: table.get(signature) for signature in signatures}
    missing = {
        signature: piece
        for signature, piece in zip(signatures, pieces, strict=True)
        if found[signature] is None
    }
    if missing:
        if len(table) >= MOST_PIECES:
            table.clear()
        made = dict(zip(missing, make(list(missing.values())), strict=True))
        table.update(made)
        found.update(made)
    return [found[signature] for signature in signatures]  # type: ignore[misc]


def _readers(plan: KernelPlan, kernels: Sequence[Kernel], entry: str) -> tuple[int, frozenset[str]]:
    """How many of the kernels read the tensor or a view of it, and which operators of theirs do."""
    names = {entry, *[view for view, source in plan.views.items() if source == entry]}
    nodes = plan.cost.nodes
    count = 0
    operators: set[str] = set()
    for kernel in kernels:
        reading = [at for at in kernel.nodes if not names.isdisjoint(nodes[at].node.inputs)]
        count += bool(reading)
        operators.update([nodes[at].kind for at in reading])
    return count, frozenset(operators)


def parts(line: Line, piece: Piece, joined: Container[int]) -> list[Piece]:
    """What a piece falls into at tensors that several nodes read, or that begin kernels.

    Args:
        line: What it is a piece of.
        piece: Nodes that follow each other.
        joined: Tensors at which it must not be cut.
    """
    reads, firsts = line.reads, line.first_outputs
    calls = [line.calls[at] for at in piece.nodes]
    operators = {at: call.node.kind for at, call in zip(piece.nodes, calls, strict=True)}
    if not DIVISIBLE.issuperset(operators.values()) or any(map(_is_indivisible, calls)):
        return [piece]
    readers: dict[int, list[int]] = {firsts[at]: [] for at in piece.nodes}
    for at in piece.nodes:
        for number in set(reads[at]):
            if number in readers:
                readers[number].append(at)
    home = {at: at for at in piece.nodes}  # the first node of the part each node is in
    meeting: set[int] = set()
    for at in piece.nodes:
        made = firsts[at]
        found = readers[made]
        several = len(found) + (made in piece.outputs) > 1
        may_meet = operators[at] in BRANCHING and made not in joined
        if may_meet and (several or _is_between_kernels(operators, at, found)):
            meeting.add(made)
            continue
        for reader in found:
            one, other = _first(home, at), _first(home, reader)
            home[max(one, other)] = min(one, other)
    members: dict[int, list[int]] = {}
    for at in piece.nodes:
        members.setdefault(_first(home, at), []).append(at)
    if len(members) == 1:
        return [piece]
    ends = meeting.union(piece.outputs)
    known = readers.keys() | set(piece.entries)
    return [_part(line, nodes, known, ends) for nodes in members.values()]


def _is_indivisible(call: OpCall) -> bool:
    """Whether it has several outputs, or shows its input as it is: readers of both may be equal."""
    if call.output_count > 1:
        return True
    source = call.inputs[0] if call.node.kind == "Flatten" else None
    return source is not None and source.shape == call.outputs[0].shape


def _is_between_kernels(operators: Mapping[int, str], at: int, readers: Sequence[int]) -> bool:
    """Whether all that read what a node makes begin kernels of their own."""
    if not readers:
        return False
    kind, reading = operators[at], {operators[reader] for reader in readers}
    return (kind in POOLS and reading <= NO_FOLLOWERS) or (
        kind not in JOINED and reading <= STARTERS
    )


def _first(home: dict[int, int], at: int) -> int:
    """The first node of the part a node is in."""
    while home[at] != at:
        home[at] = at = home[home[at]]
    return at


def _part(line: Line, nodes: list[int], known: Container[int], ends: Container[int]) -> Piece:
    """Some nodes as a piece; of the tensors they read those `known` are made at run time."""
    made = [line.first_outputs[at] for at in nodes]
    own = set(made)
    read = dict.fromkeys(chain.from_iterable([line.reads[at] for at in nodes]))
    entries = tuple([number for number in read if number in known and number not in own])
    return Piece(nodes, entries, tuple([number for number in made if number in ends]))


def _pieces(line: Line, starts: Sequence[tuple[int, int]]) -> list[Piece]:
    """From each start to the next one, in order."""
    pieces: list[Piece] = []
    stop, outputs = len(line.keys), tuple(line.outputs)
    for start, entry in reversed(starts):
        entries = (entry,) if start else tuple(line.inputs)
        pieces.append(Piece(range(start, stop), entries, outputs))
        stop, outputs = start, (entry,)
    pieces.reverse()
    return pieces


def _traffic(kernel: Kernel) -> int:
    """Bytes it moves; unknown parts leave a lower bound."""
    return (kernel.input_bytes or 0) + (kernel.weight_bytes or 0) + (kernel.output_bytes or 0)


def costed(shaped: ShapedGraph) -> GraphCost:
    """Counted as its calls were when they stood alone; without weights."""
    nodes = [
        NodeCost(node, call, call.cost)
        for node, call in zip(shaped.graph.nodes, shaped.calls, strict=True)
        if call.cost is not None
    ]
    return GraphCost(shaped, tuple(nodes))


def _joined(prices: Sequence[Price]) -> Price:
    return Price(
        tuple(chain.from_iterable([price.kernel_seconds for price in prices])),
        tuple(chain.from_iterable([price.bound_seconds for price in prices])),
        sum([price.traffic_bytes for price in prices]),
        separable=True,
    )


def cuts(line: Line) -> list[tuple[int, int]]:
    """(first node, the one tensor it starts from) of every piece, in order.

    The first piece starts from what the graph is given. A cut lies behind a node after which one
    tensor is alive: the sum of the numbers alive is then its number.
    """
    pieces = [(0, -1)]
    last = len(line.keys) - 1
    if last < 0 or len(line.inputs) != 1 or len(line.outputs) != 1:
        return pieces
    closing, closed = [0] * (last + 1), [0] * (last + 1)
    firsts, last_uses, calls = line.first_outputs, line.last_uses, line.calls
    result, alive, numbers = line.outputs[0], 1, line.inputs[0]
    end = last if numbers == result else max(last_uses[numbers], 0)
    closing[end], closed[end] = 1, numbers
    for at in range(last):
        first = firsts[at]
        for number in range(first, first + calls[at].output_count):
            alive += 1
            numbers += number
            end = last if number == result else last_uses[number]
            closing[end] += 1
            closed[end] += number
        alive -= closing[at]
        numbers -= closed[at]
        if alive == 1 and numbers >= first and calls[at].kind in ENDS:
            pieces.append((at + 1, numbers))
    return pieces


def stands_alone(call: OpCall) -> bool:
    """Whether a node computes at run time, without bodies, and nobody follows its result."""
    if call.kind in BARS or call.folded or call.bodies or call.needs_attention:
        return False
    if begins_quantized(call):
        return False
    return not any(info.constant for info in call.outputs)


def _signature(line: Line, piece: Piece) -> tuple[object, ...]:
    """What the plan of some nodes depends on: what they are and how they are connected."""
    nodes = piece.nodes
    keys, reads, firsts = line.keys, line.reads, line.first_outputs
    base = firsts[nodes[0]] if nodes else 0
    entry = piece.entries[0] if nodes and nodes[0] else None
    said: list[object] = [entry is None]
    for at in nodes:
        said.append(keys[at])
        said.append(firsts[at] - base)
        said.extend([None if number == entry else number - base for number in reads[at]])
    said.extend([number - base for number in piece.outputs])
    return tuple(said)


def _part_signature(line: Line, part: Piece) -> tuple[object, ...]:
    """The same for nodes that need not follow each other: tensors in the order they are met."""
    keys, reads, firsts, calls = line.keys, line.reads, line.first_outputs, line.calls
    numbers = {entry: -2 - at for at, entry in enumerate(part.entries)}
    numbers[-1] = -1  # an absent input
    said: list[object] = []
    for at in part.nodes:
        said.append(keys[at])
        said.extend([numbers.setdefault(number, len(numbers)) for number in reads[at]])
        for number in range(firsts[at], firsts[at] + calls[at].output_count):
            numbers[number] = len(numbers)
    said.extend([numbers[number] for number in part.outputs])
    return tuple(said)
