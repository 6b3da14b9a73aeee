"""What counting finds: costs per call and node, weights, graphs. None means unknown, never zero."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.graph.types import Constant, DType, Node
    from onnxroof.ops.call import OpCall, TensorInfo
    from onnxroof.shapes import ShapedGraph


class Role(Enum):
    """What a constant is for; read in several ways, it is what ranks highest."""

    WEIGHT = ("weight", 3)
    QUANTIZATION = ("quantization", 2)
    CONTROL = ("control", 1)
    UNUSED = ("unused", 0)

    __hash__ = object.__hash__

    def __init__(self, label: str, rank: int) -> None:
        self.label = label
        self.rank = rank


class Status(Enum):
    """How a node's cost is known.

    COUNTED: by its formula. FREE: no arithmetic, for a stated reason. FOLDED: its inputs are
    constants, so a runtime computes it once, before the first inference: it moves no bytes, and
    only multiply-accumulates among them count (the graph holds the product). UNKNOWN: no formula,
    or a shape is missing.
    """

    COUNTED = "counted"
    FREE = "free"
    FOLDED = "folded"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class CallCost:
    """What a call costs: all that equal calls share. None means unknown. Never changed once made.

    Attributes:
        status: How the cost is known.
        macs: Multiply-accumulate pairs.
        flops: 2·macs plus every other arithmetic operation.
        transcendentals: exp, log, erf … evaluations, also in flops.
        input_bytes: Activation bytes read.
        weight_read_bytes: Constant bytes read: weights, scales (after folding).
        output_bytes: Bytes written.
        compute_dtype: Type of the multiply-accumulates, or of the first input.
        note: Why free or unknown; what the formula assumed.
        reads: Bytes read of an input, by position, where not the whole tensor.
        writes: Bytes written of an output, by position, where not the whole tensor.
    """

    status: Status
    macs: int | None
    flops: int | None
    transcendentals: int | None
    input_bytes: int | None
    weight_read_bytes: int | None
    output_bytes: int | None
    compute_dtype: DType | None
    note: str
    reads: Mapping[int, int] | None = None
    writes: Mapping[int, int] | None = None


class NodeCost:
    """What one node costs, before fusion. Never changed once made.

    The counts are those of `cost`, shared between nodes with equal calls.

    Attributes:
        node: The node.
        status: How the cost is known.
        call: Its inputs and outputs as sized.
        cost: What the call costs.
        parameters: Elements of the weights it reads.
        weight_bytes: Bytes of those weights as stored.
        bodies: Costs of the subgraphs it runs, for control flow.
    """

    __slots__ = ("bodies", "call", "cost", "node", "parameters", "status", "weight_bytes")

    def __init__(
        self,
        node: Node,
        call: OpCall,
        cost: CallCost,
        parameters: int = 0,
        weight_bytes: int = 0,
        bodies: tuple[BodyCost, ...] = (),
    ) -> None:
        self.node = node
        self.call = call
        self.cost = cost
        self.status = cost.status
        self.parameters = parameters
        self.weight_bytes = weight_bytes
        self.bodies = bodies

    @property
    def name(self) -> str:
        """The node's name, never empty."""
        return self.node.label

    @property
    def op_type(self) -> str:
        """The operator."""
        return self.node.op_type

    @property
    def kind(self) -> str:
        """What rules know the operator by."""
        return self.node.kind

    @property
    def domain(self) -> str:
        """The operator's domain, "" for ai.onnx."""
        return self.node.domain

    @property
    def macs(self) -> int | None:
        """Multiply-accumulate pairs."""
        return self.cost.macs

    @property
    def flops(self) -> int | None:
        """2·macs plus every other arithmetic operation."""
        return self.cost.flops

    @property
    def transcendentals(self) -> int | None:
        """Evaluations of exp, log, erf …, also in flops."""
        return self.cost.transcendentals

    @property
    def input_bytes(self) -> int | None:
        """Activation bytes read."""
        return self.cost.input_bytes

    @property
    def weight_read_bytes(self) -> int | None:
        """Constant bytes read: weights and scales, as they are after folding."""
        return self.cost.weight_read_bytes

    @property
    def output_bytes(self) -> int | None:
        """Bytes written."""
        return self.cost.output_bytes

    @property
    def compute_dtype(self) -> DType | None:
        """Type of the multiply-accumulates, or of the first input."""
        return self.cost.compute_dtype

    @property
    def note(self) -> str:
        """Why free or unknown; what the formula assumed."""
        return self.cost.note

    @property
    def traffic_bytes(self) -> int | None:
        """Bytes in and out; None when a part is unknown."""
        parts = (self.input_bytes, self.weight_read_bytes, self.output_bytes)
        return None if None in parts else sum(part or 0 for part in parts)

    def __repr__(self) -> str:
        return f"NodeCost({self.name!r}, {self.op_type}, {self.cost})"


@dataclass(frozen=True, slots=True)
class BodyCost:
    """A subgraph a node runs: its cost for one trip, and how often."""

    name: str
    cost: GraphCost
    trips: int
    alternative: bool
    per_trip: bool


@dataclass(slots=True)
class Weight:
    """A constant of the model and what it is for. Never changed once made.

    `parameters` is its element count when it is a weight, else 0. `bytes` are as stored.
    """

    constant: Constant
    role: Role
    parameters: int
    stored_bytes: int | None


class Stock:
    """The stored tensors of a model and what they were found to be for.

    Attributes:
        constants: By identity; of names that share one tensor the one that ranks highest.
        made: Elements of the weights of products that nodes make of no stored weight, by name.
        roles: What the tensors that are read are for, by identity.
        unpacked: Elements of those that are packed, by identity.
    """

    __slots__ = ("constants", "made", "roles", "unpacked")

    def __init__(self) -> None:
        self.constants: dict[object, Constant] = {}
        self.made: dict[str, int] = {}
        self.roles: dict[object, Role] = {}
        self.unpacked: dict[object, int] = {}

    def use(self, constant: Constant, role: Role) -> None:
        """Note a use; a weight anywhere is a weight, then quantization, then control."""
        identity = constant.identity
        known = self.roles.get(identity)
        if known is None:
            self.roles[identity] = role
            self.constants[identity] = constant
        elif role is not known and role.rank > known.rank:
            self.roles[identity], self.constants[identity] = role, constant

    def elements(self, constant: Constant) -> int:
        """Values it holds."""
        values = self.unpacked.get(constant.identity)
        return math.prod(constant.shape) if values is None else values

    def weights(self) -> tuple[Weight, ...]:
        """All, with their roles: a weight's elements are parameters."""
        roles, unused, weight = self.roles, Role.UNUSED, Role.WEIGHT
        found: list[Weight] = []
        for identity, constant in self.constants.items():
            role = roles.get(identity, unused)
            parameters = self.elements(constant) if role is weight else 0
            found.append(Weight(constant, role, parameters, constant.stored_bytes))
        return tuple(found)

    def weight_bytes(self) -> int:
        """Bytes of the weights as stored."""
        constants, weight = self.constants, Role.WEIGHT
        return sum(
            [
                constants[identity].stored_bytes or 0
                for identity, role in self.roles.items()
                if role is weight
            ]
        )


@dataclass(frozen=True)
class GraphCost:
    """Costs of every node of a graph, in execution order.

    Attributes:
        shaped: The graph as sized.
        nodes: Its nodes' costs.
        stock: The model's stored tensors; None for a body.
        roots: Results of folded nodes and names captured from outside → the constants they come
            from; see `origins`.
    """

    shaped: ShapedGraph
    nodes: tuple[NodeCost, ...]
    stock: Stock | None = field(default=None, repr=False)
    roots: dict[str, tuple[Constant, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """The model's stored tensors and what they are for."""
        return () if self.stock is None else self.stock.weights()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What counting has to say."""
        made = {} if self.stock is None else self.stock.made
        if not made:
            return ()
        weights = "1 weight" if len(made) == 1 else f"{len(made)} weights"
        return (
            f"{weights} with {sum(made.values()):,} elements are made by nodes (as ConstantOfShape"
            " does), not stored: no parameters, and no weight bytes",
        )

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the weights as stored."""
        return 0 if self.stock is None else self.stock.weight_bytes()

    @cached_property
    def held_weight_bytes(self) -> int:
        """Bytes of the weights as a run holds them: at the precision asked for, else as stored."""
        if self.stock is None:
            return 0
        held = _held_types(self)
        total = 0
        for weight in self.weights:
            if weight.role is Role.WEIGHT:
                info, nbytes = held.get(weight.constant.identity), weight.stored_bytes
                if info is not None and info.dtype is not weight.constant.dtype:
                    nbytes = info.nbytes
                total += nbytes or 0
        return total

    def origins(self, name: str) -> tuple[Constant, ...]:
        """The constants a tensor comes from; none for one that is computed in a run."""
        constant = self.shaped.graph.constants.get(name)
        return self.roots.get(name, ()) if constant is None else (constant,)


def _held_types(cost: GraphCost) -> dict[object, TensorInfo]:
    """What is known of the constants of a graph and its bodies in a run, by identity."""
    tensors = cost.shaped.tensors
    held = {
        constant.identity: tensors[name]
        for name, constant in cost.shaped.graph.constants.items()
        if name in tensors
    }
    for node in cost.nodes:
        for body in node.bodies:
            held |= _held_types(body.cost)
    return held
