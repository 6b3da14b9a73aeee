"""What a kernel plan consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.cost import GraphCost
    from onnxroof.graph.types import DType


@dataclass(slots=True)
class RemovedNode:
    """A node that launches nothing, and why. Never changed once made, like `Kernel`."""

    index: int
    name: str
    op_type: str
    reason: str


@dataclass(frozen=True, slots=True)
class FusionMiss:
    """A group that looks like a rule's pattern but must not or cannot be fused.

    `nodes` are the nodes concerned, in execution order; `name` is the label of the first.
    """

    nodes: tuple[int, ...]
    name: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class KernelBody:
    """The kernels of a subgraph that a control-flow node runs, and how often; see `BodyCost`."""

    name: str
    plan: KernelPlan
    trips: int
    alternative: bool
    per_trip: bool


@dataclass(slots=True, eq=False)
class Kernel:
    """One launch of a runtime: the nodes it does at once and what it moves.

    None means unknown, never zero. Never changed once made; a frozen dataclass of so many fields
    would take eight times as long to make, and there is one a launch.

    Attributes:
        index: Position in launch order.
        nodes: Indices of the graph's nodes it does, in execution order.
        anchor: Index of the node that gives it its name: the heaviest by its rule.
        rule: Name of the fusion rule, "none" for a lone node.
        name: The anchor's label.
        op_type: Its operators in order, e.g. "Conv+BatchNormalization+Relu".
        macs: Multiply-accumulate pairs.
        flops: Floating-point operations after folding.
        transcendentals: exp, log, erf … evaluations, also in flops.
        input_bytes: Activation bytes read from memory.
        weight_bytes: Constant bytes read, after folding.
        output_bytes: Bytes written to memory.
        elided: Tensors between its nodes, which never reach memory.
        compute_dtype: Type of its multiply-accumulates, or of its anchor's first input.
        bodies: The kernels of the subgraphs it runs, for control flow.
        note: What folds, and what was assumed.
    """

    index: int
    nodes: tuple[int, ...]
    anchor: int
    rule: str
    name: str
    op_type: str
    macs: int | None
    flops: int | None
    transcendentals: int | None
    input_bytes: int | None
    weight_bytes: int | None
    output_bytes: int | None
    elided: tuple[str, ...]
    compute_dtype: DType | None
    bodies: tuple[KernelBody, ...]
    note: str

    @property
    def read_bytes(self) -> int | None:
        """Activation and constant bytes read; None when a part is unknown."""
        if self.input_bytes is None or self.weight_bytes is None:
            return None
        return self.input_bytes + self.weight_bytes

    @property
    def written_bytes(self) -> int | None:
        """Bytes written; the same as `output_bytes`."""
        return self.output_bytes

    @property
    def traffic_bytes(self) -> int | None:
        """Bytes read and written; None when a part is unknown."""
        read = self.read_bytes
        if read is None or self.output_bytes is None:
            return None
        return read + self.output_bytes


@dataclass(frozen=True)
class KernelPlan:
    """What a runtime launches for a graph, in order.

    Attributes:
        cost: The graph's costs before fusion.
        runtime: Name of the fusion set.
        kernels: One per launch, in launch order.
        removed_because: Why each node that launches nothing does not, by index.
        views: Tensor → the tensor whose bytes it shows.
        parts: Tensor → the concatenation in whose buffer it is written.
    """

    cost: GraphCost
    runtime: str
    kernels: tuple[Kernel, ...]
    removed_because: Mapping[int, str]
    views: Mapping[str, str] = field(default_factory=dict, repr=False)
    parts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def removed(self) -> tuple[RemovedNode, ...]:
        """Nodes that launch nothing, each with its reason, in order."""
        nodes = self.cost.nodes
        return tuple(
            [
                RemovedNode(index, nodes[index].name, nodes[index].op_type, reason)
                for index, reason in sorted(self.removed_because.items())
            ]
        )

    @cached_property
    def misses(self) -> tuple[FusionMiss, ...]:
        """Candidates that do not fuse, each with its reason; found when first asked for."""
        from onnxroof.fusion.plan import find_misses

        return find_misses(self.cost, self.runtime)

    @cached_property
    def kernel_of_node(self) -> Mapping[int, Kernel]:
        """Node → the kernel it runs in; nodes that launch nothing are missing."""
        return {node: kernel for kernel in self.kernels for node in kernel.nodes}

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of all kernels; unknown kernels leave a lower bound."""
        return sum(kernel.macs or 0 for kernel in self.kernels)

    @cached_property
    def flops(self) -> int:
        """FLOPs of all kernels; unknown kernels leave a lower bound."""
        return sum(kernel.flops or 0 for kernel in self.kernels)

    @cached_property
    def transcendentals(self) -> int:
        """Transcendental evaluations of all kernels."""
        return sum(kernel.transcendentals or 0 for kernel in self.kernels)

    @cached_property
    def input_bytes(self) -> int:
        """Activation bytes read by all kernels."""
        return sum(kernel.input_bytes or 0 for kernel in self.kernels)

    @cached_property
    def weight_bytes(self) -> int:
        """Constant bytes read by all kernels."""
        return sum(kernel.weight_bytes or 0 for kernel in self.kernels)

    @cached_property
    def output_bytes(self) -> int:
        """Bytes written by all kernels."""
        return sum(kernel.output_bytes or 0 for kernel in self.kernels)

    @property
    def traffic_bytes(self) -> int:
        """Bytes moved by all kernels; unknown kernels leave a lower bound."""
        return self.input_bytes + self.weight_bytes + self.output_bytes

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP per byte; None when nothing moves or a kernel's work or traffic is unknown."""
        if self.is_lower_bound or not self.traffic_bytes:
            return None
        return self.flops / self.traffic_bytes

    @cached_property
    def is_lower_bound(self) -> bool:
        """Whether a kernel's work or traffic is unknown."""
        return any(k.flops is None or k.traffic_bytes is None for k in self.kernels)
