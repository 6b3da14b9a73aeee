"""All dimensions together: fit on a grid, verify off it, say where the result holds."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from itertools import product
from math import isqrt
from typing import TYPE_CHECKING

from onnxroof.bindings import Bindings, check_inputs, derived, opening
from onnxroof.errors import UnknownDimensionError, UsageError, quoted
from onnxroof.formula.measure import QUANTITIES, RANK, Measure, NoFormError, Sizes
from onnxroof.formula.probe import STEPS, axis_of
from onnxroof.graph.load import load_model
from onnxroof.graph.types import Model, SymbolicDim, ValueType
from onnxroof.open_shapes import with_inputs, with_open_shapes
from onnxroof.ops.call import TensorInfo
from onnxroof.polynomial import Polynomial, interpolate
from onnxroof.shapes import Memo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.formula.probe import Axis
    from onnxroof.graph.load import ModelSource
    from onnxroof.graph.types import Dim, GraphInput

    Point = tuple[int, ...]

_STARTS = (32, 224, 64, 128, 8, 2, 1, 512)
"""Sizes tried for dimensions that nobody bound."""

_MOST_DIMENSIONS = 6

_FAR = 10_000
"""Sizes from here on are looked at in one dimension alone."""

_MOST_MIXED = 3
"""Dimensions of which small, middle and large sizes are all put together; of more, fewer are."""


@dataclass(frozen=True, slots=True)
class NoFormula:
    """Why a quantity has no closed form."""

    quantity: str
    reason: str

    def __str__(self) -> str:
        return f"no formula: {self.reason}"


@dataclass(frozen=True, slots=True)
class ClosedForms:
    """Polynomials by quantity and why others have none.

    Attributes:
        dimensions: The free dimensions, in the order of the inputs.
        forms: The polynomials found and verified, by quantity ("macs", "output y[1]", …).
        missing: Quantity → reason, for those without one.
        reason: Why nothing has one; "" when formulas were sought one by one.
        largest: Dimension → a size the model takes where it refuses the next one, whatever the
            other sizes: a table of positions ends.
    """

    dimensions: tuple[str, ...]
    forms: Mapping[str, Polynomial]
    missing: Mapping[str, str]
    reason: str = ""
    largest: Mapping[str, int] = field(default_factory=dict)

    def formula(self, quantity: str) -> Polynomial | NoFormula:
        """The closed form of one quantity, or why it has none.

        Raises:
            UsageError: There is no such quantity.
        """
        form = self.forms.get(quantity)
        if form is not None:
            return form
        if quantity in self.missing:
            return NoFormula(quantity, self.missing[quantity])
        if self.reason and (quantity in QUANTITIES or quantity.startswith("output ")):
            return NoFormula(quantity, self.reason)
        known = (*QUANTITIES, *sorted({*self.forms, *self.missing} - set(QUANTITIES)))
        close = difflib.get_close_matches(quantity, known, n=1)
        hint = f"; did you mean {quoted(close[0])}?" if close else ""
        listed = ", ".join(map(quoted, known))
        raise UsageError(f"quantity {quoted(quantity)} is not known{hint} (known: {listed})")


def formulas_of(
    source: ModelSource,
    *,
    dims: Sizes | None = None,
    input_shapes: Mapping[str, tuple[int | str, ...]] | None = None,
) -> ClosedForms:
    """Closed forms of a model file in its named free dimensions.

    Args:
        source: Path, bytes or ModelProto.
        dims: Sizes at which the model is known to work, as for `closed_forms`.
        input_shapes: Shapes of inputs, as for `analyze`: unnamed dimensions are then fixed, and
            a name leaves its dimension free.

    Raises:
        ModelError: The file cannot be read.
        UnknownDimensionError: A dimension or input that the model does not have.
    """
    model, shapes, sizes = with_open_shapes(load_model(source), input_shapes)
    inputs, bound = model.graph.inputs, Bindings.of(None, shapes).input_shapes
    check_inputs(inputs, bound)
    named = free_dimensions(model)
    for name in dims or {}:
        if name not in named and derived(name, named) is None:
            close = difflib.get_close_matches(name, named)
            raise UnknownDimensionError("free dimension", name, close, named, opening(name, inputs))
    types = {item.name: item.type.dtype for item in inputs}
    infos = {name: TensorInfo(types[name], shape) for name, shape in bound.items()}
    return closed_forms(with_inputs_bound(model, infos), {**sizes, **(dims or {})})


def closed_forms(
    model: Model,
    sizes: Sizes | None = None,
    *,
    memo: Memo | None = None,
    runtime: str = "onnxruntime",
) -> ClosedForms:
    """Closed forms of a model in its named free dimensions.

    Args:
        model: The loaded model.
        sizes: Sizes at which the model is known to work, by dimension: where probing finds no
            valid point in a dimension, points around the size given here are tried. Names that
            are no free dimension (data-dependent sizes) stay fixed at these sizes.
        memo: Results shared with other runs.
        runtime: Fusion rules for the traffic after fusion.
    """
    dimensions = free_dimensions(model)
    if len(dimensions) > _MOST_DIMENSIONS:
        reason = f"{len(dimensions)} free dimensions are more than {_MOST_DIMENSIONS}: bind some"
        return ClosedForms(dimensions, {}, {}, reason)
    measure = Measure(model, memo or Memo(), runtime)
    given = {n: size for n, size in (sizes or {}).items() if derived(n, dimensions) is None}
    try:
        known = _working_sizes(measure, dimensions, given)
        axes = {name: axis_of(measure, name, known) for name in dimensions}
        return _Fit(measure, axes, known).closed_forms()
    except NoFormError as reason:
        return ClosedForms(dimensions, {}, {}, str(reason))


def free_dimensions(model: Model) -> tuple[str, ...]:
    """Named free dimensions of the inputs, in order, without those that follow from others."""
    names = dict.fromkeys(
        dim.name
        for item in model.graph.inputs
        for dim in item.type.shape or ()
        if isinstance(dim, SymbolicDim) and dim.named
    )
    return tuple(name for name in names if derived(name, names) is None)


def with_inputs_bound(model: Model, inputs: Mapping[str, TensorInfo]) -> Model:
    """The model with every input as it was bound; only named free dimensions stay free."""
    bound = tuple(_as_bound(item, inputs.get(item.name)) for item in model.graph.inputs)
    return with_inputs(model, bound)


def _as_bound(item: GraphInput, info: TensorInfo | None) -> GraphInput:
    if info is None or info.shape is None:
        return item
    declared: tuple[Dim, ...] = info.shape if item.type.shape is None else item.type.shape
    dims = tuple(
        dim if isinstance(dim, SymbolicDim) and dim.named else size
        for dim, size in zip(declared, info.shape, strict=True)
    )
    return replace(item, type=ValueType(item.type.kind, item.type.dtype, dims, item.type.element))


def _working_sizes(measure: Measure, dimensions: tuple[str, ...], sizes: Sizes) -> Sizes:
    """Sizes for all dimensions at which the model works. Raises NoFormError when none are found."""
    unknown = [name for name in dimensions if name not in sizes]
    reason = ""
    for start in _STARTS if unknown else (0,):
        known = {**sizes, **dict.fromkeys(unknown, start)}
        try:
            measure(known)
        except NoFormError as error:
            reason = reason or str(error)
            continue
        return known
    hint = f" (bind {', '.join(unknown)} to sizes that work)" if unknown else ""
    raise NoFormError(f"{reason}{hint}")


class _Fit:
    """The axes with the grid fitted on them."""

    def __init__(self, measure: Measure, axes: Mapping[str, Axis], sizes: Sizes) -> None:
        self.measure = measure
        self.axes = axes
        self.sizes = sizes
        self.names = tuple(axes)
        everything = measure(sizes)
        lost = {key for axis in axes.values() for key in axis.lost}
        self.keys = [key for key in everything if key not in lost and not key.startswith(RANK)]
        degrees = {
            name: max((axis.courses[key].degree for key in self.keys), default=0)
            for name, axis in axes.items()
        }
        self.grid = [axis.near[: degrees[name] + 1] for name, axis in axes.items()]
        self.fitted = {point: self.at(point) for point in product(*self.grid)}

    def at(self, point: Point) -> dict[str, int]:
        """Quantities at a point. Raises NoFormError where the model cannot have these sizes."""
        return self.measure({**self.sizes, **dict(zip(self.names, point, strict=True))})

    def closed_forms(self) -> ClosedForms:
        """The form of every quantity that has one."""
        forms: dict[str, Polynomial] = {}
        missing = {
            key: f"no polynomial in {name} was found, on multiples of up to {STEPS[-1]} either"
            for name, axis in self.axes.items()
            for key in axis.lost
            if not key.startswith(RANK)
        }
        for key in self.keys:
            form = self._form(key)
            if form is None:
                missing[key] = "no polynomial: the one through the fitted points fails elsewhere"
            else:
                forms[key] = form
        largest = {n: axis.largest for n, axis in self.axes.items() if axis.largest is not None}
        return ClosedForms(self.names, forms, missing, largest=largest)

    def _form(self, key: str) -> Polynomial | None:
        terms = interpolate(self.grid, {point: found[key] for point, found in self.fitted.items()})
        steps = {name: axis.step for name, axis in self.axes.items()}
        form = Polynomial(self.names, terms, steps, self.measure.senses.get(key, "exactly"))
        if not all(self._agrees(form, key, point) is not False for point in self._between()):
            return None
        levels = max((axis.courses[key].highs for axis in self.axes.values()), default=0)
        for level, raised in product(range(levels, -1, -1), self._raised()):
            box = [
                (
                    axis.near[0] if name in raised else axis.courses[key].low or axis.lowest,
                    self._high(axis, key, level),
                )
                for name, axis in self.axes.items()
            ]
            if self._holds_in(form, key, box):
                return replace(form, limits=self._limits(box))
        return None

    def _raised(self) -> list[tuple[str, ...]]:
        """Dimensions whose smallest sizes are left out: none, else as few as will do."""
        return list(dict.fromkeys([(), *[(name,) for name in self.names], self.names]))

    def _high(self, axis: Axis, key: str, level: int) -> int:
        level = min(level, axis.courses[key].highs)
        return axis.highs[level - 1] if level else axis.near[-1]

    def _holds_in(self, form: Polynomial, key: str, box: Sequence[tuple[int, int]]) -> bool:
        """Whether the form is right at the corners of a box and between them.

        What is the smaller or larger of two things, as a peak is, changes from one to the other
        where all dimensions are small, or one is small and another large. The largest sizes of
        all together would be beyond every runtime; those were looked at alone.
        """
        axes = tuple(self.axes.values())
        highs = [
            min(high, self._largest_together(axis))
            for (_, high), axis in zip(box, axes, strict=True)
        ]
        if not self._agrees(form, key, tuple(highs)):
            return False
        sides = [
            self._side(low, high, axis.step)
            for (low, _), high, axis in zip(box, highs, axes, strict=True)
        ]
        if len(sides) > _MOST_MIXED:
            sides = [[side[0], side[-1]] for side in sides[:_MOST_MIXED]] + [
                [side[-1]] for side in sides[_MOST_MIXED:]
            ]
        return all(self._agrees(form, key, point) is not False for point in product(*sides))

    @staticmethod
    def _largest_together(axis: Axis) -> int:
        return max(x for x in (*axis.near, *axis.highs) if x < _FAR or x == axis.near[-1])

    @staticmethod
    def _side(low: int, high: int, step: int) -> list[int]:
        """The ends, and the multiple near their geometric mean."""
        middle = isqrt(low * high) // step * step
        return sorted({low, max(middle, low), high})

    def _limits(self, box: Sequence[tuple[int, int]]) -> dict[str, tuple[int | None, int | None]]:
        """Where the form was seen to hold, for dimensions where it fails or is not known beyond."""
        limits: dict[str, tuple[int | None, int | None]] = {}
        for (name, axis), (low, high) in zip(self.axes.items(), box, strict=True):
            top = (*axis.near, *axis.highs)[-1]
            first, last = low if low > axis.lowest else None, high if high < top else None
            if first is not None or last is not None:
                limits[name] = first, last
        return limits

    def _between(self) -> list[Point]:
        """Points off the grid and off the axes, dimensions moved apart."""
        axes: Sequence[Axis] = tuple(self.axes.values())
        return [
            tuple(axis.near[(i + shift) % 5] + 5 * axis.step for i, axis in enumerate(axes))
            for shift in (0, 2)
        ]

    def _agrees(self, form: Polynomial, key: str, point: Point) -> bool | None:
        """Whether the form gives the quantity at a point; None where the point is not valid."""
        try:
            found = self.at(point)
        except NoFormError:
            return None
        return form.at(**dict(zip(self.names, point, strict=True))) == found[key]
