"""Everything one run found; what reports and lint rules read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from onnxroof.cost import Coverage, Totals, coverage, total
from onnxroof.errors import UnsupportedOperatorError, quoted
from onnxroof.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.cost import GraphCost, NodeCost
    from onnxroof.errors import NodeProblem
    from onnxroof.formula import ClosedForms, NoFormula
    from onnxroof.fusion.plan import KernelPlan
    from onnxroof.graph.algorithms import Digraph
    from onnxroof.graph.types import Model
    from onnxroof.memory import MemoryPlan
    from onnxroof.ops.call import TensorInfo
    from onnxroof.polynomial import Polynomial
    from onnxroof.roofline import RooflineResult
    from onnxroof.shapes import Memo, Unresolved

_FEW = 5
"""Tensors without a shape that are named: one often leaves many others without."""


@dataclass(frozen=True)
class Analysis:
    """What a model costs at the given sizes, and how long it takes on the given devices.

    Attributes:
        model: The file as loaded, without weights.
        inputs: The run-time inputs as bound, by name.
        precision: The precision asked for ("fp16"), or "" for the file's own types.
        cost: Costs per node, before fusion.
        kernels: What a runtime would launch: the first device's, where there are devices.
        memory: What that would keep alive.
        rooflines: One result per device, in the order asked for.
        assumptions: Sentences on everything that was assumed to get an answer.
        unresolved: Tensors whose shape is not known, and why.
        problems: Nodes that contradict their operator's text.
        data_dependent: Names of sizes that only the run will tell; `dims` may set them.
        dims: Sizes by name of the dimension, as bound or assumed.
        memo: Results shared with further runs on the same precision and operators.
    """

    model: Model
    inputs: Mapping[str, TensorInfo]
    precision: str
    cost: GraphCost
    kernels: KernelPlan
    memory: MemoryPlan
    rooflines: tuple[RooflineResult, ...]
    assumptions: tuple[str, ...]
    unresolved: tuple[Unresolved, ...]
    problems: tuple[NodeProblem, ...]
    data_dependent: tuple[str, ...]
    dims: Mapping[str, int]
    memo: Memo = field(repr=False, compare=False)

    @property
    def nodes(self) -> tuple[NodeCost, ...]:
        """Costs of the main graph's nodes, in execution order; bodies hang below them."""
        return self.cost.nodes

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor of the main graph by name, with its shape, type and bytes."""
        return self.cost.shaped.tensors

    @cached_property
    def plans(self) -> Mapping[str, KernelPlan]:
        """What the runtimes of the devices launch, by fusion set; `kernels` is the first."""
        found = {self.kernels.runtime: self.kernels}
        for result in self.rooflines:
            found.setdefault(result.plan.runtime, result.plan)
        return found

    def kernels_on(self, device: int) -> KernelPlan:
        """What the runtime of a device launches; without devices `kernels`."""
        return self.rooflines[device].plan if self.rooflines else self.kernels

    def memory_on(self, device: int) -> MemoryPlan:
        """What the kernels of a device keep alive; node by node it is the same for all devices."""
        return self.memories[self.kernels_on(device).runtime]

    @cached_property
    def memories(self) -> Mapping[str, MemoryPlan]:
        """What each of `plans` keeps alive, by fusion set; `memory` is the first."""
        return {
            name: self.memory if plan is self.kernels else self.memory.under(plan)
            for name, plan in self.plans.items()
        }

    def devices_of(self, fusion: str) -> list[str]:
        """Names of the devices whose runtime has this fusion set."""
        return [r.hardware.name for r in self.rooflines if r.plan.runtime == fusion]

    @cached_property
    def totals(self) -> Totals:
        """Sums over the model."""
        return total(self.cost)

    @cached_property
    def coverage(self) -> Coverage:
        """How many nodes have a cost, and which operators have none."""
        return coverage(self.cost)

    def refuse_gaps(self) -> None:
        """Raise where the totals are not those of the whole model.

        Raises:
            UnsupportedOperatorError: Operators without a formula, tensors without a shape (the
                first few are named), and loops of which only a run tells the trips: their totals
                are those of one trip.
        """
        unknown = sorted(self.coverage.unknown.items())
        reasons = [
            f"{quoted(name)} ({plural(count, 'node')}): {reason}"
            for name, (count, reason) in unknown
        ]
        few = self.unresolved[:_FEW]
        reasons += [f"shape of {quoted(item.tensor)}: {item.reason}" for item in few]
        if self.totals.per_trip:
            reasons.append("how often a loop runs is computed at run time: one trip is counted")
        if reasons:
            raise UnsupportedOperatorError([name for name, _ in unknown], reasons)

    @cached_property
    def formulas(self) -> ClosedForms:
        """Totals and output shapes as polynomials in the named free dimensions.

        Sizes of other dimensions are those of this analysis. Worked out on first use, from a few
        dozen concrete runs.
        """
        from onnxroof.formula import closed_forms, with_inputs_bound

        model = with_inputs_bound(self.model, self.inputs)
        return closed_forms(model, self.dims, memo=self.memo, runtime=self.kernels.runtime)

    def formula(self, quantity: str) -> Polynomial | NoFormula:
        """The closed form of one quantity: "macs", "flops", "output y[1]", … (see `formulas`).

        Raises:
            UsageError: There is no such quantity.
        """
        return self.formulas.formula(quantity)

    def to_dict(self) -> dict[str, object]:
        """The JSON report: base units, the unit in every key, deterministic order."""
        from onnxroof.document import as_dict

        return as_dict(self)

    def to_networkx(self) -> Digraph:
        """The graph with nodes' costs as attributes and tensors on the edges."""
        from onnxroof.graph.algorithms import as_networkx

        return as_networkx(self)
