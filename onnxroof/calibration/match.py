"""Measured entries ↔ kernels: by the names of nodes and tensors, then by operator and order.

Runtimes name what they run after the nodes that went into it: the node's own name, an output's
name ("/relu/Relu_output_0_nchwc"), a name with the fusion behind it ("MatMul_3/GeluFusion/"), names
joined ("conv1 + relu1", "a || b", "PWN(sigmoid, mul)") or a range ("{ForeignNode[first...last]}").
What one side fuses further than the other ends up in one group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onnxroof.calibration.traces import Entry
    from onnxroof.fusion.plan import KernelPlan

_ENDINGS = re.compile(
    r"(?:_nchwc|_nhwc|_quant|_token_\d+|_fused|/duplicated|/[A-Za-z]\w*(?:Fusion|Transformer)\w*/?"
    r"|\s*\[\w+\])$",
    re.IGNORECASE,
)
_BEGINNINGS = re.compile(r"^(?:fused[ _]|PWN|\{|\()")
_JOINTS = re.compile(r"\s*(?: \+ |\|\||\||\+|,|\(|\)|\{|\}|\[|\])\s*")
_RANGE = re.compile(r"\[(.+?)\.\.\.(.+?)\]")
_LONGEST_GAP = 2000
"""Entries and kernels between two that are matched; more are not matched by order."""

_SAME = {
    "FusedConv": "Conv", "NhwcConv": "Conv", "NhwcFusedConv": "Conv", "FusedMatMul": "MatMul",
    "FusedGemm": "Gemm", "SkipLayerNormalization": "LayerNormalization", "BiasGelu": "Gelu",
    "FastGelu": "Gelu", "QuickGelu": "Gelu", "BiasSoftmax": "Softmax",
}  # fmt: skip

_PARTS = {
    "HardSwish": ("HardSigmoid", "Mul"), "Mish": ("Softplus", "Tanh", "Mul"),
    "Swish": ("Sigmoid", "Mul"), "Gelu": ("Div", "Erf", "Add", "Mul", "Tanh"),
    "Celu": ("Div", "Elu", "Mul"),
}  # fmt: skip
"""Operators that runtimes without a kernel for them run as several, by the standard's function."""


@dataclass(frozen=True, slots=True)
class Group:
    """Entries and kernels that are the same work.

    Attributes:
        entries: Indices into the trace, in order.
        kernels: Indices into the plan, in order.
        by_order: A link rests on operator and order only, not on a name.
    """

    entries: tuple[int, ...]
    kernels: tuple[int, ...]
    by_order: bool


@dataclass(frozen=True, slots=True)
class Matching:
    """What belongs together, and what was left over on either side.

    Attributes:
        groups: In order of their first kernel.
        unmatched: (index of an entry, why it belongs to no kernel).
        unmeasured: Indices of kernels without an entry.
    """

    groups: tuple[Group, ...]
    unmatched: tuple[tuple[int, str], ...]
    unmeasured: tuple[int, ...]


def match(entries: Sequence[Entry], plan: KernelPlan) -> Matching:
    """Match a trace to a plan."""
    names = _Names(plan)
    links: dict[int, set[int]] = {}
    reasons: dict[int, str] = {}
    for place, entry in enumerate(entries):
        nodes = names.nodes_of(entry.name)
        kernels = {names.kernel_of[node] for node in nodes if node in names.kernel_of}
        if kernels:
            links[place] = kernels
        else:
            reasons[place] = names.reason(nodes)
    ordered = dict(_by_order(entries, plan, links, reasons))
    links.update({place: {kernel} for place, kernel in ordered.items()})
    groups = tuple(_groups(links, ordered))
    measured = {kernel for group in groups for kernel in group.kernels}
    return Matching(
        groups=groups,
        unmatched=tuple((p, reasons[p]) for p in range(len(entries)) if p not in links),
        unmeasured=tuple(k.index for k in plan.kernels if k.index not in measured),
    )


class _Names:
    """Nodes by every name that a runtime may call them."""

    def __init__(self, plan: KernelPlan) -> None:
        self.kernel_of = {node: kernel.index for kernel in plan.kernels for node in kernel.nodes}
        self._removed = {removed.index: removed.reason for removed in plan.removed}
        self._nodes: dict[str, int] = {}
        for place, cost in enumerate(plan.cost.nodes):
            for output in cost.node.outputs:
                self._nodes.setdefault(output, place)
        for place, cost in reversed(list(enumerate(plan.cost.nodes))):
            self._nodes[cost.name] = place
        self._nodes.pop("", None)

    def nodes_of(self, name: str) -> list[int]:
        """The nodes a measured name stands for, in its order; none where nothing is known."""
        found = self._one(name)
        if found is not None:
            return [found]
        spans = _RANGE.findall(name)
        nodes = [node for first, last in spans for node in self._between(first, last)]
        if nodes:
            return nodes
        pieces = [self._one(piece) for piece in _JOINTS.split(name) if piece]
        return list(dict.fromkeys(node for node in pieces if node is not None))

    def _between(self, first: str, last: str) -> Iterable[int]:
        start, end = self._one(first), self._one(last)
        if start is None or end is None:
            return [node for node in (start, end) if node is not None]
        return range(min(start, end), max(start, end) + 1)

    def _one(self, name: str) -> int | None:
        """The node of this name, without what runtimes add to it."""
        name = name.strip()
        for _ in range(8):
            if name in self._nodes:
                return self._nodes[name]
            shorter = _ENDINGS.sub("", _BEGINNINGS.sub("", name))
            if shorter == name:
                return None
            name = shorter
        return None

    def reason(self, nodes: Sequence[int]) -> str:
        """Why an entry has no kernel."""
        for node in nodes:
            if node in self._removed:
                return f"launches nothing in our plan: {self._removed[node]}"
        return "names no node of the model"


def _by_order(
    entries: Sequence[Entry],
    plan: KernelPlan,
    links: Mapping[int, set[int]],
    reasons: Mapping[int, str],
) -> Iterator[tuple[int, int]]:
    """Entries without a known name that stand where a kernel of their operator is missing."""
    taken = {kernel for kernels in links.values() for kernel in kernels}
    operators = [
        _Kinds([plan.cost.nodes[node].op_type for node in kernel.nodes]) for kernel in plan.kernels
    ]
    last, gap = -1, list[int]()
    for place in range(len(entries) + 1):
        kernels = links.get(place) if place < len(entries) else {len(plan.kernels)}
        if kernels is None:
            if entries[place].op_type and reasons[place].startswith("names no"):
                gap.append(place)
            continue
        upper = min(kernels)
        free = [kernel for kernel in range(last + 1, upper) if kernel not in taken]
        if gap and free and len(gap) <= _LONGEST_GAP and len(free) <= _LONGEST_GAP:
            kinds = [_kind(entries[item].op_type) for item in gap]
            pairs = _aligned(kinds, [operators[kernel] for kernel in free])
            yield from ((gap[left], free[right]) for left, right in pairs)
        last, gap = max(last, *kernels) if upper > last else last, []


class _Kinds:
    """What a kernel without a known name may be called by operator."""

    def __init__(self, op_types: Iterable[str]) -> None:
        whole = {_kind(op_type) for op_type in op_types}
        self.parts = {part for kind in whole for part in _PARTS.get(kind, ())}
        self.all = whole | self.parts


def _aligned(kinds: Sequence[str], kernels: Sequence[_Kinds]) -> Iterator[tuple[int, int]]:
    """The most pairs in order whose operators agree: a longest common subsequence.

    A kernel takes one entry, or several in a row when they are parts of its operator.
    """
    rows, columns = len(kinds), len(kernels)
    lengths = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best = max(lengths[i + 1][j], lengths[i][j + 1])
            if kinds[i] in kernels[j].parts:
                best = max(best, 1 + lengths[i + 1][j])
            if kinds[i] in kernels[j].all:
                best = max(best, 1 + lengths[i + 1][j + 1])
            lengths[i][j] = best
    i = j = 0
    while i < rows and j < columns:
        if kinds[i] in kernels[j].all and lengths[i][j] == 1 + lengths[i + 1][j + 1]:
            yield i, j
            i, j = i + 1, j + 1
        elif kinds[i] in kernels[j].parts and lengths[i][j] == 1 + lengths[i + 1][j]:
            yield i, j
            i += 1
        elif lengths[i][j] == lengths[i + 1][j]:
            i += 1
        else:
            j += 1


def _kind(op_type: str) -> str:
    return _SAME.get(op_type, op_type)


def _groups(links: Mapping[int, set[int]], ordered: Mapping[int, int]) -> Iterator[Group]:
    """Connected parts of the links."""
    root: dict[int, int] = {}

    def find(kernel: int) -> int:
        while root.setdefault(kernel, kernel) != kernel:
            kernel = root[kernel]
        return kernel

    for kernels in links.values():
        first = find(min(kernels))
        for kernel in kernels:
            other = find(kernel)
            low, high = min(first, other), max(first, other)
            root[high], first = low, low
    members: dict[int, tuple[list[int], set[int]]] = {}
    for entry, kernels in sorted(links.items()):
        own, all_kernels = members.setdefault(find(min(kernels)), ([], set()))
        own.append(entry)
        all_kernels |= kernels
    for _, (own, all_kernels) in sorted(members.items()):
        by_order = any(entry in ordered for entry in own)
        yield Group(tuple(own), tuple(sorted(all_kernels)), by_order)
