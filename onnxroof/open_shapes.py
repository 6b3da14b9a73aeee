"""Shapes of inputs in which a name leaves a dimension open: `(batch, 3, 224, 224)`.

An export whose sizes are fixed has no free dimension to bind, to sweep or to write formulas in.
Such a shape gives it one: from here on the model is what it would be had the file said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from onnxroof.bindings import Bindings, by_name, check_inputs, spelled, whole_size
from onnxroof.errors import UsageError, quoted
from onnxroof.graph.types import SymbolicDim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.graph.types import Dim, GraphInput, Model


class OpenShapes(NamedTuple):
    """What input shapes with names in them make of a model.

    Attributes:
        model: With the named dimensions free.
        input_shapes: The shapes without a name, as they were given and not yet looked at.
        sizes: Of the file's own free dimensions, where an open shape has a number for one.
    """

    model: Model
    input_shapes: Mapping[str, object]
    sizes: dict[str, int]


def bound(
    model: Model,
    dims: Mapping[str, int] | None,
    input_shapes: Mapping[str, Sequence[int | str]] | None,
) -> tuple[Model, Bindings]:
    """The model with its dimensions open as asked, and the sizes to bind in it.

    Raises:
        ModelError, ShapeError, UsageError: As `with_open_shapes` and `Bindings.of`.
    """
    model, shapes, sizes = with_open_shapes(model, input_shapes)
    bindings = Bindings.of(dims, shapes)
    bindings.add(sizes)
    return model, bindings


def with_open_shapes(
    model: Model, input_shapes: Mapping[str, Sequence[int | str]] | None
) -> OpenShapes:
    """Make the dimensions free that a shape has a name for.

    Raises:
        UnknownDimensionError: A shape for an input that does not exist.
        ShapeError: An input is no tensor, or has another number of dimensions.
        UsageError: A size that cannot be, or another name for what is free already.
    """
    opened: dict[str, tuple[Dim, ...]] = {}
    others: dict[str, object] = {}
    for name, shape in by_name(input_shapes, "input_shapes", "{'x': (1, 3, 224, 224)}"):
        is_several = isinstance(shape, Iterable) and not isinstance(shape, str)
        listed = tuple(shape) if is_several else shape  # type: ignore[arg-type]
        if isinstance(listed, tuple) and any(isinstance(dim, str) for dim in listed):
            opened[name] = tuple([_dim(dim, name) for dim in listed])
        else:
            others[name] = listed
    if not opened:
        return OpenShapes(model, others, {})
    check_inputs(model.graph.inputs, opened)
    sizes: dict[str, int] = {}
    inputs = tuple([_opened(item, opened.get(item.name), sizes) for item in model.graph.inputs])
    said = [
        f"input {quoted(new.name)} is {_shown(new)} as given, where the file says {_shown(old)}"
        for old, new in zip(model.graph.inputs, inputs, strict=True)
        if new != old
    ]
    made = replace(with_inputs(model, inputs), assumptions=(*model.assumptions, *said))
    return OpenShapes(made, others, sizes)


def with_inputs(model: Model, inputs: tuple[GraphInput, ...]) -> Model:
    """The model with other types of its inputs.

    Where a size differs from a fixed one of the file, what the file says of the tensors behind it
    holds no longer.
    """
    graph = model.graph
    holds = all(
        new == old or isinstance(old, SymbolicDim)
        for before, after in zip(graph.inputs, inputs, strict=True)
        for old, new in zip(before.type.shape or (), after.type.shape or (), strict=False)
    )
    declared = graph.declared if holds else {}
    return replace(model, graph=replace(graph, inputs=inputs, declared=declared))


def _opened(item: GraphInput, shape: tuple[Dim, ...] | None, sizes: dict[str, int]) -> GraphInput:
    """The input with the shape given for it; numbers for free dimensions of the file to `sizes`."""
    if shape is None:
        return item
    declared = item.type.shape or shape
    dims: list[Dim] = []
    for axis, (old, new) in enumerate(zip(declared, shape, strict=True)):
        if isinstance(old, SymbolicDim) and old.named:
            _bind(item, axis, old, new, sizes)
            dims.append(old)
        else:
            dims.append(new)
    return replace(item, type=replace(item.type, shape=tuple(dims)))


def _bind(item: GraphInput, axis: int, old: SymbolicDim, new: Dim, sizes: dict[str, int]) -> None:
    """A dimension that is free already may keep its name or get a size."""
    where = f"dimension {axis} of input {quoted(item.name)}"
    if isinstance(new, SymbolicDim):
        if new.name != old.name:
            raise UsageError(
                f"{where} is free already, as {quoted(old.name)}: use that name, not "
                f"{quoted(new.name)}"
            )
    elif sizes.setdefault(old.name, new) != new:
        raise UsageError(
            f"{where}: {quoted(old.name)} is given as {sizes[old.name]} and as {new}; bind it once"
        )


def _shown(item: GraphInput) -> str:
    """The shape of an input in words."""
    return "of any shape" if item.type.shape is None else spelled(item.type.shape)


def _dim(given: object, name: str) -> Dim:
    """One entry of a shape for the named input."""
    if not isinstance(given, str):
        return whole_size(given, f"input {quoted(name)}")
    if not given.isidentifier():
        raise UsageError(
            f"input {quoted(name)}: a size is a whole number, or a name of letters, digits and _"
            f" where it is left open, as in ('batch', 3, 224, 224), got {given!r:.200}"
        )
    return SymbolicDim(given)
