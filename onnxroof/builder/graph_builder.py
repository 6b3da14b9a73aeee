"""Networks written in Python, sized as they are written, without a protobuf round trip.

    g = GraphBuilder()
    x = g.input((1, 3, 224, 224))
    x = g.relu(g.batch_norm(g.conv(x, 64, 3, stride=2)))
    g.output(g.linear(g.flatten(g.global_average_pool(x)), 10))

A graph keeps, for every node, the sized call that equal nodes of all graphs share, so a search
builds and prices a candidate in microseconds a node. Weights have a shape and a type, no values.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxroof.builder.draft import Draft
from onnxroof.builder.recipes import Spec, shared_recipes
from onnxroof.errors import UsageError
from onnxroof.graph.types import DTYPE_BY_LABEL, DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

    import onnx  # noqa: TID251 - the type of a result

    from onnxroof.builder.recipes import Key, Recipe
    from onnxroof.graph.types import AttributeValue, Model
    from onnxroof.ops.call import Shape, TensorInfo

    Size = int | tuple[int, ...]


class Tensor:
    """A value in a graph under construction.

    Attributes:
        graph: The builder that made it.
        position: Its place among the graph's tensors.
        info: Its type and shape.
    """

    __slots__ = ("graph", "info", "position")

    def __init__(self, graph: GraphBuilder, position: int, info: TensorInfo) -> None:
        self.graph = graph
        self.position = position
        self.info = info

    @property
    def shape(self) -> Shape:
        """Its exact sizes."""
        return self.info.dims

    @property
    def channels(self) -> int:
        """Size of axis 1, where ONNX has the channels."""
        return self.info.dims[1]

    @property
    def dtype(self) -> DType | None:
        """Its element type."""
        return self.info.dtype

    def __repr__(self) -> str:
        return f"Tensor({self.info!r})"


class GraphBuilder:
    """A graph under construction; `CostFunction` and `analyze` take it in place of a file.

    Args:
        name: Name of the graph.

    Graphs can be pickled, so candidates travel to other processes as they are.
    """

    def __init__(self, name: str = "graph") -> None:
        self.draft = Draft(name)
        self._kitchen = shared_recipes()

    @property
    def node_count(self) -> int:
        """Nodes so far."""
        return len(self.draft.recipes)

    # -- what goes in and comes out --------------------------------------------------------

    def input(self, shape: Sequence[int], dtype: str = "fp32", *, name: str = "") -> Tensor:
        """A run-time input of the graph.

        Args:
            shape: Its exact sizes.
            dtype: "fp32", "fp16", "int64", …
            name: Its name; "input", "input_2" … by default.

        Raises:
            UsageError: A size or type that cannot be.
        """
        count = len(self.draft.inputs) + 1
        info = self._kitchen.described(_dtype(dtype), _sizes(shape))
        tensor = self._tensor(info, name or ("input" if count == 1 else f"input_{count}"))
        self.draft.inputs.append(tensor.position)
        return tensor

    def output(self, tensor: Tensor, *, name: str = "") -> Tensor:
        """Make a tensor an output of the graph."""
        self._check(tensor)
        if name:
            self.draft.tensor_names[tensor.position] = name
        if tensor.position not in self.draft.outputs:
            self.draft.outputs.append(tensor.position)
        return tensor

    def weight(self, shape: Sequence[int], dtype: str = "fp32", *, name: str = "") -> Tensor:
        """A weight, to be read by one node or by several that share it."""
        kind, sizes = _dtype(dtype), _sizes(shape)
        return self._constant(Spec(kind, sizes), name)

    def constant(
        self, values: Sequence[float] | float, dtype: str = "fp32", *, name: str = ""
    ) -> Tensor:
        """A tiny tensor with known values: a bound, a target shape, axes.

        Args:
            values: A number, or a list of numbers for a tensor of rank 1.
            dtype: Its element type.
            name: Its name.
        """
        listed = (values,) if isinstance(values, int | float) else tuple(values)
        shape = () if isinstance(values, int | float) else (len(listed),)
        return self._constant(Spec(_dtype(dtype), shape, listed), name)

    # -- operators -------------------------------------------------------------------------

    def op(
        self,
        op_type: str,
        *inputs: Tensor | None,
        domain: str = "",
        outputs: int = 1,
        name: str = "",
        **attributes: AttributeValue | list[int] | list[float],
    ) -> Tensor:
        """Any operator of the standard, of ONNX Runtime or of a plug-in: its first output.

        Args:
            op_type: The operator, e.g. "Softmax".
            inputs: Tensors in the order of the operator's text; None for an absent optional one.
            domain: "" for ai.onnx.
            outputs: How many outputs the node has; `outputs_of` gives the others.
            name: Name of the node.
            attributes: As in the operator's text; lists become tuples.

        Raises:
            ShapeMismatchError: The inputs contradict the operator's text.
            UsageError: Nobody knows the operator, the result's shape depends on values, or an
                input is no tensor of a builder.
        """
        for tensor in inputs:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise UsageError(
                    f"{op_type}: an input must be a tensor or None, not {tensor!r:.200}"
                )
        given = tuple([None if tensor is None else tensor.info for tensor in inputs])
        listed = [(k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items()]
        key = ("op", op_type, domain, outputs, given, tuple(listed), _repeats(inputs))
        return self._add(self._recipe(key), inputs, name)

    def outputs_of(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """All outputs of the node that makes a tensor, in order."""
        self._check(tensor)
        for first, recipe in zip(self.draft.first_outputs, self.draft.recipes, strict=True):
            end = first + len(recipe.outputs)
            if first <= tensor.position < end:
                return tuple([Tensor(self, at, self.draft.infos[at]) for at in range(first, end)])
        return (tensor,)

    def conv(  # noqa: PLR0913 - one argument a property
        self,
        x: Tensor,
        filters: int,
        kernel: Size = 3,
        *,
        stride: Size = 1,
        groups: int = 1,
        dilation: Size = 1,
        padding: Size | None = None,
        bias: bool = False,
        name: str = "",
    ) -> Tensor:
        """Convolution of any rank; padded so that stride 1 keeps the size, unless told otherwise.

        Args:
            x: [batch, channels, *spatial].
            filters: Output channels.
            kernel: Extents of the window, one number for all axes or one an axis.
            stride: Strides.
            groups: Groups of channels; `x.channels` for a depthwise convolution.
            dilation: Dilations.
            padding: Elements added on both sides; None: dilation · (kernel − 1) / 2.
            bias: Whether it has a bias.
            name: Name of the node.
        """
        key = ("conv", x.info, filters, kernel, stride, groups, dilation, padding, bias)
        return self._add(self._recipe(key), (x,), name)

    def depthwise(self, x: Tensor, kernel: Size = 3, *, stride: Size = 1, name: str = "") -> Tensor:
        """Convolution of every channel on its own."""
        return self.conv(x, x.channels, kernel, stride=stride, groups=x.channels, name=name)

    def batch_norm(self, x: Tensor, *, name: str = "") -> Tensor:
        """BatchNormalization in inference mode: scale, bias, mean and variance per channel."""
        return self._weighted("batch_norm", x, name)

    def layer_norm(self, x: Tensor, *, name: str = "") -> Tensor:
        """LayerNormalization along the last axis with scale and bias."""
        return self._weighted("layer_norm", x, name)

    def linear(self, x: Tensor, features: int, *, bias: bool = True, name: str = "") -> Tensor:
        """A fully connected layer: Gemm for a matrix, MatMul (and Add) for higher ranks."""
        if len(x.shape) == 2:
            return self._weighted("gemm", x, name, features, bias)
        y = self._weighted("matmul", x, name, features)
        return self._weighted("bias", y, f"{name}/bias" if name else "") if bias else y

    def _weighted(self, what: str, x: Tensor, name: str, *options: object) -> Tensor:
        key = (what, x.info, *options)
        return self._add(self._recipe(key), (x,), name)

    def _unary(self, op_type: str, x: Tensor, name: str) -> Tensor:
        return self._add(self._recipe(("op", op_type, "", 1, (x.info,), (), ())), (x,), name)

    def relu(self, x: Tensor, *, name: str = "") -> Tensor:
        """max(x, 0)."""
        return self._unary("Relu", x, name)

    def relu6(self, x: Tensor, *, name: str = "") -> Tensor:
        """min(max(x, 0), 6): a Clip."""
        label = "fp32" if x.dtype is None else x.dtype.label
        return self.op("Clip", x, self.constant(0, label), self.constant(6, label), name=name)

    def hard_swish(self, x: Tensor, *, name: str = "") -> Tensor:
        """X · max(0, min(1, x/6 + 1/2))."""
        return self._unary("HardSwish", x, name)

    def sigmoid(self, x: Tensor, *, name: str = "") -> Tensor:
        """1 / (1 + exp(−x))."""
        return self._unary("Sigmoid", x, name)

    def hard_sigmoid(self, x: Tensor, *, name: str = "") -> Tensor:
        """max(0, min(1, 0.2·x + 1/2))."""
        return self._unary("HardSigmoid", x, name)

    def gelu(self, x: Tensor, *, name: str = "") -> Tensor:
        """X · Φ(x)."""
        return self._unary("Gelu", x, name)

    def softmax(self, x: Tensor, *, axis: int = -1, name: str = "") -> Tensor:
        """exp(x) / Σ exp(x) along an axis."""
        return self.op("Softmax", x, axis=axis, name=name)

    def add(self, a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
        """A + b, with broadcasting."""
        return self._binary("Add", a, b, name)

    def mul(self, a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
        """A · b, with broadcasting."""
        return self._binary("Mul", a, b, name)

    def matmul(self, a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
        """Matrix product of two tensors, batched over leading axes."""
        return self._binary("MatMul", a, b, name)

    def _binary(self, op_type: str, a: Tensor, b: Tensor, name: str) -> Tensor:
        repeats = () if a.position != b.position else (0, 0)
        key = ("op", op_type, "", 1, (a.info, b.info), (), repeats)
        return self._add(self._recipe(key), (a, b), name)

    def concat(self, *tensors: Tensor, axis: int = 1, name: str = "") -> Tensor:
        """Tensors one after another along an axis."""
        return self.op("Concat", *tensors, axis=axis, name=name)

    def average_pool(
        self, x: Tensor, kernel: Size, *, stride: Size = 1, padding: Size = 0, name: str = ""
    ) -> Tensor:
        """Mean of every window; padding does not count."""
        return self._pool("average_pool", x, name, kernel, stride, padding)

    def max_pool(
        self, x: Tensor, kernel: Size, *, stride: Size = 1, padding: Size = 0, name: str = ""
    ) -> Tensor:
        """Largest element of every window."""
        return self._pool("max_pool", x, name, kernel, stride, padding)

    def _pool(self, what: str, x: Tensor, name: str, *options: Size) -> Tensor:
        key = (what, x.info, *options)
        return self._add(self._recipe(key), (x,), name)

    def global_average_pool(self, x: Tensor, *, name: str = "") -> Tensor:
        """Mean over all spatial axes, which become 1."""
        return self._unary("GlobalAveragePool", x, name)

    def flatten(self, x: Tensor, *, name: str = "") -> Tensor:
        """[batch, everything else]."""
        return self.op("Flatten", x, axis=1, name=name)

    def reshape(self, x: Tensor, shape: Sequence[int], *, name: str = "") -> Tensor:
        """The same elements under another shape; one size may be −1."""
        return self.op("Reshape", x, self.constant(list(shape), "int64"), name=name)

    def transpose(self, x: Tensor, order: Sequence[int], *, name: str = "") -> Tensor:
        """Axes in another order."""
        return self.op("Transpose", x, perm=list(order), name=name)

    @contextmanager
    def scope(self, path: str) -> Iterator[None]:
        """Nodes made inside are named below the path, as in "stage1/block2/Conv_7"."""
        outer = self.draft.scopes[-1][1] if self.draft.scopes else ""
        self.draft.scopes.append((len(self.draft.recipes), f"{outer}{path}/"))
        try:
            yield
        finally:
            self.draft.scopes.append((len(self.draft.recipes), outer))

    # -- as other stages see it ------------------------------------------------------------

    def to_model(self) -> Model:
        """The graph as if loaded from a file.

        Raises:
            InvalidGraphError: It has no output, or two tensors have one name.
        """
        return self.draft.model()

    def to_onnx(
        self, *, values: Literal["absent", "random"] = "absent", seed: int = 0
    ) -> onnx.ModelProto:
        """The graph as an ONNX model.

        Args:
            values: "absent": weights refer to an external file that does not exist, which is all
                that counting needs; "random": normal numbers of the usual scale are stored, so
                that a runtime can run and time the model.
            seed: For "random".

        Raises:
            InvalidGraphError: It has no output, or two tensors have one name.
        """
        from onnxroof.graph.export import export_model

        outputs = [self.draft.infos[at] for at in self.draft.outputs]
        return export_model(self.to_model(), outputs, random=values == "random", seed=seed)

    # -- bookkeeping -----------------------------------------------------------------------

    def _recipe(self, key: Key) -> Recipe:
        kitchen = self._kitchen
        return kitchen.known.get(key) or kitchen.make(key)

    def _add(self, recipe: Recipe, inputs: tuple[Tensor | None, ...], name: str) -> Tensor:
        draft = self.draft
        positions = []
        for tensor in inputs:
            if tensor is None:
                positions.append(-1)
            elif tensor.graph is self:
                positions.append(tensor.position)
            else:
                raise UsageError(f"{recipe.op_type}: an input belongs to another graph")
        if name:
            draft.node_names[len(draft.recipes)] = name
        infos, outputs = draft.infos, recipe.outputs
        first = len(infos)
        draft.recipes.append(recipe)
        draft.reads.append(tuple(positions))
        draft.first_outputs.append(first)
        infos.extend(outputs)
        return Tensor(self, first, outputs[0])

    def _tensor(self, info: TensorInfo, name: str) -> Tensor:
        position = len(self.draft.infos)
        self.draft.infos.append(info)
        if name:
            self.draft.tensor_names[position] = name
        return Tensor(self, position, info)

    def _constant(self, spec: Spec, name: str) -> Tensor:
        tensor = self._tensor(self._kitchen.constant(spec), name)
        self.draft.constants[tensor.position] = spec
        return tensor

    def _check(self, tensor: Tensor) -> None:
        if tensor.graph is not self:
            raise UsageError("the tensor belongs to another graph")

    def __getstate__(self) -> dict[str, object]:
        return {"draft": self.draft}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._kitchen = shared_recipes()

    def __repr__(self) -> str:
        return f"GraphBuilder({self.draft.name!r}, {self.node_count} nodes)"


def _repeats(inputs: tuple[Tensor | None, ...]) -> tuple[int, ...]:
    """Which inputs are one tensor: the first place of each; () when all differ."""
    positions = [-1 - at if t is None else t.position for at, t in enumerate(inputs)]
    if len(set(positions)) == len(positions):
        return ()
    return tuple(map(positions.index, positions))


def _dtype(label: str) -> DType:
    dtype = DTYPE_BY_LABEL.get(label)
    if dtype is None:
        raise UsageError(f"element type {label!r} is not one of {', '.join(DTYPE_BY_LABEL)}")
    return dtype


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape)
    for size in sizes:
        if type(size) is not int or size < 0:
            raise UsageError(f"shape {shape!r}: sizes are whole numbers from 0 on")
    return sizes
