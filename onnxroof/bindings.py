"""Sizes for the dimensions a file leaves open: what the user bound, and what is assumed.

The leading dimension of a graph input is 1 unless bound, said as an assumption; every other free
dimension must be bound. A name that is arithmetic over others ("past_sequence + 1", as exporters
write it) follows from them. Names that nobody uses are an error, with the nearest match.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from onnxroof.errors import (
    InvalidGraphError,
    ShapeError,
    UnboundDimensionError,
    UnknownDimensionError,
    UsageError,
    quoted,
)
from onnxroof.graph.types import SymbolicDim, is_countable
from onnxroof.ops.call import TensorInfo
from onnxroof.ops.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onnxroof.graph.types import Graph, GraphInput, ValueType

MOST_BYTES_LOG2 = 62
"""A dimension beyond 2^62 is refused: no tensor of that size exists."""


@dataclass(slots=True)
class Bindings:
    """Sizes by name of the dimension, and sentences about what was assumed.

    `sizes` grows while inputs are bound: `--input` binds the names in that input's shape too.
    `resized` is whether an input has another size than the file fixes; what the file says of the
    tensors behind it holds no longer then.
    """

    sizes: dict[str, int]
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    free_names: tuple[str, ...] = ()
    resized: bool = False
    _inputs: tuple[GraphInput, ...] = ()

    @classmethod
    def of(
        cls,
        dims: Mapping[str, int] | None = None,
        input_shapes: Mapping[str, object] | None = None,
    ) -> Bindings:
        """Bindings as the caller gave them. Raises UsageError for sizes that cannot be."""
        sizes = {
            name: whole_size(size, f"dimension {quoted(name)}")
            for name, size in by_name(dims, "dims", "{'batch': 8}")
        }
        shapes = {
            name: _whole_shape(shape, f"input {quoted(name)}")
            for name, shape in by_name(input_shapes, "input_shapes", "{'x': (1, 3, 224, 224)}")
        }
        return cls(sizes, shapes)

    def add(self, sizes: Mapping[str, int]) -> None:
        """Bind further names. Raises UsageError for one that is bound to another size."""
        for name, size in sizes.items():
            if self.sizes.setdefault(name, size) != size:
                raise UsageError(
                    f"dimension {quoted(name)} is bound to {self.sizes[name]} and to {size}: "
                    "bind it once"
                )

    def resolve(self, name: str) -> int | None:
        """The size bound to a name, or that follows from bound ones, noting what was used."""
        size = self.sizes.get(name)
        if size is not None:
            self.used.add(name)
            return size
        expression = derived(name, self.sizes)
        if expression is None:
            return None
        self.used.update(expression.names)
        size = expression(self.sizes)
        return whole_size(size, f"dimension {quoted(name)}")

    def bind_inputs(self, graph: Graph) -> dict[str, TensorInfo]:
        """Every run-time input of the graph with all its sizes known.

        Raises:
            UnboundDimensionError: Free dimensions other than the leading one are not bound.
            UnknownDimensionError: `input_shapes` names an input that does not exist.
            ShapeError: An input has another number of dimensions than bound.
        """
        check_inputs(graph.inputs, self.input_shapes)
        self._bind_names_of_shapes(graph.inputs)
        self._inputs = graph.inputs
        self.free_names = free_names(graph.inputs)
        self._assume_leading(graph.inputs)
        missing: dict[str, str] = {}
        infos = {item.name: self._input_info(item, missing) for item in graph.inputs}
        for name, info in infos.items():
            if info.shape is not None and not is_countable(info.shape):
                raise InvalidGraphError(
                    f"input {quoted(name)}",
                    f"has more than 2^63 elements ({spelled(info.shape):.200}): bind smaller sizes",
                )
        if missing:
            self._check_misspelled(missing)
            given = {*missing, *self.sizes}
            needed = [item for item in missing.items() if derived(item[0], given) is None]
            raise UnboundDimensionError(tuple(needed))
        return infos

    def _bind_names_of_shapes(self, inputs: Iterable[GraphInput]) -> None:
        for item in inputs:
            shape = self.input_shapes.get(item.name)
            for dim, size in zip(item.type.shape or (), shape or (), strict=False):
                if isinstance(dim, SymbolicDim) and dim.named:
                    bound = self.sizes.setdefault(dim.name, size)
                    self.used.add(dim.name)
                    if bound != size:
                        raise UsageError(
                            f"dimension {quoted(dim.name)} is bound to {bound} and, through input "
                            f"{quoted(item.name)}, to {size}: bind it once"
                        )

    def _assume_leading(self, inputs: Iterable[GraphInput]) -> None:
        for item in inputs:
            dims = item.type.shape
            if not dims or item.name in self.input_shapes or not isinstance(dims[0], SymbolicDim):
                continue
            lead = dims[0]
            if lead.name in self.sizes or derived(lead.name, self.free_names) is not None:
                continue
            self.sizes[lead.name] = 1
            self.used.add(lead.name)
            if lead.named:
                self.assumptions.append(
                    f"{_plain(lead.name)} = 1: the leading dimension of {quoted(item.name)} is free"
                    f" and was not bound ({_flag(lead.name)})"
                )
            else:
                self.assumptions.append(
                    f"the unnamed dynamic dimension 0 of input {quoted(item.name)} is taken as 1 "
                    f"(--input {item.name}={_flag_shape(dims)})"
                )

    def _input_info(self, item: GraphInput, missing: dict[str, str]) -> TensorInfo:
        kind = item.type
        if item.name in self.input_shapes:
            shape = self.input_shapes[item.name]
            if kind.shape and any(
                isinstance(dim, int) and dim != size
                for dim, size in zip(kind.shape, shape, strict=True)
            ):
                self.resized = True
                self.assumptions.append(
                    f"input {quoted(item.name)} is {spelled(shape)} as bound, "
                    f"where the file says {spelled(kind.shape)}"
                )
            return TensorInfo(kind.dtype, shape)
        if kind.kind != "tensor" or kind.shape is None:
            return declared_info(kind, self)
        dims: list[int] = []
        for dim in kind.shape:
            size = dim if isinstance(dim, int) else self.resolve(dim.name)
            if size is None and isinstance(dim, SymbolicDim):
                missing[dim.name] = (
                    _flag(dim.name)
                    if dim.named
                    else f"--input {item.name}={_flag_shape(kind.shape)}"
                )
            dims.append(size or 0)
        return TensorInfo(kind.dtype, tuple(dims))

    def _check_misspelled(self, missing: Iterable[str]) -> None:
        """Raise UnknownDimensionError for a bound name that looks like one still without a size."""
        for name in self.sizes:
            close = difflib.get_close_matches(name, missing, n=1)
            starts = [other for other in missing if other.startswith(name)]
            if name not in self.used and name not in self.free_names and (close or starts):
                raise UnknownDimensionError(
                    "free dimension", name, close or starts, self.free_names
                )

    def check_all_used(self, also_known: Iterable[str] = ()) -> None:
        """Raise UnknownDimensionError for a bound name that nothing in the model has."""
        known = (*self.free_names, *also_known)
        for name in self.sizes:
            if name not in self.used and name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                opens = opening(name, self._inputs)
                raise UnknownDimensionError("free dimension", name, close, known, opens)


def free_names(inputs: Iterable[GraphInput]) -> tuple[str, ...]:
    """Names of the free dimensions of some inputs, in order."""
    dims = [dim for item in inputs for dim in item.type.shape or ()]
    return tuple(dict.fromkeys([dim.name for dim in dims if isinstance(dim, SymbolicDim)]))


def opening(name: str, inputs: Iterable[GraphInput]) -> str:
    """The option that makes a dimension of this name of the first one an input has; "" for none."""
    for item in inputs:
        if item.type.shape:
            lead = name if name.isidentifier() else "batch"
            comma = "," if len(item.type.shape) == 1 and "x" in lead else ""
            shape = ",".join(map(_plain, (lead, *item.type.shape[1:])))
            return f"--input {_plain(item.name)}={shape}{comma}"
    return ""


@lru_cache(maxsize=1024)
def _arithmetic(name: str) -> Expression | None:
    """The name read as arithmetic over other names; None for a plain name or number."""
    if name.isidentifier():
        return None
    try:
        expression = Expression(name)
    except UsageError:
        return None
    return expression if expression.names else None


def derived(name: str, known: Collection[str]) -> Expression | None:
    """How a dimension follows from known ones: "past_sequence + 1" from "past_sequence"."""
    expression = _arithmetic(name)
    if expression is None or name in expression.names:
        return None
    return expression if all(part in known for part in expression.names) else None


def declared_info(kind: ValueType, bindings: Bindings) -> TensorInfo:
    """A declared type as known at these bindings; the shape is None where a name is not bound."""
    if kind.kind == "opaque":
        return TensorInfo(None, None)
    if kind.kind != "tensor":
        element = declared_info(kind.element, bindings) if kind.element else None
        return TensorInfo(element.dtype if element else None, None, kind=kind.kind, element=element)
    if kind.shape is None:
        return TensorInfo(kind.dtype, None)
    dims = tuple(dim if isinstance(dim, int) else bindings.resolve(dim.name) for dim in kind.shape)
    known = tuple(dim for dim in dims if dim is not None)
    return TensorInfo(kind.dtype, known if len(known) == len(dims) else None)


def check_inputs(
    inputs: Iterable[GraphInput], shapes: Mapping[str, Sequence[int | SymbolicDim]]
) -> None:
    """Refuse a shape for an input that is not there, or that has other dimensions in number."""
    known = {item.name: item for item in inputs}
    for name, shape in shapes.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise UnknownDimensionError("input", name, close, tuple(known))
        kind, declared = known[name].type.kind, known[name].type.shape
        if kind != "tensor":
            raise ShapeError(
                f"input {quoted(name)}: is of type {kind} and has no shape to be bound"
            )
        if declared is not None and len(declared) != len(shape):
            raise ShapeError(
                f"input {quoted(name)}: has {len(declared)} dimensions ({spelled(declared)}), "
                f"{len(shape)} were bound ({spelled(shape)})"
            )


def by_name(given: object, argument: str, example: str) -> Iterable[tuple[str, object]]:
    """The entries of an argument. Raises UsageError for anything but a mapping from names."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UsageError(f"{argument} {given!r:.200}: a mapping by name is meant, as in {example}")
    return given.items()


def _whole_shape(shape: object, where: str) -> tuple[int, ...]:
    if not isinstance(shape, Iterable):
        raise UsageError(f"{where}: a shape is a sequence of sizes, got {shape!r:.200}")
    return tuple([whole_size(size, where) for size in shape])


def whole_size(size: object, where: str) -> int:
    """The size as a plain int, whatever kind of integer it is. Raises UsageError for others."""
    if not isinstance(size, SupportsIndex) or isinstance(size, bool):
        raise UsageError(f"{where}: a size must be a whole number from 0 on, got {size!r:.200}")
    try:
        whole = index(size)
    except TypeError:  # an array of several
        whole = -1
    if not 0 <= whole < 1 << MOST_BYTES_LOG2:
        most = f"2^{MOST_BYTES_LOG2}"
        raise UsageError(
            f"{where}: a size must be a whole number from 0 to below {most}, got {size!r:.200}"
        )
    return whole


def spelled(shape: Iterable[int | SymbolicDim]) -> str:
    """A shape as a text: 1×3×224×224."""
    return "×".join(map(_plain, shape)) or "scalar"


def _plain(name: object) -> str:
    """A size or name as it is, or quoted where it could be read as something else."""
    text = str(name)
    shown = quoted(text)
    is_plain = text.isidentifier() or text.isdecimal()
    return text if is_plain and shown == f"'{text}'" else shown  # another text where it is cut


def _flag(name: str) -> str:
    """The option that binds a dimension, to be pasted."""
    return f"--dim {name}=N" if _plain(name) == name else f"--dim {quoted(f'{name}=N')}"


def _flag_shape(shape: Iterable[int | SymbolicDim]) -> str:
    return "x".join(str(dim) if isinstance(dim, int) else "N" for dim in shape)
