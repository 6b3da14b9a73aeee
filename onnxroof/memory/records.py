"""What a memory plan consists of."""

from __future__ import annotations

from dataclasses import dataclass

from onnxroof.bounded import lower, upper


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an execution order: its index and the label of its node or kernel."""

    index: int
    label: str


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A tensor alive at the peak."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that is alive at once, and where.

    `workspace_bytes` is the part that steps need besides tensors (im2col, bodies).
    """

    nbytes: int
    step: Step | None
    workspace_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor lies in the arena, and in which steps."""

    name: str
    offset_bytes: int
    nbytes: int
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Static offsets for all activations in one buffer.

    Attributes:
        nbytes: Size of the buffer.
        lower_bound_bytes: Largest sum alive at once with sizes aligned: no packing is smaller.
        alignment_bytes: Every offset is a multiple of it.
        packer: Which packing was best: "by size", "by breadth" or "first fit".
        sizes_by_packer: What each tried packing needs.
        placements: One a tensor, in order of birth.
    """

    nbytes: int
    lower_bound_bytes: int
    alignment_bytes: int
    packer: str
    sizes_by_packer: tuple[tuple[str, int], ...]
    placements: tuple[Placement, ...]

    @property
    def gap(self) -> float:
        """Part by which the buffer exceeds the lower bound: 0 when the packing is perfect."""
        if not self.lower_bound_bytes:
            return 0.0
        return self.nbytes / self.lower_bound_bytes - 1


@dataclass(frozen=True, slots=True)
class CachedTensor:
    """One past/present pair: what a decoder keeps from token to token."""

    past: str
    present: str
    bytes_per_token: int
    present_bytes: int
    tokens: int


@dataclass(frozen=True, slots=True)
class KVCache:
    """The key/value cache of a decoder graph.

    Attributes:
        tensors: The pairs in the graph's order of outputs.
        layers: (layer, bytes per token) in order; a layer's name is the number in its tensors'
            names, or their own name.
    """

    tensors: tuple[CachedTensor, ...]
    layers: tuple[tuple[str, int], ...]

    @property
    def bytes_per_token(self) -> int:
        """Bytes one more token takes in all layers."""
        return sum(tensor.bytes_per_token for tensor in self.tensors)

    @property
    def total_bytes(self) -> int:
        """Bytes of the cache after the step, at the sizes bound."""
        return sum(tensor.present_bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One line of the memory table: a key that stays, a title, bytes, and the rule in a word."""

    key: str
    title: str
    nbytes: int
    rule: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """A stretch of steps in a timeline: where most is alive in it, and how much."""

    first_step: int
    last_step: int
    label: str
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Whether a model fits a level of memory.

    Attributes:
        level: Name of the level.
        capacity_bytes: Of all its instances.
        needed_bytes: What the model needs there: `of` says of what.
        of: "weights and activations" or "activations after fusion".
        is_lower_bound: It needs more: a tensor's size is not known.
        cut: What to cut when it does not fit; "" when it does.
    """

    level: str
    capacity_bytes: int
    needed_bytes: int
    of: str
    cut: str
    is_lower_bound: bool = False

    @property
    def excess_bytes(self) -> int:
        """Bytes by which the model exceeds the level; 0 when it fits."""
        return max(self.needed_bytes - self.capacity_bytes, 0)

    @property
    def fits(self) -> bool | None:
        """Whether the level holds what it must; None where the bounds on that leave it open."""
        if lower(self.needed_bytes) > self.capacity_bytes:
            return False
        is_open = self.is_lower_bound or upper(self.needed_bytes) > self.capacity_bytes
        return None if is_open else True
