"""What the file says, free of protobuf: element types, dimensions, constants, nodes, graphs.

Made by `onnxroof.graph.load`; every later stage reads these and never changes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray


class DType(Enum):
    """An ONNX element type: its code in the file, its short label, its bits per element.

    `bits` is None for strings, whose size only the data tell.
    """

    FLOAT = (1, "fp32", 32)
    UINT8 = (2, "uint8", 8)
    INT8 = (3, "int8", 8)
    UINT16 = (4, "uint16", 16)
    INT16 = (5, "int16", 16)
    INT32 = (6, "int32", 32)
    INT64 = (7, "int64", 64)
    STRING = (8, "string", None)
    BOOL = (9, "bool", 8)
    FLOAT16 = (10, "fp16", 16)
    DOUBLE = (11, "fp64", 64)
    UINT32 = (12, "uint32", 32)
    UINT64 = (13, "uint64", 64)
    COMPLEX64 = (14, "complex64", 64)
    COMPLEX128 = (15, "complex128", 128)
    BFLOAT16 = (16, "bf16", 16)
    FLOAT8E4M3FN = (17, "fp8e4m3fn", 8)
    FLOAT8E4M3FNUZ = (18, "fp8e4m3fnuz", 8)
    FLOAT8E5M2 = (19, "fp8e5m2", 8)
    FLOAT8E5M2FNUZ = (20, "fp8e5m2fnuz", 8)
    UINT4 = (21, "uint4", 4)
    INT4 = (22, "int4", 4)
    FLOAT4E2M1 = (23, "fp4e2m1", 4)
    FLOAT8E8M0 = (24, "fp8e8m0", 8)
    UINT2 = (25, "uint2", 2)
    INT2 = (26, "int2", 2)
    FLOAT6E2M3 = (27, "fp6e2m3", 6)
    FLOAT6E3M2 = (28, "fp6e3m2", 6)

    __hash__ = object.__hash__
    """Members are single objects; the inherited hash by name costs a call per memo look-up."""

    def __init__(self, code: int, label: str, bits: int | None) -> None:
        self.code = code
        self.label = label
        self.bits: int | None = bits
        self.is_float = label.startswith(("fp", "bf"))
        self.is_integer = label.startswith(("int", "uint"))

    @property
    def multiplied(self) -> DType:
        """Type of its multiply-accumulates: int8 for both signs of 8 bits, else its own."""
        return DType.INT8 if self is DType.UINT8 else self

    def nbytes(self, elements: int) -> int | None:
        """Bytes of `elements` packed elements, rounded up per tensor; None for strings."""
        return None if self.bits is None else -(-elements * self.bits // 8)


DTYPE_BY_CODE: Mapping[int, DType] = {member.code: member for member in DType}
"""ONNX TensorProto.DataType → DType."""

DTYPE_BY_LABEL: Mapping[str, DType] = {member.label: member for member in DType}
"""Our label → DType."""


MOST_ELEMENTS = (1 << 63) - 1
"""Elements of the largest tensor there can be: runtimes count them in signed 64 bits."""


def is_countable(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape has at most `MOST_ELEMENTS`; sizes are not negative."""
    elements = int(0 not in shape)
    for dim in shape:
        elements *= int(dim)
        if elements > MOST_ELEMENTS:
            return False
    return True


@dataclass(frozen=True, slots=True)
class SymbolicDim:
    """A dimension the file leaves open. `named` is False for one without a name of its own."""

    name: str
    named: bool = True

    def __str__(self) -> str:
        return self.name


Dim = int | SymbolicDim
DeclaredShape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class ValueType:
    """A declared type: a tensor, or a sequence, optional or map around one.

    `kind` is "tensor", "sequence", "optional", "map" or "opaque"; `element` is the type inside a
    sequence, optional or map. `shape` is None when not even the rank is declared.
    """

    kind: str
    dtype: DType | None = None
    shape: DeclaredShape | None = None
    element: ValueType | None = None


@dataclass(frozen=True, slots=True)
class GraphInput:
    """A run-time input of a graph (initializers that old files list as inputs are not)."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Payload:
    """Where the bytes of a tensor lie, for the weight lint; never read to count.

    `file` is None for the model file itself, else the external data file's path as written.
    `encoding` is "raw" (little-endian elements) or the typed protobuf field ("float_data", …).
    """

    file: str | None
    offset_bytes: int
    length_bytes: int | None
    encoding: str = "raw"


class Constant:
    """An initializer, Constant node or tensor attribute: type, dimensions and where its bytes are.

    Two are equal when the elements of both were kept and are the same: so are nodes with equal
    attributes. `identity` tells stored tensors apart.

    Attributes:
        name: The tensor's name.
        dtype: Element type.
        shape: Dimensions; all exact.
        stored_bytes: Bytes as stored: packed, or values and indices of a sparse tensor;
            None for strings.
        nonzeros: Stored elements of a sparse tensor; None for a dense one.
        raw: The elements of a tiny tensor as little-endian bytes, where they were kept.
        origin: "initializer", "Constant" or "attribute".
        identity: The same for names that share one stored tensor, which is then counted once.
        renamed: Whether it is another's tensor under a further name.
    """

    __slots__ = (
        "_payload", "_value", "dtype", "identity", "name", "nonzeros", "origin", "raw", "renamed",
        "shape", "stored_bytes",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - a record has as many fields as it has
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        stored_bytes: int | None,
        raw: bytes | None = None,
        value: NDArray[np.generic] | None = None,
        payload: Payload | tuple[str | None, int, int | None, str] | bytes | None = None,
        nonzeros: int | None = None,
        origin: str = "initializer",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.stored_bytes = stored_bytes
        self._payload = payload
        self.nonzeros = nonzeros
        self.origin = origin
        self.identity = object()  # not itself: a cycle would keep it, and the file, alive
        self.renamed = False
        if raw is None and value is not None and not value.dtype.hasobject:
            raw = value.astype(value.dtype.newbyteorder("<")).tobytes()
        self.raw = raw
        self._value = value

    @property
    def value(self) -> NDArray[np.generic] | None:
        """The elements of a tiny tensor kept in the graph; None for anything larger."""
        if self._value is None and self.raw is not None:
            from onnxroof.graph.values import decode_raw

            self._value = decode_raw(self.raw, self.dtype, self.shape)
        return self._value

    @property
    def payload(self) -> Payload | None:
        """Where the bytes lie when they were left in the file; made of what says so when asked."""
        place = self._payload
        if isinstance(place, tuple):
            place = self._payload = Payload(*place)
        elif isinstance(place, bytes):
            from onnxroof.graph.tensors import external_payload

            place = self._payload = external_payload(place)
        return place

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Constant):
            return self is other
        return (
            self.raw is not None
            and self.raw == other.raw
            and self.dtype is other.dtype
            and self.shape == other.shape
        )

    def __hash__(self) -> int:
        if self.raw is None:
            return object.__hash__(self)
        return hash((self.dtype, self.shape, self.raw))

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        self._payload = self.payload
        return None, {name: getattr(self, name) for name in self.__slots__}

    @property
    def may_have_value(self) -> bool:
        """Whether the elements were kept with the graph."""
        return self._value is not None or self.raw is not None

    def again(self, name: str) -> Constant:
        """Another stored tensor that holds the same."""
        return Constant(
            name, self.dtype, self.shape, self.stored_bytes, self.raw, self._value, self._payload,
            self.nonzeros, self.origin,
        )  # fmt: skip

    def under(self, name: str) -> Constant:
        """The same stored tensor under the name a further call of its function gives it."""
        copy = self.again(name)
        copy.identity, copy.renamed = self.identity, True
        return copy

    def __repr__(self) -> str:
        return f"Constant({self.name!r}, {self.dtype.label}, {self.shape})"


AttributeValue = (
    float | int | str | tuple[float, ...] | tuple[int, ...] | tuple[str, ...]
    | Constant | tuple[Constant, ...] | ValueType | tuple[ValueType, ...]
)  # fmt: skip


_KNOWN_DOMAINS = frozenset(
    {"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft",
     "com.microsoft.nchwc", "com.ms.internal.nhwc"}
)  # fmt: skip
"""Domains in which a type of operator is what the other ones mean by it."""


class Node:
    """One operator call. Never changed once made.

    Attributes:
        index: Position in execution order within its graph, its identity everywhere, since names
            may be empty or repeat.
        name: As in the file; "" when it has none.
        domain: "" for ai.onnx.
        op_type: The operator.
        kind: What rules know the operator by: its type, with the domain in front where that is
            none of ONNX's and ONNX Runtime's own, which may call anything a Relu.
        opset: The opset version of the domain that holds here.
        inputs: Tensor names; an absent optional input is "".
        outputs: Tensor names; an output nobody wants is "".
        attributes: (name, value) pairs as in the file, hashable.
        subgraphs: (attribute, body) pairs.
    """

    __slots__ = (
        "_scope", "attributes", "domain", "index", "inputs", "kind", "name", "op_type", "opset",
        "outputs", "subgraphs",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - a record has as many fields as it has
        self,
        name: str,
        domain: str,
        op_type: str,
        opset: int,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: tuple[tuple[str, AttributeValue], ...] = (),
        subgraphs: tuple[tuple[str, Graph], ...] = (),
        scope: str | None = None,
        index: int = 0,
    ) -> None:
        self.name = name
        self.domain = domain
        self.op_type = op_type
        self.kind = op_type if domain in _KNOWN_DOMAINS else f"{domain}.{op_type}"
        self.opset = opset
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        self.subgraphs = subgraphs
        self._scope = scope
        self.index = index

    @property
    def scope(self) -> str:
        """The module path the exporter recorded ("encoder/layer.0/attention"), "" for none."""
        if self._scope is None:
            return self.name.rpartition("/")[0].lstrip("/")
        return self._scope

    @property
    def label(self) -> str:
        """The name, or for a nameless node its operator and position, e.g. "Relu#12"."""
        return self.name or f"{self.op_type}#{self.index}"

    @property
    def reads(self) -> tuple[str, ...]:
        """Inputs, and what the bodies capture from outside."""
        if not self.subgraphs:
            return self.inputs
        return (*self.inputs, *(name for _, graph in self.subgraphs for name in graph.captures))

    def __repr__(self) -> str:
        return f"Node({self.label!r}, {self.op_type}, {self.inputs} -> {self.outputs})"


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph or the body of a control-flow operator, nodes in execution order.

    `captures` are the names a body reads from the graphs around it. `declared` are the file's
    value_info types, consulted only past an operator nobody knows.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Constant]
    declared: Mapping[str, ValueType]
    captures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model file.

    `file_bytes` is the size of the model file, `external_files` the data files it names (never
    opened). `assumptions` are sentences about repairs made while loading.
    """

    graph: Graph
    opsets: Mapping[str, int]
    ir_version: int
    producer: str
    path: str | None
    file_bytes: int
    external_files: tuple[str, ...]
    assumptions: tuple[str, ...] = field(default=())
