"""The quantities of a model at concrete sizes, each point run once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxroof.bindings import Bindings
from onnxroof.bounded import BoundedInt, upper
from onnxroof.cost import count_costs, total
from onnxroof.errors import OnnxroofError
from onnxroof.fusion.plan import plan_kernels
from onnxroof.memory import plan_memory
from onnxroof.shapes import infer_shapes

if TYPE_CHECKING:
    from onnxroof.cost import Totals
    from onnxroof.graph.types import Model
    from onnxroof.polynomial import Sense
    from onnxroof.shapes import Memo, ShapedGraph

QUANTITIES = (
    "macs", "flops", "transcendentals", "parameters", "weight_bytes", "traffic_bytes",
    "fused_traffic_bytes", "peak_activation_bytes",
)  # fmt: skip
"""Totals that have a formula; beside them every output size, as "output y[0]"."""

_SUMS = ("macs", "flops", "transcendentals", "traffic_bytes", "fused_traffic_bytes")

RANK = "rank of "
"""Prefix of the number of dimensions of an output, which must not depend on sizes."""

Sizes = Mapping[str, int]


class NoFormError(Exception):
    """No polynomial: the message says why."""


class Measure:
    """Runs the counting stages at given sizes.

    `senses` tells which quantities turned out to be bounds ("at most") or sums with parts missing
    ("at least", "per trip") at any point.
    """

    def __init__(self, model: Model, memo: Memo, runtime: str) -> None:
        self._model = model
        self._memo = memo
        self._runtime = runtime
        self._known: dict[tuple[tuple[str, int], ...], dict[str, int] | str] = {}
        self.senses: dict[str, Sense] = {}

    def __call__(self, sizes: Sizes) -> dict[str, int]:
        """Quantities at a point. Raises NoFormError where the model cannot have these sizes."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            self._known[key] = self._run(sizes)
        result = self._known[key]
        if isinstance(result, str):
            raise NoFormError(result)
        return result

    def accepts(self, sizes: Sizes) -> bool:
        """Whether the model can have these sizes."""
        try:
            self(sizes)
        except NoFormError:
            return False
        return True

    def takes(self, sizes: Sizes) -> bool:
        """The same by the shapes alone, for a point whose quantities nobody asks for."""
        return not isinstance(self._shaped(sizes), str)

    def _shaped(self, sizes: Sizes) -> ShapedGraph | str:
        """The sized graph, or why the model cannot have these sizes."""
        try:
            shaped, findings = infer_shapes(self._model.graph, Bindings.of(sizes), self._memo)
        except OnnxroofError as error:
            return str(error)
        return str(findings.problems[0]) if findings.problems else shaped

    def _run(self, sizes: Sizes) -> dict[str, int] | str:
        shaped = self._shaped(sizes)
        if isinstance(shaped, str):
            return shaped
        cost = count_costs(shaped)
        kernels = plan_kernels(cost, self._runtime)
        memory = plan_memory(kernels)
        totals = total(cost)
        quantities = {
            "macs": totals.macs,
            "flops": totals.flops,
            "transcendentals": totals.transcendentals,
            "parameters": totals.parameters,
            "weight_bytes": totals.weight_bytes,
            "traffic_bytes": totals.traffic_bytes,
            "fused_traffic_bytes": kernels.traffic_bytes,
            "peak_activation_bytes": memory.peak_activation_bytes,
        }
        self._note_senses(totals, memory_at_least=memory.is_lower_bound)
        for name, info in zip(shaped.graph.outputs, shaped.outputs, strict=True):
            shape = info.shape if info.shape is not None else ()
            quantities[f"{RANK}{name}"] = -1 if info.shape is None else len(shape)
            quantities.update((f"output {name}[{axis}]", dim) for axis, dim in enumerate(shape))
        for name, value in quantities.items():
            if isinstance(value, BoundedInt):
                self.senses.setdefault(name, "at most")
        return {name: upper(value) for name, value in quantities.items()}

    def _note_senses(self, totals: Totals, *, memory_at_least: bool) -> None:
        if totals.per_trip:
            self.senses.update(dict.fromkeys(_SUMS, "per trip"))
        elif totals.is_lower_bound:
            self.senses.update(dict.fromkeys(_SUMS, "at least"))
        if memory_at_least:
            self.senses["peak_activation_bytes"] = "at least"
