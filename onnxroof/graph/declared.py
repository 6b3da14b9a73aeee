"""Declared types: what a file says of a value before anything is inferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnxroof.graph.types import DTYPE_BY_CODE, SymbolicDim, ValueType

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx

_NOT_A_NAME = frozenset({"", "?", "-1", "None", "*"})
"""What exporters write for a dimension without a name: two of them need not be equal."""


def value_type(proto: onnx.TypeProto, name: str) -> ValueType:
    """A declared type. An unnamed ("", "?") or negative dimension becomes a fresh SymbolicDim."""
    kind = proto.WhichOneof("value")
    if kind in {"tensor_type", "sparse_tensor_type"}:
        tensor = getattr(proto, kind)
        dtype = DTYPE_BY_CODE.get(tensor.elem_type)
        if not tensor.HasField("shape"):
            return ValueType("tensor", dtype)
        dims: list[int | SymbolicDim] = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            elif dim.dim_param.strip("?") not in _NOT_A_NAME:
                dims.append(SymbolicDim(dim.dim_param))
            else:
                dims.append(SymbolicDim(f"?{name}.{axis}", named=False))
        return ValueType("tensor", dtype, tuple(dims))
    if kind in ("sequence_type", "optional_type"):
        return ValueType(kind[:-5], element=value_type(getattr(proto, kind).elem_type, name))
    if kind == "map_type":
        return ValueType("map", element=value_type(proto.map_type.value_type, name))
    return ValueType("opaque")


class DeclaredTypes(Mapping[str, ValueType]):
    """The file's value_info, read when somebody asks: few models ever need it."""

    def __init__(self, graph: onnx.GraphProto, rename: Callable[[str], str]) -> None:
        self._graph = graph
        self._rename = rename
        self._index: dict[str, onnx.ValueInfoProto] | None = None

    def _by_name(self) -> dict[str, onnx.ValueInfoProto]:
        if self._index is None:
            protos = (*self._graph.value_info, *self._graph.output)
            self._index = {self._rename(proto.name): proto for proto in protos}
        return self._index

    def __getitem__(self, name: str) -> ValueType:
        return value_type(self._by_name()[name].type, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())

    def __reduce__(self) -> tuple[type[dict[str, ValueType]], tuple[dict[str, ValueType]]]:
        return (dict, (dict(self),))
