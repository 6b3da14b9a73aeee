"""Cutting a graph where a single tensor is alive, so that equal pieces are planned once.

Networks repeat: a search space stacks one cell many times, and its candidates share cells. Where
one tensor alone connects what ran with what is to come, no kernel reaches across if at least two
kernels read the tensor (a kernel keeps a tensor inside only when all who read it are inside too),
or if all who read it begin a kernel in every runtime. Where a runtime's kernels store what they
also pass on, only the latter holds. Pieces between such places are planned one
by one, with the same kernels as the whole; a `Pricer` keeps what it found by their signatures. A
graph that cannot be cut is one piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from onnxroof.cost import GraphCost, NodeCost
from onnxroof.fusion.plan import plan_kernels
from onnxroof.fusion.rules import all_rules
from onnxroof.fusion.runtimes import find_runtime
from onnxroof.latency.predict import Predictor
from onnxroof.roofline import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.fusion.plan import Kernel, KernelPlan
    from onnxroof.hardware.profile import HardwareProfile, PeakKind
    from onnxroof.latency.runtime import RuntimeProfile
    from onnxroof.latency.times import KernelLatency
    from onnxroof.ops.call import OpCall
    from onnxroof.roofline import KernelTime
    from onnxroof.shapes import ShapedGraph

MOST_PIECES = 100_000
"""Signatures a pricer keeps before it starts afresh, so that a long search does not fill memory."""

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
    """Nodes from `start` up to `stop` that read one tensor made before, and end in `outputs`.

    `entry` is −1 for the first piece, which reads the graph's own inputs.
    """

    start: int
    stop: int
    entry: int
    outputs: tuple[int, ...]

    @property
    def entry_name(self) -> str:
        """What the tensor it starts from is called in a graph of pieces."""
        return f"\x00{self.entry}"


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
        self._roofs = Device(hardware, peak)
        self._predictor = Predictor(hardware, runtime)
        rules = all_rules()
        self._stores = any(
            getattr(rules[name], "stores", False) for name in find_runtime(runtime.fusion).rules
        )
        self._prices: dict[tuple[object, ...], Price] = {}

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
        prices = self._prices
        missing = {
            signature: piece
            for signature, piece in zip(signatures, pieces, strict=True)
            if signature not in prices
        }
        if missing:
            if len(prices) >= MOST_PIECES:
                prices.clear()
                return self._look_up(line, pieces)
            new = tuple(missing.values())
            prices.update(zip(missing, self._planned(line.costed(new), new), strict=True))
        return [prices[signature] for signature in signatures]

    def _planned(self, cost: GraphCost, pieces: Sequence[Piece]) -> list[Price]:
        plan = plan_kernels(cost, self.runtime.fusion)
        bounds = list(map(self._roofs.time, plan.kernels))
        times: list[KernelTime] | list[KernelLatency] = bounds
        if self.runtime.has_times:
            expected = self._predictor.kernel
            times = [
                expected(kernel, plan, bound)
                for kernel, bound in zip(plan.kernels, bounds, strict=True)
            ]
        found: list[Price] = []
        first = 0
        for piece in pieces:
            last = first + piece.stop - piece.start
            kernels = [kernel for kernel in plan.kernels if first <= kernel.anchor < last]
            found.append(
                Price(
                    tuple([times[kernel.index].seconds for kernel in kernels]),
                    tuple([bounds[kernel.index].seconds for kernel in kernels]),
                    sum([_traffic(kernel) for kernel in kernels]),
                    piece.entry < 0 or self._is_separable(plan, kernels, piece.entry_name),
                )
            )
            first = last
        return found

    def _may_separate(self, line: Line, start: int, entry: int) -> bool:
        """A quick look before a piece is planned: who reads its input."""
        readers = {
            line.calls[at].op_type
            for at in range(start, line.last_uses[entry] + 1)
            if entry in line.reads[at]
        }
        if readers <= STARTERS:
            return line.calls[start - 1].op_type not in JOINED
        if self._stores or not REACHING.isdisjoint(readers):
            return False
        count = sum([entry in reads for reads in line.reads[start : line.last_uses[entry] + 1]])
        return count > 1

    def _is_separable(self, plan: KernelPlan, kernels: Sequence[Kernel], entry: str) -> bool:
        """Whether at least two kernels read the piece's input, or starters alone."""
        names = {entry, *[view for view, source in plan.views.items() if source == entry]}
        nodes = plan.cost.nodes
        readers: list[set[str]] = []
        for kernel in kernels:
            reading = [at for at in kernel.nodes if not names.isdisjoint(nodes[at].node.inputs)]
            if reading:
                readers.append({nodes[at].op_type for at in reading})
        operators = set(chain.from_iterable(readers))
        if operators <= STARTERS:
            return bool(readers)
        return len(readers) > 1 and not self._stores and REACHING.isdisjoint(operators)


def _pieces(line: Line, starts: Sequence[tuple[int, int]]) -> list[Piece]:
    """From each start to the next one, in order."""
    pieces: list[Piece] = []
    stop, outputs = len(line.keys), tuple(line.outputs)
    for start, entry in reversed(starts):
        pieces.append(Piece(start, stop, entry, outputs))
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
    return GraphCost(shaped, tuple(nodes), (), {})


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
        if alive == 1 and numbers >= first and calls[at].op_type in ENDS:
            pieces.append((at + 1, numbers))
    return pieces


def stands_alone(call: OpCall) -> bool:
    """Whether a node computes at run time, without bodies, and is followed by no runtime."""
    if call.op_type in BARS or call.folded or call.bodies or call.needs_attention:
        return False
    return not any(info.constant for info in call.outputs)


def _signature(line: Line, piece: Piece) -> tuple[object, ...]:
    """What the plan of some nodes depends on: what they are and how they are connected."""
    start, stop, entry = piece.start, piece.stop, piece.entry
    keys, reads, firsts = line.keys, line.reads, line.first_outputs
    base = firsts[start] if start < stop else 0
    parts: list[object] = [entry < 0]
    for at in range(start, stop):
        parts.append(keys[at])
        parts.append(firsts[at] - base)
        parts.extend([None if number == entry else number - base for number in reads[at]])
    parts.extend([number - base for number in piece.outputs])
    return tuple(parts)
