"""Fifth stage: `KernelPlan` → `MemoryPlan`: what is alive when, and what buffers would hold it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from onnxroof.bounded import interval
from onnxroof.memory.arena import pack
from onnxroof.memory.cache import find_cache
from onnxroof.memory.fused import kernel_lifetimes
from onnxroof.memory.lifetimes import node_lifetimes
from onnxroof.memory.records import LiveTensor, MemoryRow, Peak, Step, TimelinePoint
from onnxroof.memory.sharing import cache_appends, in_place, views
from onnxroof.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.fusion.plan import KernelPlan
    from onnxroof.memory.lifetimes import Lifetimes
    from onnxroof.memory.records import ArenaPlan, KVCache
    from onnxroof.memory.sharing import Pair


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """What a model keeps alive while it runs.

    The liveness peak in file order is always there; everything else is worked out when asked for.

    Attributes:
        peak_activation_bytes: Largest sum of tensors alive at once, in file order.
        peak_node: The node that runs then; None for a graph without nodes.
        peak_tensors: The tensors alive then, largest first.
        live_bytes: Sum alive while each node runs, by node index.
        unknown: Tensors whose size is not known: with any, the peak is a lower bound.
        kernels: The kernel plan this belongs to.
        lifetimes: When each tensor is alive, in file order.
        arenas: Packings made so far, by alignment; plans of equal lifetimes share them.
    """

    peak_activation_bytes: int
    peak_node: Step | None
    peak_tensors: tuple[LiveTensor, ...]
    live_bytes: tuple[int, ...]
    unknown: tuple[str, ...]
    kernels: KernelPlan = field(repr=False)
    lifetimes: Lifetimes = field(repr=False)
    arenas: dict[int, ArenaPlan] = field(default_factory=dict, repr=False)

    def under(self, kernels: KernelPlan) -> MemoryPlan:
        """The memory of the same graph while another runtime's kernels run."""
        return replace(self, kernels=kernels)

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the weights as a run holds them: at the precision asked for, else as stored."""
        return self.kernels.cost.held_weight_bytes

    @property
    def is_lower_bound(self) -> bool:
        """Whether a tensor's size is unknown."""
        return bool(self.unknown)

    @property
    def is_upper_bound(self) -> bool:
        """Whether a tensor's size is known by its bounds only; it counts at its upper end."""
        return self.lifetimes.is_upper_bound

    @cached_property
    def preallocated_bytes(self) -> int:
        """Every activation in a buffer of its own, and what bodies hold."""
        return sum(self.lifetimes.sizes) + sum(self.lifetimes.extra)

    @cached_property
    def average_bytes(self) -> float:
        """Mean of what is alive over the nodes."""
        return sum(self.live_bytes) / len(self.live_bytes) if self.live_bytes else 0.0

    @cached_property
    def in_place_peak(self) -> Peak:
        """Peak when elementwise results and cache appends are written over their input."""
        return self._in_place_peak(self.lifetimes)

    @cached_property
    def aliased_peak(self) -> Peak:
        """Peak when views share their source's buffer."""
        return self._node_peak(self.lifetimes.merged(views(self.kernels.cost)))

    @cached_property
    def shared_peak(self) -> Peak:
        """Peak with both: views aliased and results in place."""
        aliased = views(self.kernels.cost)
        return self._in_place_peak(self.lifetimes.merged(aliased), aliased)

    def _in_place_peak(self, lifetimes: Lifetimes, aliased: Iterable[Pair] = ()) -> Peak:
        """The lower of the peaks with and without appending to caches in place.

        A cache that is appended to in place has its room from the start, which costs more than the
        append saves where most is alive elsewhere.
        """
        cost = self.kernels.cost
        over = lifetimes.merged(in_place(cost, lifetimes, aliased))
        appended = over.merged(cache_appends(cost))
        return min(self._node_peak(over), self._node_peak(appended), key=lambda peak: peak.nbytes)

    @cached_property
    def fused_lifetimes(self) -> Lifetimes:
        """When each tensor that reaches memory is alive, in steps of the plan's kernels."""
        return kernel_lifetimes(self.kernels)

    @cached_property
    def fused_live_bytes(self) -> tuple[int, ...]:
        """Sum alive while each kernel runs, its workspace included, by kernel index."""
        return tuple(self.fused_lifetimes.live_bytes())

    @cached_property
    def fused_peak(self) -> Peak:
        """Peak while the plan's kernels run, with their workspace."""
        live = self.fused_live_bytes
        if not live:
            return Peak(0, None)
        at = max(range(len(live)), key=live.__getitem__)
        step = Step(at, self.kernels.kernels[at].name)
        return Peak(live[at], step, self.fused_lifetimes.extra[at])

    @cached_property
    def fused_peak_tensors(self) -> tuple[LiveTensor, ...]:
        """The tensors alive at the peak after fusion, largest first."""
        step = self.fused_peak.step
        return () if step is None else _alive(self.fused_lifetimes, step.index)

    @property
    def arena(self) -> ArenaPlan:
        """Static offsets for all activations, in file order, aligned to 64 bytes."""
        return self.arena_for(64)

    def arena_for(self, alignment_bytes: int) -> ArenaPlan:
        """The same with another alignment (a power of two)."""
        found = self.arenas.get(alignment_bytes)
        if found is None:
            found = self.arenas[alignment_bytes] = pack(self.lifetimes, alignment_bytes)
        return found

    @cached_property
    def kv_cache(self) -> KVCache | None:
        """The decoder's key/value cache, or None."""
        return find_cache(self.kernels.cost)

    def _node_peak(self, lifetimes: Lifetimes) -> Peak:
        live = lifetimes.live_bytes()
        if not live:
            return Peak(0, None)
        at = max(range(len(live)), key=live.__getitem__)
        step = Step(at, self.kernels.cost.nodes[at].name)
        return Peak(live[at], step, lifetimes.extra[at])

    def timeline(self, points: int = 40) -> tuple[TimelinePoint, ...]:
        """What is alive over the run in at most `points` stretches of equally many nodes."""
        live, nodes = self.live_bytes, self.kernels.cost.nodes
        width = max(-(-len(live) // max(points, 1)), 1)
        stretches: list[TimelinePoint] = []
        for first in range(0, len(live), width):
            last = min(first + width, len(live)) - 1
            at = max(range(first, last + 1), key=live.__getitem__)
            stretches.append(TimelinePoint(first, last, nodes[at].name, live[at]))
        return tuple(stretches)

    def fused_row(self) -> MemoryRow:
        """The line of the table that depends on the runtime."""
        peak = self.fused_peak
        rule = f"kernels of {self.kernels.runtime}"
        if peak.workspace_bytes and peak.step is not None:
            has_bodies = bool(self.kernels.kernels[peak.step.index].bodies)
            what = "inside its bodies" if has_bodies else "of workspace"
            rule += f", {peak.workspace_bytes:,} bytes {what}"
        return _row("fused", "peak after fusion", self.fused_peak, rule)

    def table(self) -> tuple[MemoryRow, ...]:
        """Every figure with its rule in a word."""
        where = self.peak_node.label if self.peak_node is not None else ""
        arena = self.arena
        converted = self.weight_bytes != self.kernels.cost.weight_bytes
        weight_rule = "at the precision asked for" if converted else "as stored"
        rows = [
            MemoryRow("weights", "weights", self.weight_bytes, weight_rule),
            MemoryRow(
                "preallocated", "activations preallocated", self.preallocated_bytes,
                "every tensor in a buffer of its own",
            ),
            MemoryRow(
                "liveness", "liveness peak", self.peak_activation_bytes,
                "freed after the last use", where,
            ),
            _row("in_place", "in place", self.in_place_peak,
                 "over dying inputs"),
            _row("views_aliased", "views aliased", self.aliased_peak,
                 "share their source's buffer"),
            _row("shared", "in place, views aliased", self.shared_peak, "both"),
            MemoryRow(
                "arena", "arena", arena.nbytes,
                f"{arena.packer}, aligned to {arena.alignment_bytes} B, "
                f"{100 * arena.gap:.1f} % above lower bound",
            ),
            MemoryRow(
                "average", "average", round(self.average_bytes), "mean over the nodes"
            ),
            self.fused_row(),
        ]  # fmt: skip
        cache = self.kv_cache
        if cache is not None:
            rows.append(
                MemoryRow("kv_cache", "key/value cache", cache.total_bytes, _cache_rule(cache))
            )
        return tuple(rows)


def _cache_rule(cache: KVCache) -> str:
    """What a token takes, in all and in a layer, and how many tokens the total is for."""
    per_layer = [nbytes for _, nbytes in cache.layers]
    least, most = min(per_layer), max(per_layer)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    tokens = max(tensor.tokens for tensor in cache.tensors)
    return (
        f"{cache.bytes_per_token:,} bytes a token, {each} in each of "
        f"{plural(len(cache.layers), 'layer')}; {plural(tokens, 'token')}"
    )


def _alive(lifetimes: Lifetimes, step: int) -> tuple[LiveTensor, ...]:
    """Tensors alive in a step, largest first."""
    alive = sorted(lifetimes.alive_in(step), key=lambda at: -lifetimes.sizes[at])
    return tuple([LiveTensor(lifetimes.names[at], lifetimes.sizes[at]) for at in alive])


def _row(key: str, title: str, peak: Peak, rule: str) -> MemoryRow:
    return MemoryRow(key, title, peak.nbytes, rule, peak.step.label if peak.step else "")


def plan_memory(plan: KernelPlan) -> MemoryPlan:
    """Sweep over the nodes in file order and add up what is alive.

    Sizes that are only bounded enter at their upper end; the peak keeps the lower one.
    """
    cost = plan.cost
    lifetimes = node_lifetimes(cost)
    live = lifetimes.live_bytes()
    peak, step = 0, None
    alive: list[int] = []
    if live:
        peak = max(live)
        at = live.index(peak)
        step = Step(at, cost.nodes[at].name)
        alive = lifetimes.alive_in(at)
    alive.sort(key=lambda position: -lifetimes.sizes[position])
    if lifetimes.is_upper_bound:
        peak = interval(min(peak, lifetimes.lower_bytes(alive)), peak)
    held = [LiveTensor(lifetimes.names[p], lifetimes.sizes[p]) for p in alive]
    if step is not None and lifetimes.extra[step.index]:
        held.append(LiveTensor(f"inside {step.label}", lifetimes.extra[step.index]))
        held.sort(key=lambda tensor: -tensor.nbytes)
    return MemoryPlan(
        peak_activation_bytes=peak,
        peak_node=step,
        peak_tensors=tuple(held),
        live_bytes=tuple(live),
        unknown=lifetimes.unknown,
        kernels=plan,
        lifetimes=lifetimes,
    )
