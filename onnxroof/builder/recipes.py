"""What a node of a `GraphBuilder` is: operator, attributes, own weights, and the sized call.

Equal nodes of all graphs share one recipe, made once by the same walk that sizes files. A recipe
is found by a key of plain numbers and the (shared) descriptions of its inputs.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from onnxroof.bindings import Bindings
from onnxroof.cost import Role, Status, count_costs
from onnxroof.errors import NodeProblem, ShapeMismatchError, UsageError, quoted
from onnxroof.graph.types import Constant, DType, Graph, GraphInput, Node, ValueType
from onnxroof.graph.values import NUMPY_TYPE
from onnxroof.ops.call import TensorInfo
from onnxroof.shapes import Memo, ShapedGraph, infer_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxroof.graph.types import AttributeValue
    from onnxroof.ops.call import OpCall

OPSET = 21
"""The opset version of ai.onnx in which graphs are written; other domains are at version 1."""

Attributes = tuple[tuple[str, "AttributeValue"], ...]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """A weight, which has no values, or a constant, which has (`values`, row by row).

    `suffix` names the weight of a node after its part: "weight", "bias".
    """

    dtype: DType
    shape: tuple[int, ...]
    values: tuple[float, ...] | None = None
    suffix: str = ""

    def info(self) -> TensorInfo:
        """Its description."""
        return TensorInfo(self.dtype, self.shape, constant=True, source=self.constant(""))

    def constant(self, name: str) -> Constant:
        """As a graph holds it: a literal where values are known, else an initializer."""
        nbytes = self.dtype.nbytes(math.prod(self.shape))
        kind = NUMPY_TYPE.get(self.dtype)
        if self.values is None or kind is None:
            return Constant(name, self.dtype, self.shape, nbytes)
        value = np.array(self.values, dtype=kind).reshape(self.shape)
        return Constant(name, self.dtype, self.shape, nbytes, value=value, origin="Constant")


@dataclass(frozen=True, slots=True)
class Work:
    """What a node costs before fusion; None where it is not known, and why (`gap`).

    `weight_bytes` are as stored, `held_weight_bytes` as a run holds them.
    """

    macs: int | None
    flops: int | None
    parameters: int
    weight_bytes: int
    held_weight_bytes: int
    gap: str


class Recipe:
    """A node but for its place in a graph; equal nodes share one.

    Attributes:
        key: What it was made from.
        op_type: The operator.
        domain: "" for ai.onnx.
        opset: The domain's version.
        attributes: (name, value) pairs.
        private: Its own weights, after the inputs it is given.
        call: The sized call.
        outputs: Type and shape of each output.
        work: What it costs alone.
        is_sharable: Whether a runtime may run equal nodes with equal inputs once.
        computes: The same for nodes that make the same of the same inputs; hashes at once.
    """

    __slots__ = (
        "attributes", "call", "computes", "domain", "is_sharable", "key", "op_type", "opset",
        "outputs", "private", "work",
    )  # fmt: skip

    def __init__(
        self, key: Key, node: Node, private: tuple[Spec, ...], call: OpCall,
        outputs: tuple[TensorInfo, ...], work: Work,
    ) -> None:  # fmt: skip
        self.key = key
        self.op_type = node.op_type
        self.domain = node.domain
        self.opset = node.opset
        self.attributes = node.attributes
        self.private = private
        self.call = call
        self.outputs = outputs
        self.work = work
        operator = call.operator
        self.is_sharable = not private and operator is not None and not operator.random
        said = (node.domain, node.op_type, node.opset, node.attributes, len(outputs))
        self.computes: object = repr(said) if _are_plain(node.attributes) else self

    def __reduce__(self) -> tuple[object, ...]:
        return (_remade, (_portable(self.key),))


def _are_plain(attributes: tuple[tuple[str, AttributeValue], ...]) -> bool:
    """Whether all are numbers and texts, which their representation tells apart."""
    plain = (int, float, str)
    return all(
        isinstance(item, plain)
        for _, value in attributes
        for item in (value if isinstance(value, tuple) else (value,))
    )


class Kitchen:
    """Makes recipes and keeps them.

    Attributes:
        known: Recipes by key; look here first.
    """

    def __init__(self) -> None:
        self.known: dict[Key, Recipe] = {}
        self._memo = Memo()
        self._infos: dict[object, TensorInfo] = {}

    def described(self, dtype: DType | None, shape: tuple[int, ...] | None) -> TensorInfo:
        """The one description of run-time tensors of this type and shape."""
        return self._shared(TensorInfo(dtype, shape))

    def constant(self, spec: Spec) -> TensorInfo:
        """The one description of constants of this type, shape and value."""
        return self._shared(spec.info())

    def _shared(self, info: TensorInfo) -> TensorInfo:
        return self._infos.setdefault(info.value_key, info)

    def make(self, key: Key) -> Recipe:
        """The recipe of a key that is not known yet.

        Raises:
            ShapeMismatchError: The inputs contradict the operator's text.
            UsageError: Nobody knows the operator, or a result's size depends on values.
        """
        what = key[0]
        if what == "op":
            _, op_type, domain, outputs, given, attributes, repeats = key
            parts: _Parts = (op_type, (), attributes)  # type: ignore[assignment]
            return self._cook(key, parts, domain, given, outputs, repeats)  # type: ignore[arg-type]
        parts = _PARTS[str(what)](*key[1:])
        return self._cook(key, parts, "", (key[1],), 1, ())  # type: ignore[arg-type]

    def _cook(
        self,
        key: Key,
        parts: _Parts,
        domain: str,
        given: tuple[TensorInfo | None, ...],
        outputs: int,
        repeats: tuple[int, ...],
    ) -> Recipe:
        op_type, private, attributes = parts
        places = repeats or range(len(given))
        names = ["" if given[at] is None else f"i{at}" for at in places]
        weights = [f"w{at}" for at in range(len(private))]
        results = tuple([f"o{at}" for at in range(outputs)])
        opset = 1 if domain else OPSET
        self._check_known(op_type, domain, opset)
        node = Node(op_type, domain, op_type, opset, (*names, *weights), results, attributes)
        constants = {
            name: _as_constant(name, info)
            for name, info in zip(names, given, strict=True)
            if info is not None and info.constant
        }
        for name, spec in zip(weights, private, strict=True):
            constants[name] = spec.constant(name)
        inputs = tuple(
            [
                GraphInput(name, ValueType("tensor", info.dtype, info.shape))
                for name, info in dict(zip(names, given, strict=True)).items()
                if info is not None and not info.constant
            ]
        )
        graph = Graph(op_type, (node,), inputs, results, constants, {})
        shaped, findings = infer_shapes(graph, Bindings.of(), self._memo)
        if findings.problems:
            raise ShapeMismatchError(findings.problems)
        for item in findings.unresolved:
            raise UsageError(f"{op_type}: the shape of its result is not known: {item.reason}")
        if not all(info.exact for info in shaped.outputs):
            raise UsageError(f"{op_type}: the shape of its result depends on values")
        made = tuple([self._shared(info) for info in shaped.outputs])
        recipe = Recipe(key, node, private, shaped.calls[0], made, _work(shaped))
        return self.known.setdefault(key, recipe)

    def _check_known(self, op_type: str, domain: str, opset: int) -> None:
        registry = self._memo.registry
        from onnxroof.ops import load_plugins
        from onnxroof.ops.fallback import expandable

        if registry.find(domain, op_type, opset) is not None or load_plugins():
            return
        if expandable(domain, op_type, opset) is not None:
            return
        names = [operator.op_type for operator in registry if operator.domain == domain]
        close = difflib.get_close_matches(op_type, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"no operator {quoted(op_type)} is known in domain {domain!r}{hint}")


def _work(shaped: ShapedGraph) -> Work:
    cost = count_costs(shaped)
    node = cost.nodes[0]
    weights = [weight for weight in cost.weights if weight.role is Role.WEIGHT]
    parameters = sum([weight.parameters for weight in weights])
    gap = f"{node.op_type}: {node.note}" if node.status is Status.UNKNOWN else ""
    return Work(
        node.macs, node.flops, parameters, cost.weight_bytes, cost.held_weight_bytes, gap
    )  # fmt: skip


def recipe_of(key: Key, node: Node, call: OpCall, shaped: ShapedGraph, given: int) -> Recipe:
    """The recipe of a node of a sized graph, whose inputs from `given` on are its own weights."""
    names = [name for name in (*node.inputs, *node.outputs) if name]
    constants = shaped.graph.constants
    held = {name: constants[name] for name in node.inputs if name in constants}
    inputs = tuple(
        [
            GraphInput(name, ValueType("tensor"))
            for name in dict.fromkeys(node.inputs)
            if name and name not in held
        ]
    )
    alone = Node(
        node.name, node.domain, node.op_type, node.opset, node.inputs, node.outputs,
        node.attributes,
    )  # fmt: skip
    graph = Graph("", (alone,), inputs, node.outputs, held, {})
    tensors = {name: shaped.tensors[name] for name in names}
    work = _work(ShapedGraph(graph, (call,), tensors))
    own = tuple(
        [
            Spec(held[name].dtype, held[name].shape, None, f"w{at}")
            for at, name in enumerate(node.inputs[given:])
        ]
    )
    return Recipe(key, node, own, call, call.outputs, work)


@cache
def shared_recipes() -> Kitchen:
    """The recipes of this process: results that depend on their keys alone."""
    return Kitchen()


def _as_constant(name: str, info: TensorInfo) -> Constant:
    shape = info.shape or ()
    nbytes = None if info.dtype is None else info.dtype.nbytes(math.prod(shape))
    assert info.dtype is not None
    return Constant(name, info.dtype, shape, nbytes, value=info.value)


@dataclass(frozen=True, slots=True)
class _Described:
    """A description on its way to another process."""

    dtype: DType | None
    shape: tuple[int, ...] | None
    constant: bool
    values: tuple[float, ...] | None


def _portable(part: object) -> object:
    """A key without shared objects."""
    if isinstance(part, tuple):
        return tuple([_portable(item) for item in part])
    if not isinstance(part, TensorInfo):
        return part
    value = part.value
    values = None if value is None else tuple(value.ravel().tolist())
    return _Described(part.dtype, part.shape, part.constant, values)


def _remade(part: object) -> Recipe:
    kitchen = shared_recipes()
    key = _localized(part, kitchen)
    assert isinstance(key, tuple)
    return kitchen.known.get(key) or kitchen.make(key)


def _localized(part: object, kitchen: Kitchen) -> object:
    """A key with the shared objects of this process."""
    if isinstance(part, tuple):
        return tuple([_localized(item, kitchen) for item in part])
    if not isinstance(part, _Described):
        return part
    if part.constant and part.dtype is not None and part.shape is not None:
        return kitchen.constant(Spec(part.dtype, part.shape, part.values))
    return kitchen.described(part.dtype, part.shape)


# -- layers with weights of their own ------------------------------------------------------

_Parts = tuple[str, tuple[Spec, ...], Attributes]


def _spread(size: int | tuple[int, ...], axes: int, what: str) -> tuple[int, ...]:
    """One number an axis."""
    sizes = (size,) * axes if isinstance(size, int) else tuple(size)
    if len(sizes) != axes:
        raise UsageError(f"{what} {size!r}: {axes} spatial axes need one number or {axes}")
    return sizes


def _conv(
    x: TensorInfo,
    filters: int,
    kernel: int | tuple[int, ...],
    stride: int | tuple[int, ...],
    groups: int,
    dilation: int | tuple[int, ...],
    padding: int | tuple[int, ...] | None,
    bias: bool,
) -> _Parts:
    axes = len(x.dims) - 2
    if axes < 1:
        raise UsageError(f"conv: its input needs batch, channels and spatial axes, got {x!r}")
    channels = x.dims[1]
    if groups < 1 or channels % groups or filters % groups:
        raise ShapeMismatchError([
            NodeProblem("conv", "Conv", repr(x), f"{groups} groups must divide {channels} "
                        f"channels and {filters} filters")
        ])  # fmt: skip
    window, dilations = _spread(kernel, axes, "kernel"), _spread(dilation, axes, "dilation")
    if padding is None:
        reach = [d * (k - 1) for d, k in zip(dilations, window, strict=True)]
        pads = (*[r // 2 for r in reach], *[r - r // 2 for r in reach])
    else:
        pads = _spread(padding, axes, "padding") * 2
    attributes = (
        ("kernel_shape", window),
        ("strides", _spread(stride, axes, "stride")),
        ("pads", pads),
        ("dilations", dilations),
        ("group", groups),
    )
    weights = [Spec(_dtype(x), (filters, channels // groups, *window), None, "weight")]
    if bias:
        weights.append(Spec(_dtype(x), (filters,), None, "bias"))
    return "Conv", tuple(weights), attributes


def _batch_norm(x: TensorInfo) -> _Parts:
    channels = x.dims[1] if len(x.dims) > 1 else 1
    parts = ("scale", "bias", "mean", "variance")
    return "BatchNormalization", tuple([Spec(_dtype(x), (channels,), None, p) for p in parts]), ()


def _layer_norm(x: TensorInfo) -> _Parts:
    parts = tuple([Spec(_dtype(x), (_last(x),), None, part) for part in ("scale", "bias")])
    return "LayerNormalization", parts, (("axis", -1),)


def _gemm(x: TensorInfo, features: int, bias: bool) -> _Parts:
    weights = [Spec(_dtype(x), (features, _last(x)), None, "weight")]
    if bias:
        weights.append(Spec(_dtype(x), (features,), None, "bias"))
    return "Gemm", tuple(weights), (("transB", 1),)


def _matmul(x: TensorInfo, features: int) -> _Parts:
    return "MatMul", (Spec(_dtype(x), (_last(x), features), None, "weight"),), ()


def _bias(x: TensorInfo) -> _Parts:
    return "Add", (Spec(_dtype(x), (_last(x),), None, "bias"),), ()


def _pool(
    op_type: str,
    x: TensorInfo,
    kernel: int | tuple[int, ...],
    stride: int | tuple[int, ...],
    padding: int | tuple[int, ...],
) -> _Parts:
    axes = len(x.dims) - 2
    attributes = (
        ("kernel_shape", _spread(kernel, axes, "kernel")),
        ("strides", _spread(stride, axes, "stride")),
        ("pads", _spread(padding, axes, "padding") * 2),
    )
    return op_type, (), attributes


_PARTS: Mapping[str, Callable[..., _Parts]] = {
    "conv": _conv,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "gemm": _gemm,
    "matmul": _matmul,
    "bias": _bias,
    "average_pool": lambda *options: _pool("AveragePool", *options),
    "max_pool": lambda *options: _pool("MaxPool", *options),
}
"""How a key's first part becomes a node: (operator, own weights, attributes)."""


def _dtype(x: TensorInfo) -> DType:
    if x.dtype is None:
        raise UsageError("the element type of an input is not known")
    return x.dtype


def _last(x: TensorInfo) -> int:
    if not x.dims:
        raise UsageError(f"a layer needs at least one axis, got {x!r}")
    return x.dims[-1]
