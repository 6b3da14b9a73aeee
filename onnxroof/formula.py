"""Closed forms: totals and output shapes as polynomials in the model's free dimensions.

Counts are polynomials in the free dimensions almost everywhere, so they are interpolated from a
handful of concrete runs with exact rationals and verified at points that were not fitted. Strides
round, so where no polynomial holds for every size one is sought on multiples of 2, 4, … 64; where
none holds there either, that is said. Nothing of this is known to the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from onnxroof.bindings import Bindings, derived
from onnxroof.bounded import BoundedInt
from onnxroof.cost import count_costs, total
from onnxroof.errors import OnnxroofError
from onnxroof.fusion.plan import plan_kernels
from onnxroof.graph.types import Model, SymbolicDim
from onnxroof.memory import plan_memory
from onnxroof.polynomial import Polynomial, degree, interpolate
from onnxroof.shapes import Memo, infer_shapes

STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Multiples tried, in this order."""

_PROBES = 5
"""Points along one dimension: enough for degree 3 and one point that confirms it."""

_SMALLEST_SIZE = 16
"""Probing starts here, so that windows fit and sizes of 1, which broadcast, stay apart."""

_MOST_DIMENSIONS = 6

Quantities = Mapping[str, int]
Measure = Callable[[Mapping[str, int]], Quantities]


@dataclass(frozen=True, slots=True)
class ClosedForms:
    """Polynomials by quantity ("macs", "flops", "output y[1]", …) and why others have none.

    Attributes:
        dimensions: The free dimensions, in the order of the inputs.
        forms: The polynomials found and verified.
        missing: Quantity → reason, for those without one.
    """

    dimensions: tuple[str, ...]
    forms: Mapping[str, Polynomial]
    missing: Mapping[str, str]


class _NoFormError(Exception):
    """No polynomial: the message says why."""


def closed_forms(
    model: Model, sizes: Mapping[str, int], *, memo: Memo | None = None, runtime: str = "onnxruntime"
) -> ClosedForms:
    """Closed forms of a model in its named free dimensions.

    Args:
        model: The loaded model.
        sizes: Sizes at which the model is known to work; where probing finds no valid point in a
            dimension the size given here is tried around.
        memo: Results shared with other runs.
        runtime: Fusion rules for the traffic after fusion.
    """
    dimensions = free_dimensions(model)
    if not dimensions:
        return ClosedForms((), {}, {"all": "the model has no named free dimensions"})
    if len(dimensions) > _MOST_DIMENSIONS:
        return ClosedForms(
            dimensions, {}, {"all": f"more than {_MOST_DIMENSIONS} free dimensions: bind some"}
        )
    measure = _Measure(model, memo or Memo(), runtime)
    try:
        axes = {name: _axis(measure, dimensions, name, sizes) for name in dimensions}
    except _NoFormError as reason:
        return ClosedForms(dimensions, {}, {"all": str(reason)})
    return _fitted(measure, dimensions, axes)


def free_dimensions(model: Model) -> tuple[str, ...]:
    """Named free dimensions of the inputs, in order, without those that follow from others."""
    names = dict.fromkeys(
        dim.name
        for item in model.graph.inputs
        for dim in item.type.shape or ()
        if isinstance(dim, SymbolicDim) and dim.named
    )
    return tuple(name for name in names if derived(name, names) is None)


class _Measure:
    """Runs the counting stages at given sizes; each point once."""

    def __init__(self, model: Model, memo: Memo, runtime: str) -> None:
        self._model = model
        self._memo = memo
        self._runtime = runtime
        self._known: dict[tuple[tuple[str, int], ...], dict[str, int] | str] = {}

    def __call__(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Quantities at a point. Raises _NoFormError where the model cannot have these sizes."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            self._known[key] = self._run(sizes)
        result = self._known[key]
        if isinstance(result, str):
            raise _NoFormError(result)
        return result

    def _run(self, sizes: Mapping[str, int]) -> dict[str, int] | str:
        try:
            shaped, findings = infer_shapes(self._model.graph, Bindings.of(sizes), self._memo)
        except OnnxroofError as error:
            return str(error)
        if findings.problems:
            return str(findings.problems[0])
        cost = count_costs(shaped)
        kernels = plan_kernels(cost, self._runtime)
        totals = total(cost)
        quantities = {
            "macs": totals.macs,
            "flops": totals.flops,
            "transcendentals": totals.transcendentals,
            "parameters": totals.parameters,
            "weight_bytes": totals.weight_bytes,
            "traffic_bytes": totals.traffic_bytes,
            "fused_traffic_bytes": kernels.traffic_bytes,
            "peak_activation_bytes": plan_memory(kernels).peak_activation_bytes,
        }
        for name, info in zip(shaped.graph.outputs, shaped.outputs, strict=True):
            shape = info.shape if info.shape is not None else ()
            quantities[f"rank of {name}"] = -1 if info.shape is None else len(shape)
            for axis, dim in enumerate(shape):
                quantities[f"output {name}[{axis}]"] = dim
        return {key: value for key, value in quantities.items() if not isinstance(value, BoundedInt)}


@dataclass(frozen=True, slots=True)
class _Axis:
    """Points along one dimension, and the degree each quantity has on them."""

    step: int
    points: tuple[int, ...]
    degrees: Mapping[str, int]


def _axis(
    measure: _Measure, dimensions: tuple[str, ...], name: str, sizes: Mapping[str, int]
) -> _Axis:
    """The finest step on which MACs and FLOPs are polynomials of this dimension alone."""
    others = {other: sizes[other] for other in dimensions if other != name}
    reason = ""
    best: _Axis | None = None
    for step in STEPS:
        try:
            points, line = _probe(measure, name, step, sizes[name], others)
        except _NoFormError as error:
            reason = str(error)
            continue
        _refuse_changing_rank(name, line, measure, others)
        keys = set.intersection(*(set(quantities) for quantities in line))
        found = {key: degree(points, [quantities[key] for quantities in line]) for key in keys}
        known = {key: value for key, value in found.items() if value is not None}
        axis = _Axis(step, points, known)
        if best is None or len(known) > len(best.degrees):
            best = axis
        if len(known) == len(found):
            break
    if best is None:
        raise _NoFormError(f"dimension {name} cannot be varied: {reason}")
    return best


def _probe(
    measure: _Measure, name: str, step: int, size: int, others: Mapping[str, int]
) -> tuple[tuple[int, ...], list[dict[str, int]]]:
    """Quantities at points along one dimension: from a common start, else around a known size."""
    reason: _NoFormError | None = None
    around = max(size - size % step, step)
    for start in dict.fromkeys((max(_SMALLEST_SIZE, 2 * step), around, max(around - 4 * step, step))):
        points = tuple(start + step * i for i in range(_PROBES))
        try:
            return points, [measure({**others, name: point}) for point in points]
        except _NoFormError as error:
            reason = error
    raise reason or _NoFormError("no valid size was found")


def _refuse_changing_rank(
    name: str, line: list[dict[str, int]], measure: _Measure, others: Mapping[str, int]
) -> None:
    """The rank of an output must not depend on the dimension's size, 1 included."""
    ranks = [{k: v for k, v in point.items() if k.startswith("rank of ")} for point in line]
    try:
        one = measure({**others, name: 1})
        ranks.append({k: v for k, v in one.items() if k.startswith("rank of ")})
    except _NoFormError:
        pass
    for rank in ranks[1:]:
        for key, value in rank.items():
            if ranks[0].get(key) != value:
                raise _NoFormError(f"the {key} depends on {name}: bind it")


def _fitted(
    measure: _Measure, dimensions: tuple[str, ...], axes: Mapping[str, _Axis]
) -> ClosedForms:
    """Interpolate on the grid, then check at points that were not fitted."""
    names = set.intersection(*(set(axis.degrees) for axis in axes.values()))
    missing = {
        key: "no polynomial was found, on multiples of up to 64 either"
        for axis in axes.values()
        for key in set().union(*(set(other.degrees) for other in axes.values())) - set(axis.degrees)
    }
    names = {name for name in names if not name.startswith("rank of ")}
    degrees = {d: max((axes[d].degrees[name] for name in names), default=0) for d in dimensions}
    grid = [axes[d].points[: degrees[d] + 1] for d in dimensions]
    checks = [tuple(axes[d].points[-1] + axes[d].step * extra for d in dimensions) for extra in (0, 2)]
    try:
        values = {
            point: measure(dict(zip(dimensions, point, strict=True))) for point in product(*grid)
        }
        verified = {
            point: measure(dict(zip(dimensions, point, strict=True))) for point in checks
        }
    except _NoFormError as reason:
        return ClosedForms(dimensions, {}, {"all": str(reason)})
    forms: dict[str, Polynomial] = {}
    steps = {d: axes[d].step for d in dimensions}
    for name in sorted(names):
        if any(name not in quantities for quantities in (*values.values(), *verified.values())):
            missing[name] = "its size is only bounded at some sizes"
            continue
        terms = interpolate(grid, {point: found[name] for point, found in values.items()})
        form = Polynomial(dimensions, terms, steps)
        wrong = [
            point
            for point, found in verified.items()
            if form.at(**dict(zip(dimensions, point, strict=True))) != found[name]
        ]
        if wrong:
            missing[name] = "no polynomial: the one through the fitted points fails elsewhere"
        else:
            forms[name] = form
    return ClosedForms(dimensions, forms, missing)
