"""Static offsets for all activations in one buffer: the best of three greedy packings.

By size: large tensors first. By breadth: the tensors of the fullest step first. First fit: in
order of birth, as an allocator would. Each tensor goes to the lowest gap that its neighbours in
time leave. Packing optimally is NP-hard; the largest sum alive at once is a lower bound, so the
gap to it says how much a better packing could still save.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from onnxroof.memory.records import ArenaPlan, Placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.memory.lifetimes import Lifetimes

MOST_NEIGHBOURS = 2_000_000
"""Above this many pairs of tensors alive together only first fit is tried."""

_Tensor = tuple[int, int, int]
"""(birth, death, size) of a tensor, sizes aligned."""


def pack(lifetimes: Lifetimes, alignment_bytes: int = 64) -> ArenaPlan:
    """The best packing of all tensors, graph inputs and outputs included.

    What a step holds besides, inside its bodies, is a tensor of that step alone.

    Raises:
        ValueError: The alignment is not a positive power of two.
    """
    if alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
        raise ValueError(f"alignment must be a power of two, not {alignment_bytes}")
    columns = lifetimes.names, lifetimes.sizes, lifetimes.births, lifetimes.deaths
    kept = [
        (birth, death, size, name)
        for name, size, birth, death in zip(*columns, strict=True)
        if size and death >= birth
    ]
    kept += [
        (step, step, size, f"inside the bodies of node {step}")
        for step, size in enumerate(lifetimes.extra)
        if size
    ]
    kept.sort(key=lambda tensor: tensor[0])
    tensors = [
        (birth, death, -(-size // alignment_bytes) * alignment_bytes)
        for birth, death, size, _ in kept
    ]
    tried = _packings(tensors)
    name, offsets = min(tried.items(), key=lambda item: _height(tensors, item[1]))
    return ArenaPlan(
        nbytes=_height(tensors, offsets),
        lower_bound_bytes=_most_alive(tensors),
        alignment_bytes=alignment_bytes,
        packer=name,
        sizes_by_packer=tuple((key, _height(tensors, value)) for key, value in tried.items()),
        placements=tuple(
            Placement(name, offset, size, birth, death)
            for (birth, death, size, name), offset in zip(kept, offsets, strict=True)
        ),
    )  # fmt: skip


def _packings(tensors: Sequence[_Tensor]) -> dict[str, list[int]]:
    first_fit = _first_fit(tensors)
    if _height(tensors, first_fit) == _most_alive(tensors):
        return {"first fit": first_fit}
    neighbours = _neighbours(tensors)
    if neighbours is None:
        return {"first fit": first_fit}
    by_size = sorted(range(len(tensors)), key=lambda t: (-tensors[t][2], tensors[t][0]))
    return {
        "by size": _place(tensors, by_size, neighbours),
        "by breadth": _place(tensors, _by_breadth(tensors, by_size), neighbours),
        "first fit": first_fit,
    }


def _height(tensors: Sequence[_Tensor], offsets: Sequence[int]) -> int:
    return max((o + t[2] for o, t in zip(offsets, tensors, strict=True)), default=0)


def _most_alive(tensors: Sequence[_Tensor]) -> int:
    change: dict[int, int] = {}
    for birth, death, size in tensors:
        change[birth] = change.get(birth, 0) + size
        change[death + 1] = change.get(death + 1, 0) - size
    most = live = 0
    for step in sorted(change):
        live += change[step]
        most = max(most, live)
    return most


class _FirstFit:
    """An allocator: free gaps below the top, sorted and never adjacent."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.top = 0

    def take(self, size: int) -> int:
        """The lowest offset where `size` bytes are free."""
        begins, ends = self.begins, self.ends
        for at, begin in enumerate(begins):
            if ends[at] - begin >= size:
                if ends[at] - begin == size:
                    del begins[at], ends[at]
                else:
                    begins[at] += size
                return begin
        offset = self.top
        if ends and ends[-1] == self.top:
            offset = begins.pop()
            ends.pop()
        self.top = offset + size
        return offset

    def give(self, begin: int, end: int) -> None:
        """Free the bytes of [begin, end) and join them with the gaps they touch."""
        begins, ends = self.begins, self.ends
        at = bisect_left(begins, begin)
        if at < len(begins) and begins[at] == end:
            end = ends[at]
            del begins[at], ends[at]
        if at and ends[at - 1] == begin:
            ends[at - 1] = end
        else:
            begins.insert(at, begin)
            ends.insert(at, end)


def _first_fit(tensors: Sequence[_Tensor]) -> list[int]:
    """In order of birth, each to the lowest gap."""
    offsets = [0] * len(tensors)
    allocator = _FirstFit()
    alive: list[tuple[int, int]] = []
    for index, (birth, death, size) in enumerate(tensors):
        while alive and alive[0][0] < birth:
            _, gone = heappop(alive)
            allocator.give(offsets[gone], offsets[gone] + tensors[gone][2])
        offsets[index] = allocator.take(size)
        heappush(alive, (death, index))
    return offsets


def _lowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset where `size` bytes fit between sorted (begin, end) intervals."""
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def _neighbours(tensors: Sequence[_Tensor]) -> list[list[int]] | None:
    """Per tensor those alive at a time with it; None when there are too many pairs."""
    found: list[list[int]] = [[] for _ in tensors]
    alive: list[int] = []
    pairs = 0
    for index, (birth, _, _) in enumerate(tensors):
        alive = [t for t in alive if tensors[t][1] >= birth]
        pairs += len(alive)
        if pairs > MOST_NEIGHBOURS:
            return None
        for other in alive:
            found[index].append(other)
            found[other].append(index)
        alive.append(index)
    return found


def _by_breadth(tensors: Sequence[_Tensor], by_size: Sequence[int]) -> list[int]:
    """Tensors of the fullest step first, each step's largest first."""
    steps: dict[int, int] = {}
    change: dict[int, int] = {}
    for birth, death, size in tensors:
        change[birth] = change.get(birth, 0) + size
        change[death + 1] = change.get(death + 1, 0) - size
    live = 0
    for step in sorted(change):
        live += change[step]
        steps[step] = live
    fullest = sorted(steps, key=lambda step: -steps[step])
    breadth = _widest(tensors, fullest)
    return sorted(by_size, key=lambda t: breadth[t])


def _widest(tensors: Sequence[_Tensor], fullest: Sequence[int]) -> list[int]:
    """Per tensor the rank of the fullest step it is alive in."""
    ordered = sorted(range(len(tensors)), key=lambda t: tensors[t][0])
    ranks = {step: rank for rank, step in enumerate(fullest)}
    events = sorted(ranks)
    breadth = [len(fullest)] * len(tensors)
    alive: list[int] = []
    at = 0
    for step in events:
        while at < len(ordered) and tensors[ordered[at]][0] <= step:
            alive.append(ordered[at])
            at += 1
        alive = [t for t in alive if tensors[t][1] >= step]
        rank = ranks[step]
        for tensor in alive:
            breadth[tensor] = min(breadth[tensor], rank)
    return breadth


def _place(
    tensors: Sequence[_Tensor], order: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> list[int]:
    offsets = [-1] * len(tensors)
    for index in order:
        taken = sorted(
            (offsets[t], offsets[t] + tensors[t][2]) for t in neighbours[index] if offsets[t] >= 0
        )
        offsets[index] = _lowest_gap(taken, tensors[index][2])
    return offsets
