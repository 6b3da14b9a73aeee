"""Weightless networks that published latency tables are about, as ONNX models.

Search spaces (NAS-Bench-201, FBNet on CIFAR-100, once-for-all MobileNetV3) are built node by node
as an eager framework runs them: convolution, batch normalization and activation apart. Mobile
networks come at any width and resolution. Initializers name an absent file, since nothing reads
their values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Sequence

OPSET = 17


@dataclass
class Network:
    """A network under construction; methods add a node and return the name of its result."""

    name: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def weight(self, *shape: int) -> str:
        """A weight without values."""
        tensor = TensorProto(name=f"w{len(self.weights)}", data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="absent.bin")
        self.weights.append(tensor)
        return str(tensor.name)

    def values(self, data: Sequence[float] | Sequence[int], kind: int) -> str:
        """A small constant with values."""
        tensor = helper.make_tensor(f"w{len(self.weights)}", kind, [len(data)], data)
        self.weights.append(tensor)
        return str(tensor.name)

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Any node."""
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [result], f"n{result}", **attributes))
        return result

    def conv(
        self, x: str, channels: int, filters: int, window: int = 1, *, stride: int = 1,
        groups: int = 1, bias: bool = False,
    ) -> str:  # fmt: skip
        """A convolution padded to keep the extents (over the stride)."""
        inputs = [x, self.weight(filters, channels // groups, window, window)]
        if bias:
            inputs.append(self.weight(filters))
        return self.add(
            "Conv", *inputs, kernel_shape=[window] * 2, strides=[stride] * 2,
            pads=[window // 2] * 4, group=groups,
        )  # fmt: skip

    def norm(self, x: str, channels: int) -> str:
        """Batch normalization in inference mode."""
        return self.add("BatchNormalization", x, *[self.weight(channels) for _ in range(4)])

    def conv_norm(
        self, x: str, channels: int, filters: int, window: int = 1, *, stride: int = 1,
        groups: int = 1, activation: str = "",
    ) -> str:  # fmt: skip
        """Convolution, batch normalization and, if named, an activation."""
        y = self.norm(
            self.conv(x, channels, filters, window, stride=stride, groups=groups), filters
        )
        return self.activation(y, activation) if activation else y

    def activation(self, x: str, kind: str) -> str:
        """An activation by the operator's name; "Relu6" is a Clip."""
        if kind == "Relu6":
            low, high = (self.values([v], TensorProto.FLOAT) for v in (0.0, 6.0))
            return self.add("Clip", x, low, high)
        return self.add(kind, x)

    def classifier(self, x: str, channels: int, classes: int) -> str:
        """Flatten and a linear layer."""
        flat = self.add("Flatten", x, axis=1)
        return self.add(
            "Gemm", flat, self.weight(classes, channels), self.weight(classes), transB=1
        )

    def model(self, shape: Sequence[int], result: str, classes: int) -> onnx.ModelProto:
        """The finished model; nodes and weights that nothing needs stay."""
        graph = helper.make_graph(
            self.nodes, self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, [shape[0], classes])],
            self.weights,
        )  # fmt: skip
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def divisible(value: float, divisor: int = 8) -> int:
    """Channels rounded to a multiple, never by more than a tenth down (MobileNetV2's rule)."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


# --- NAS-Bench-201 -----------------------------------------------------------------------------


def nas_bench_201(cell: str, batch: int = 1, *, removes_dead: bool = False) -> onnx.ModelProto:
    """The CIFAR-10 network of a cell string "|op~0|+|op~0|op~1|+|op~0|op~1|op~2|".

    An eager framework multiplies by zero where the cell says "none"; `removes_dead` leaves that
    out with all that depends on it alone, as compilers do.
    """
    steps = [
        [tuple(edge.split("~")) for edge in step.strip("|").split("|")] for step in cell.split("+")
    ]
    net = Network("nas_bench_201")
    x = net.conv_norm("input", 3, 16, 3)
    channels = 16
    for stage in range(3):
        if stage:
            x = _residual_reduction(net, x, channels)
            channels *= 2
        for _ in range(5):
            x = _cell(net, x, channels, steps, removes_dead=removes_dead)
    x = net.add("GlobalAveragePool", net.add("Relu", net.norm(x, channels)))
    model = net.model([batch, 3, 32, 32], net.classifier(x, channels, 10), 10)
    return without_dead_nodes(model) if removes_dead else model


def _zero(net: Network, x: str) -> str:
    return net.add("Mul", x, net.values([0.0], TensorProto.FLOAT))


def _cell(
    net: Network, x: str, channels: int, steps: Sequence[Sequence[tuple[str, ...]]], *,
    removes_dead: bool,
) -> str:  # fmt: skip
    states: list[str | None] = [x]
    for step in steps:
        total: str | None = None
        for op, origin in step:
            source = states[int(origin)]
            edge = None
            if source is not None:
                edge = _edge(net, op, source, channels, removes_dead=removes_dead)
            if edge is not None:
                total = edge if total is None else net.add("Add", total, edge)
        states.append(total)
    return states[-1] or _zero(net, x)


def _edge(net: Network, op: str, x: str, channels: int, *, removes_dead: bool) -> str | None:
    if op == "none":
        return None if removes_dead else _zero(net, x)
    if op == "skip_connect":
        return x
    if op == "avg_pool_3x3":
        return net.add("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    window = 3 if op == "nor_conv_3x3" else 1
    return net.conv_norm(net.add("Relu", x), channels, channels, window)


def _residual_reduction(net: Network, x: str, channels: int) -> str:
    double = 2 * channels
    y = net.conv_norm(net.add("Relu", x), channels, double, 3, stride=2)
    y = net.conv_norm(net.add("Relu", y), double, double, 3)
    pooled = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.add("Add", y, net.conv(pooled, channels, double))


# --- FBNet -------------------------------------------------------------------------------------

_FBNET_BLOCKS = (
    (3, 1, 1), (3, 1, 2), (3, 3, 1), (3, 6, 1), (5, 1, 1), (5, 1, 2), (5, 3, 1), (5, 6, 1), None,
)  # fmt: skip
"""(window, expansion, groups) of each choice; the last skips."""

_FBNET_STAGES = (
    (1, 16, 1), (4, 24, 1), (4, 32, 2), (4, 64, 2), (4, 112, 1), (4, 184, 2), (1, 352, 1),
)  # fmt: skip
"""(layers, channels, stride of the first)."""


def fbnet(choices: Sequence[int], batch: int = 1) -> onnx.ModelProto:
    """The CIFAR-100 network of 22 block choices, 0 to 8."""
    net = Network("fbnet")
    x, channels, extent = net.conv_norm("input", 3, 16, 3, activation="Relu"), 16, 32
    layers = [
        (filters, stride if place == 0 else 1)
        for count, filters, stride in _FBNET_STAGES
        for place in range(count)
    ]
    for choice, (filters, stride) in zip(choices, layers, strict=True):
        block = _FBNET_BLOCKS[choice]
        if block is not None:
            x = _fbnet_block(net, x, (channels, filters, stride), block, (batch, extent))
        elif stride != 1 or channels != filters:
            x = net.conv_norm(x, channels, filters, stride=stride, activation="Relu")
        channels, extent = filters, extent // stride
    x = net.add("GlobalAveragePool", net.conv_norm(x, channels, 1504, activation="Relu"))
    return net.model([batch, 3, 32, 32], net.classifier(x, 1504, 100), 100)


def _fbnet_block(
    net: Network, x: str, sizes: tuple[int, int, int], block: tuple[int, int, int],
    at: tuple[int, int],
) -> str:  # fmt: skip
    channels, filters, stride = sizes
    window, expansion, groups = block
    batch, extent = at
    wide = channels * expansion
    y = net.conv_norm(x, channels, wide, groups=groups, activation="Relu")
    if groups > 1:
        split = [batch, groups, wide // groups, extent, extent]
        y = net.add("Reshape", y, net.values(split, TensorProto.INT64))
        y = net.add("Transpose", y, perm=[0, 2, 1, 3, 4])
        whole = net.values([batch, wide, extent, extent], TensorProto.INT64)
        y = net.add("Reshape", y, whole)
    y = net.conv_norm(y, wide, wide, window, stride=stride, groups=wide, activation="Relu")
    y = net.conv_norm(y, wide, filters, groups=groups)
    return net.add("Add", y, x) if stride == 1 and channels == filters else y


# --- Once-for-all MobileNetV3 ------------------------------------------------------------------


def once_for_all(
    windows: Sequence[int], expansions: Sequence[int], depths: Sequence[int], pixels: int,
    batch: int = 1,
) -> onnx.ModelProto:  # fmt: skip
    """A sub-network of MobileNetV3 at width 1.2: 20 windows and expansions, 5 depths."""
    first, second, *stages, last, features = [
        divisible(1.2 * width) for width in (16, 16, 24, 40, 80, 112, 160, 960, 1280)
    ]
    net = Network("once_for_all")
    x = net.conv_norm("input", 3, first, 3, stride=2, activation="HardSwish")
    x = _inverted(net, x, (first, second, 1), (3, 1), "Relu", squeezes=False)
    channels = second
    kinds = (("Relu", 0, 2), ("Relu", 1, 2), ("HardSwish", 0, 2), ("HardSwish", 1, 1),
             ("HardSwish", 1, 2))  # fmt: skip
    for stage, (filters, (kind, squeezes, stride)) in enumerate(zip(stages, kinds, strict=True)):
        for place in range(depths[stage]):
            at = 4 * stage + place
            x = _inverted(
                net, x, (channels, filters, stride if place == 0 else 1),
                (windows[at], expansions[at]), kind, squeezes=bool(squeezes),
            )  # fmt: skip
            channels = filters
    x = _mean(net, net.conv_norm(x, channels, last, activation="HardSwish"))
    x = net.activation(net.conv(x, last, features), "HardSwish")
    return net.model([batch, 3, pixels, pixels], net.classifier(x, features, 1000), 1000)


def _mean(net: Network, x: str) -> str:
    rows = net.add("ReduceMean", x, axes=[3], keepdims=1)
    return net.add("ReduceMean", rows, axes=[2], keepdims=1)


def _inverted(
    net: Network, x: str, sizes: tuple[int, int, int], shape: tuple[int, float], kind: str, *,
    squeezes: bool, residual: bool = True,
) -> str:  # fmt: skip
    channels, filters, stride = sizes
    window, expansion = shape
    wide = divisible(channels * expansion)
    y = x if expansion == 1 else net.conv_norm(x, channels, wide, activation=kind)
    y = net.conv_norm(y, wide, wide, window, stride=stride, groups=wide, activation=kind)
    if squeezes:
        narrow = divisible(wide / 4)
        z = net.add("Relu", net.conv(_mean(net, y), wide, narrow, bias=True))
        z = net.add("HardSigmoid", net.conv(z, narrow, wide, bias=True), alpha=1 / 6)
        y = net.add("Mul", y, z)
    y = net.conv_norm(y, wide, filters)
    return net.add("Add", y, x) if residual and stride == 1 and channels == filters else y


# --- Mobile networks ---------------------------------------------------------------------------


def mobilenet_v1(width: float = 1.0, pixels: int = 224) -> onnx.ModelProto:
    """MobileNet (Howard et al., 2017)."""
    net = Network("mobilenet_v1")
    channels = divisible(32 * width)
    x = net.conv_norm("input", 3, channels, 3, stride=2, activation="Relu6")
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
            (1024, 2), (1024, 1)]  # fmt: skip
    for base, stride in plan:
        filters = divisible(base * width)
        x = net.conv_norm(
            x, channels, channels, 3, stride=stride, groups=channels, activation="Relu6"
        )
        x = net.conv_norm(x, channels, filters, activation="Relu6")
        channels = filters
    pooled = net.add("GlobalAveragePool", x)
    return net.model([1, 3, pixels, pixels], net.classifier(pooled, channels, 1001), 1001)


def mobilenet_v2(width: float = 1.0, pixels: int = 224) -> onnx.ModelProto:
    """MobileNetV2 (Sandler et al., 2018)."""
    net = Network("mobilenet_v2")
    channels = divisible(32 * width)
    x = net.conv_norm("input", 3, channels, 3, stride=2, activation="Relu6")
    for expansion, base, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        filters = divisible(base * width)
        for place in range(count):
            sizes = (channels, filters, stride if place == 0 else 1)
            x = _inverted(net, x, sizes, (3, expansion), "Relu6", squeezes=False)
            channels = filters
    features = divisible(1280 * max(width, 1.0))
    x = net.add("GlobalAveragePool", net.conv_norm(x, channels, features, activation="Relu6"))
    return net.model([1, 3, pixels, pixels], net.classifier(x, features, 1001), 1001)


_V3_LARGE = (
    (3, 16, 16, 0, "Relu", 1), (3, 64, 24, 0, "Relu", 2), (3, 72, 24, 0, "Relu", 1),
    (5, 72, 40, 1, "Relu", 2), (5, 120, 40, 1, "Relu", 1), (5, 120, 40, 1, "Relu", 1),
    (3, 240, 80, 0, "HardSwish", 2), (3, 200, 80, 0, "HardSwish", 1),
    (3, 184, 80, 0, "HardSwish", 1), (3, 184, 80, 0, "HardSwish", 1),
    (3, 480, 112, 1, "HardSwish", 1), (3, 672, 112, 1, "HardSwish", 1),
    (5, 672, 160, 1, "HardSwish", 2), (5, 960, 160, 1, "HardSwish", 1),
    (5, 960, 160, 1, "HardSwish", 1),
)  # fmt: skip
_V3_SMALL = (
    (3, 16, 16, 1, "Relu", 2), (3, 72, 24, 0, "Relu", 2), (3, 88, 24, 0, "Relu", 1),
    (5, 96, 40, 1, "HardSwish", 2), (5, 240, 40, 1, "HardSwish", 1),
    (5, 240, 40, 1, "HardSwish", 1), (5, 120, 48, 1, "HardSwish", 1),
    (5, 144, 48, 1, "HardSwish", 1), (5, 288, 96, 1, "HardSwish", 2),
    (5, 576, 96, 1, "HardSwish", 1), (5, 576, 96, 1, "HardSwish", 1),
)  # fmt: skip
"""(window, expanded channels, channels, squeezes, activation, stride); Howard et al., 2019."""


def mobilenet_v3(
    size: str, width: float = 1.0, pixels: int = 224, *, minimalistic: bool = False
) -> onnx.ModelProto:
    """MobileNetV3 "large" or "small"; minimalistic: 3 × 3, Relu, no squeeze and excitation."""
    plan, last = (_V3_LARGE, 1280) if size == "large" else (_V3_SMALL, 1024)

    def kind_of(kind: str) -> str:
        return "Relu" if minimalistic else kind

    net = Network(f"mobilenet_v3_{size}")
    channels = divisible(16 * width)
    x = net.conv_norm("input", 3, channels, 3, stride=2, activation=kind_of("HardSwish"))
    for window, expanded, base, squeezes, kind, stride in plan:
        filters = divisible(base * width)
        wide = divisible(expanded * width) / channels
        x = _inverted(
            net, x, (channels, filters, stride), (3 if minimalistic else window, wide),
            kind_of(kind), squeezes=bool(squeezes) and not minimalistic,
        )  # fmt: skip
        channels = filters
    head = divisible(plan[-1][1] * width)
    x = net.conv_norm(x, channels, head, activation=kind_of("HardSwish"))
    features = divisible(last * max(width, 1.0))
    x = net.conv(net.add("GlobalAveragePool", x), head, features, bias=True)
    x = net.activation(x, kind_of("HardSwish"))
    return net.model([1, 3, pixels, pixels], net.classifier(x, features, 1001), 1001)


# --- Transformers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transformer:
    """Sizes of a transformer as an eager framework runs it, attention in separate kernels.

    `gelu` is "Gelu" (one kernel), "tanh" (eight elementwise kernels) or "Relu"; `vocabulary` is 0
    without a language head.
    """

    layers: int
    width: int
    heads: int
    gelu: str
    vocabulary: int
    causal: bool


TRANSFORMERS = {
    "bert_large": Transformer(24, 1024, 16, "Gelu", 0, causal=False),
    "gpt2_large": Transformer(36, 1280, 20, "tanh", 50257, causal=True),
    "opt_13": Transformer(24, 2048, 32, "Relu", 50272, causal=True),
}


def transformer(sizes: Transformer, sequence: int, batch: int) -> onnx.ModelProto:
    """The layers of a transformer on embedded tokens, with its language head."""
    net, width, tokens = Network("transformer"), sizes.width, batch * sequence
    x = "input"
    for _ in range(sizes.layers):
        x = _layer(net, x, sizes, (batch, sequence))
    x = net.add("LayerNormalization", x, net.weight(width), net.weight(width), axis=-1)
    out = sizes.vocabulary or width
    if sizes.vocabulary:
        x = _linear(net, x, width, out)
    graph = helper.make_graph(
        net.nodes, net.name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [tokens, width])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [tokens, out])],
        net.weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _linear(net: Network, x: str, rows: int, columns: int) -> str:
    return net.add("Gemm", x, net.weight(rows, columns), net.weight(columns))


def _layer(net: Network, x: str, sizes: Transformer, at: tuple[int, int]) -> str:
    width = sizes.width
    batch, sequence = at
    shape = [batch, sequence, sizes.heads, width // sizes.heads]
    split = net.values(shape, TensorProto.INT64)
    flat = net.values([batch * sequence, width], TensorProto.INT64)
    normed = net.add("LayerNormalization", x, net.weight(width), net.weight(width), axis=-1)
    q, k, v = (net.add("Reshape", _linear(net, normed, width, width), split) for _ in range(3))
    q, v = (net.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 3, 1]))
    scores = net.add("Div", scores, net.values([8.0], TensorProto.FLOAT))
    scores = net.add("Add", scores, net.weight(1, 1, sequence, sequence))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
    mixed = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
    x = net.add("Add", x, _linear(net, mixed, width, width))
    y = net.add("LayerNormalization", x, net.weight(width), net.weight(width), axis=-1)
    y = _linear(net, _gelu(net, _linear(net, y, width, 4 * width), sizes.gelu), 4 * width, width)
    return net.add("Add", x, y)


def _gelu(net: Network, x: str, kind: str) -> str:
    if kind != "tanh":
        return net.add(kind, x)
    half, cube, root, one = (net.values([v], TensorProto.FLOAT) for v in (0.5, 0.0447, 0.798, 1.0))
    inner = net.add("Add", x, net.add("Mul", net.add("Mul", x, x), cube))
    inner = net.add("Tanh", net.add("Mul", inner, root))
    return net.add("Mul", net.add("Mul", x, half), net.add("Add", inner, one))


def without_dead_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without nodes and weights that no output needs; changed in place."""
    graph = model.graph
    needed = {output.name for output in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    kept.reverse()
    weights = [weight for weight in graph.initializer if weight.name in needed]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(weights)
    return model
