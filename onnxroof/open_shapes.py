"""Shapes of inputs in which a name leaves a dimension open: `(batch, 3, 224, 224)`.

An export whose sizes are fixed has no free dimension to bind, to sweep or to write formulas in.
Such a shape gives it one: from here on the model is what it would be had the file said so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.bindings import check_inputs, spelled, whole_size
from onnxroof.errors import UsageError, quoted
from onnxroof.graph.types import SymbolicDim

if TYPE_CHECKING:
    from onnxroof.graph.types import Dim, GraphInput, Model


def with_open_shapes(
    model: Model, input_shapes: Mapping[str, Sequence[int | str]] | None
) -> tuple[Model, Mapping[str, Sequence[int | str]] | None]:
    """The model with the dimensions free that a shape has a name for, and the shapes without names.

    A name of the file that such a shape replaces is replaced in all inputs.

    Raises:
        UnknownDimensionError: A shape for an input that does not exist.
        InvalidGraphError: An input has another number of dimensions than its shape.
        UsageError: A size that cannot be, or two replacements for one name.
    """
    if not isinstance(input_shapes, Mapping) or not any(map(_is_open, input_shapes.values())):
        return model, input_shapes
    opened = {
        name: tuple([_dim(dim, name) for dim in shape])
        for name, shape in input_shapes.items()
        if _is_open(shape)
    }
    others = {name: shape for name, shape in input_shapes.items() if name not in opened}
    inputs = model.graph.inputs
    check_inputs(inputs, opened)
    replaced = _replaced_names(inputs, opened)
    made = tuple([_with_shape(item, opened.get(item.name), replaced) for item in inputs])
    said = [
        f"input {quoted(new.name)} is {_spelled(new)} as given, where the file says {_spelled(old)}"
        for old, new in zip(inputs, made, strict=True)
        if new is not old
    ]
    graph = replace(model.graph, inputs=made)
    return replace(model, graph=graph, assumptions=(*model.assumptions, *said)), others


def _is_open(shape: object) -> bool:
    """Whether there is a name among the sizes."""
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        return False
    return any(isinstance(dim, str) for dim in shape)


def _spelled(item: GraphInput) -> str:
    """The shape of an input in words."""
    return "of any shape" if item.type.shape is None else spelled(item.type.shape)


def _dim(given: int | str, name: str) -> Dim:
    """One entry of a shape for the named input."""
    if not isinstance(given, str):
        return whole_size(given, f"input {quoted(name)}")
    if not given.strip() or given.isdecimal():
        raise UsageError(
            f"input {quoted(name)}: a size is a whole number, or a name where it is left open, as"
            f" in ('batch', 3, 224, 224), got {given!r:.200}"
        )
    return SymbolicDim(given)


def _replaced_names(
    inputs: Sequence[GraphInput], opened: Mapping[str, tuple[Dim, ...]]
) -> dict[str, Dim]:
    """Name of a dimension in the file → what stands in its place in a given shape."""
    replaced: dict[str, Dim] = {}
    for item in inputs:
        for old, new in zip(item.type.shape or (), opened.get(item.name, ()), strict=False):
            if isinstance(old, SymbolicDim) and replaced.setdefault(old.name, new) != new:
                raise UsageError(
                    f"dimension {quoted(old.name)} is given as {replaced[old.name]} and, through "
                    f"input {quoted(item.name)}, as {new}: give it once"
                )
    return replaced


def _with_shape(
    item: GraphInput, shape: tuple[Dim, ...] | None, replaced: Mapping[str, Dim]
) -> GraphInput:
    """The input with the shape given for it, or with the names of its own replaced."""
    declared = item.type.shape
    if shape is None and declared is not None:
        shape = tuple(
            [replaced.get(d.name, d) if isinstance(d, SymbolicDim) else d for d in declared]
        )
    if shape == declared:
        return item
    return replace(item, type=replace(item.type, shape=shape))
