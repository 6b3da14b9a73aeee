"""A node order with a lower liveness peak: exact where it can be, a good heuristic beyond.

What is alive after a set of nodes has run depends on the set alone, so the best order is a
cheapest path through the sets that can have run (the downsets of the graph), where a path costs its
highest step. Graphs of few parallel chains have few such sets, and a search that always extends the
set with the lowest peak so far finds the optimum. When the sets become too many, a
greedy list schedule stands in: of the nodes that are ready, the one that leaves least alive.
File order is the answer when nothing is better.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.cost import Status
from onnxroof.memory.lifetimes import body_bytes, node_lifetimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.cost import GraphCost, NodeCost

MOST_SETS = 200_000
"""Sets of nodes the exact search looks at before it gives up, in a small graph."""

MOST_WORK = 20_000_000
"""Sets times nodes it looks at in a large one: some seconds. Counted, not timed, so that the same
graph has the same answer on every machine."""

MOST_READY = 64
"""With more nodes than this ready at once there are too many sets to look at."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A node order and what it saves.

    Attributes:
        order: Indices of all nodes of the graph, in the new order.
        file_peak_bytes: Liveness peak in file order.
        peak_bytes: Liveness peak in the new order; never more.
        is_optimal: No order has a lower peak.
        method: "exact", "greedy" or "file order".
    """

    order: tuple[int, ...]
    file_peak_bytes: int
    peak_bytes: int
    is_optimal: bool
    method: str

    @property
    def saved_bytes(self) -> int:
        """Bytes by which the peak falls."""
        return self.file_peak_bytes - self.peak_bytes

    def runs(self) -> tuple[tuple[int, int], ...]:
        """The order as stretches (first, last) of nodes that follow each other in the file too."""
        found: list[tuple[int, int]] = []
        for index in self.order:
            if found and found[-1][1] == index - 1:
                found[-1] = (found[-1][0], index)
            else:
                found.append((index, index))
        return tuple(found)


def reorder(cost: GraphCost, seconds: float | None = None) -> NodeOrder:
    """Search for the node order with the lowest liveness peak.

    Args:
        cost: The graph.
        seconds: Time for the exact search; the heuristic always runs. None: as long as its budget
            of work lasts, which does not depend on the machine.
    """
    everything = tuple(range(len(cost.nodes)))
    file_peak = _peak(cost, everything)
    graph = _Schedule(cost)
    best, peak, method = everything, file_peak, "file order"
    for greedy in (graph.greedy(), graph.depth_first()):
        order = graph.complete(greedy)
        reached = _peak(cost, order)
        if reached < peak:
            best, peak, method = order, reached, "greedy"
    if peak <= graph.least_possible():
        return NodeOrder(best, file_peak, peak, True, method)
    exact = graph.exact(peak, math.inf if seconds is None else time.monotonic() + seconds)
    if exact is None:
        return NodeOrder(best, file_peak, peak, False, method)
    if exact:
        order = graph.complete(exact)
        reached = _peak(cost, order)
        if reached < peak:
            best, peak, method = order, reached, "exact"
    return NodeOrder(best, file_peak, peak, True, method)


def _peak(cost: GraphCost, order: Sequence[int]) -> int:
    return max(node_lifetimes(cost, order).live_bytes(), default=0)


def _reads(node: NodeCost) -> set[str]:
    """What the node and its bodies read."""
    names = set(node.node.inputs)
    for _, body in node.node.subgraphs:
        names.update(body.captures)
    return names


def _pass_through(node: NodeCost, made: dict[str, int], through: dict[str, frozenset[int]]) -> None:
    """A folded node is no job, yet in a file it stands behind what it names."""
    behind = {made[name] for name in node.node.inputs if made.get(name, -1) >= 0}
    behind.update(*(through[name] for name in node.node.inputs if name in through))
    if behind:
        for name in node.node.outputs:
            through[name] = frozenset(behind)


class _Schedule:
    """The running nodes as a scheduling problem, in small integers.

    Attributes:
        nodes: Graph index of each job, in file order.
        makes: Bytes each job's outputs take.
        extra: Bytes a job needs while it runs.
        reads: Tensors each job reads.
        before: Jobs that must run before each job, and `after` the reverse.
        readers: How many jobs read each tensor; kept tensors have one reader more.
    """

    def __init__(self, cost: GraphCost) -> None:
        self.cost = cost
        running = [
            index for index, node in enumerate(cost.nodes) if node.status is not Status.FOLDED
        ]
        self.nodes = running
        self.size: dict[str, int] = {}
        self.readers: dict[str, int] = {}
        made = self._inputs(cost)
        self.reads: list[set[str]] = []
        self.writes: list[list[str]] = []
        self.before: list[set[int]] = []
        self.after: list[list[int]] = [[] for _ in running]
        self.extra = [body_bytes(cost.nodes[index]) for index in running]
        through: dict[str, frozenset[int]] = {}
        jobs = {index: job for job, index in enumerate(running)}
        for index, node in enumerate(cost.nodes):
            job = jobs.get(index)
            if job is None:
                _pass_through(node, made, through)
            else:
                self._add(job, node, made, through)
        for name in cost.shaped.graph.outputs:
            if name in self.readers:
                self.readers[name] += 1
        self.start = sum(
            self.size[item.name] for item in cost.shaped.graph.inputs if self.readers[item.name]
        )

    def _inputs(self, cost: GraphCost) -> dict[str, int]:
        made: dict[str, int] = {}
        for item in cost.shaped.graph.inputs:
            made[item.name] = -1
            self.size[item.name] = upper(cost.shaped.tensors[item.name].nbytes or 0)
            self.readers[item.name] = 0
        return made

    def _add(
        self, job: int, node: NodeCost, made: dict[str, int], through: dict[str, frozenset[int]]
    ) -> None:
        names = _reads(node)
        reads = {name for name in names if name in made}
        before = {made[name] for name in reads if made[name] >= 0}
        before.update(*(through[name] for name in names if name in through))
        for name in reads:
            self.readers[name] += 1
        for maker in before:
            self.after[maker].append(job)
        self.reads.append(reads)
        self.before.append(before)
        written = [name for name in node.node.outputs if name]
        for name in written:
            made[name] = job
            self.size[name] = upper(self.cost.shaped.tensors[name].nbytes or 0)
            self.readers[name] = 0
        self.writes.append(written)

    def made_bytes(self, job: int) -> int:
        """Bytes of the job's outputs."""
        return sum(self.size[name] for name in self.writes[job])

    def least_possible(self) -> int:
        """A bound from below: no order can avoid a job's own inputs and outputs."""
        return max(
            (
                self.made_bytes(job) + self.extra[job] + sum(self.size[n] for n in self.reads[job])
                for job in range(len(self.nodes))
            ),
            default=0,
        )

    def complete(self, jobs: Sequence[int]) -> tuple[int, ...]:
        """The graph's nodes in this order, each folded node before the first that needs it."""
        nodes = self.cost.nodes
        maker = {
            name: index
            for index, node in enumerate(nodes)
            if node.status is Status.FOLDED
            for name in node.node.outputs
        }
        order: list[int] = []
        placed: set[int] = set()
        for index in (*(self.nodes[job] for job in jobs), *range(len(nodes))):
            stack = [] if index in placed else [index]
            while stack:
                needed = [
                    maker[name]
                    for name in _reads(nodes[stack[-1]])
                    if name in maker and maker[name] not in placed
                ]
                if needed:
                    stack.extend(needed)
                    continue
                at = stack.pop()
                if at not in placed:
                    placed.add(at)
                    order.append(at)
        return tuple(order)

    # -- heuristics ------------------------------------------------------------------------

    def greedy(self) -> list[int]:
        """Of the ready jobs always the one that leaves least alive; ties by file order."""
        waits = [len(before) for before in self.before]
        left = dict(self.readers)
        ready = [(self._change(job, left), job) for job, count in enumerate(waits) if not count]
        heapify(ready)
        order: list[int] = []
        while ready:
            change, job = heappop(ready)
            now = self._change(job, left)
            if now != change:
                heappush(ready, (now, job))
                continue
            order.append(job)
            for name in self.reads[job]:
                left[name] -= 1
            for later in self.after[job]:
                waits[later] -= 1
                if not waits[later]:
                    heappush(ready, (self._change(later, left), later))
        return order

    def depth_first(self) -> list[int]:
        """Follow each branch to its end before the next: the job made ready last runs first."""
        waits = [len(before) for before in self.before]
        left = dict(self.readers)
        stack = [job for job in range(len(waits) - 1, -1, -1) if not waits[job]]
        order: list[int] = []
        while stack:
            job = stack.pop()
            order.append(job)
            for name in self.reads[job]:
                left[name] -= 1
            opened = []
            for later in self.after[job]:
                waits[later] -= 1
                if not waits[later]:
                    opened.append(later)
            opened.sort(key=lambda later: -self._change(later, left))
            stack.extend(opened)
        return order

    def _change(self, job: int, left: dict[str, int]) -> int:
        """Bytes alive after the job less those before."""
        freed = sum(self.size[name] for name in self.reads[job] if left[name] == 1)
        kept = sum(self.size[name] for name in self.writes[job] if self.readers[name])
        return kept - freed

    # -- exact -----------------------------------------------------------------------------

    def exact(self, bound: int, deadline: float) -> list[int] | None:
        """The best order below `bound`: [] when there is none, None when the search gave up."""
        everything = (1 << len(self.nodes)) - 1
        needs = [sum(1 << maker for maker in before) for before in self.before]
        ready = tuple(job for job, need in enumerate(needs) if not need)
        queue: list[tuple[int, int, int, tuple[int, ...]]] = [(self.start, self.start, 0, ready)]
        came: dict[int, tuple[int, int, int]] = {0: (self.start, -1, 0)}
        readers = self._reader_masks()
        most = min(MOST_SETS, MOST_WORK // max(len(self.nodes), 1))
        while queue:
            peak, live, done, ready = heappop(queue)
            if done == everything:
                return self._path(came, done)
            if came[done][0] < peak:
                continue  # the set was reached with a lower peak since
            if len(came) > most or len(ready) > MOST_READY or time.monotonic() > deadline:
                return None
            for job in ready:
                bit = 1 << job
                grown = done | bit
                during = live + self.made_bytes(job) + self.extra[job]
                reached = max(peak, during)
                if reached >= bound or (grown in came and came[grown][0] <= reached):
                    continue
                came[grown] = (reached, done, job)
                after = live + self._settled(job, grown, readers)
                opened = tuple(j for j in ready if j != job) + tuple(
                    later for later in self.after[job] if needs[later] & grown == needs[later]
                )
                heappush(queue, (reached, after, grown, opened))
        return []

    def _reader_masks(self) -> dict[str, int]:
        """Tensor → the jobs that read it; a tensor that is kept has one no set contains."""
        masks = dict.fromkeys(self.readers, 0)
        counts = dict.fromkeys(self.readers, 0)
        for job, names in enumerate(self.reads):
            for name in names:
                masks[name] |= 1 << job
                counts[name] += 1
        for name, count in counts.items():
            if self.readers[name] > count:
                masks[name] |= 1 << len(self.nodes)
        return masks

    def _settled(self, job: int, done: int, readers: dict[str, int]) -> int:
        """Change of what is alive once the job has run."""
        change = sum(self.size[name] for name in self.writes[job] if readers[name])
        for name in self.reads[job]:
            if readers[name] & done == readers[name]:
                change -= self.size[name]
        return change

    @staticmethod
    def _path(came: dict[int, tuple[int, int, int]], done: int) -> list[int]:
        order: list[int] = []
        while done:
            _, done, job = came[done]
            order.append(job)
        return order[::-1]
