"""`Kernel` → `Work`: what a kernel does, in the terms that decide how fast hardware does it.

Matrix products and convolutions are seen as batched GEMMs (M, N, K); the rest by its class and
the length of its rows. Nothing here knows a device, so a description is made once per signature.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel, KernelPlan
    from onnxroof.ops.call import OpCall, Shape, TensorInfo


class WorkClass(Enum):
    """How a kernel without products goes through its data."""

    PRODUCT = "product"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SOFTMAX = "softmax"
    NORMALIZATION = "normalization"
    POOLING = "pooling"
    COPY = "copy"

    __hash__ = object.__hash__


class Product(NamedTuple):
    """Multiply-accumulates as `batch` GEMMs of [M, K] by [K, N], done `steps` times in sequence.

    Attributes:
        batch: Independent GEMMs: heads and batch of a batched product, groups of a convolution.
        m: Rows: output pixels times batch size, or rows of the left operand.
        n: Columns: output channels of a group, or columns of the right operand.
        k: Length of the sums.
        steps: Dependent repetitions (time steps of a recurrent layer).
        window: Kernel extents of a convolution; () for a matrix product.
        stride: Strides of a convolution.
        dilated: A dilation differs from 1.
        transposed: A transposed convolution.
        pixels: Output extents of a convolution.
        images: Batch size of a convolution.
        input_elements: Elements of the activation operand.
        channels: Input channels of one group.
    """

    batch: int
    m: int
    n: int
    k: int
    steps: int = 1
    window: Shape = ()
    stride: Shape = ()
    dilated: bool = False
    transposed: bool = False
    pixels: Shape = ()
    images: int = 1
    input_elements: int = 0
    channels: int = 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the direct algorithm."""
        return self.batch * self.m * self.n * self.k * self.steps

    @property
    def is_depthwise(self) -> bool:
        """One input channel a group: no sum over channels, so no matrix engine helps."""
        return bool(self.window) and self.channels == 1 and self.batch > 1

    @property
    def is_grouped(self) -> bool:
        """Several groups of several channels."""
        return bool(self.window) and self.batch > 1 and self.channels > 1


class Work(NamedTuple):
    """What one kernel does.

    Attributes:
        kind: Its class; PRODUCT when it has multiply-accumulates.
        dtype: Compute type label.
        products: Its products.
        side_flops: Operations beside the products.
        transcendentals: exp, log … evaluations.
        input_bytes: Activation bytes read.
        weight_bytes: Constant bytes read.
        output_bytes: Bytes written.
        elements: Elements it goes through; 0 with products.
        window: Elements of a pooling window.
        op_type: What rules know the anchor's operator by.
    """

    kind: WorkClass
    dtype: str
    products: tuple[Product, ...]
    side_flops: int
    transcendentals: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    elements: int
    window: int
    op_type: str

    @property
    def traffic_bytes(self) -> int:
        """Bytes read and written."""
        return self.input_bytes + self.weight_bytes + self.output_bytes


_CLASSES = {
    WorkClass.SOFTMAX: ("Softmax", "LogSoftmax", "Hardmax", "BiasSoftmax"),
    WorkClass.NORMALIZATION: (
        "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization",
        "GroupNorm", "SkipGroupNorm", "RMSNormalization", "LpNormalization", "LRN",
        "MeanVarianceNormalization", "EmbedLayerNormalization",
    ),
    WorkClass.REDUCTION: (
        "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin",
        "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "TopK", "CumSum",
    ),
    WorkClass.POOLING: ("AveragePool", "MaxPool", "LpPool", "MaxUnpool", "RoiAlign"),
    WorkClass.COPY: (
        "Transpose", "Slice", "Split", "Concat", "Pad", "Gather", "GatherND", "GatherElements",
        "ScatterND", "ScatterElements", "Expand", "Tile", "Reshape", "DepthToSpace",
        "SpaceToDepth", "Resize", "Upsample", "Identity", "Flatten", "Cast",
    ),
}  # fmt: skip
_STRONGEST = (
    WorkClass.NORMALIZATION, WorkClass.SOFTMAX, WorkClass.POOLING, WorkClass.REDUCTION,
    WorkClass.ELEMENTWISE,
)  # fmt: skip
"""The class of a kernel of several nodes: the first of these that one of them has."""

_CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names}
_BY_RULE = {
    "softmax": WorkClass.SOFTMAX, "layer-normalization": WorkClass.NORMALIZATION,
    "rms-normalization": WorkClass.NORMALIZATION, "group-normalization": WorkClass.NORMALIZATION,
    "skip-layer-normalization": WorkClass.NORMALIZATION,
    "skip-rms-normalization": WorkClass.NORMALIZATION, "l2-normalization": WorkClass.NORMALIZATION,
}  # fmt: skip
_CONV_WEIGHTS = {
    "Conv": 1, "FusedConv": 1, "ConvInteger": 1, "QLinearConv": 3, "NhwcConv": 1,
    "NhwcFusedConv": 1, "QLinearConvNhwc": 3, "ConvTranspose": 1, "DeformConv": 1,
}  # fmt: skip
_MATMULS = frozenset({
    "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "QLinearMatMul", "MatMulNBits",
    "TransposeMatMul",
})  # fmt: skip
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def describe(kernel: Kernel, plan: KernelPlan, dtype: str) -> Work | None:
    """What a kernel does; None when its work, traffic or a shape of it is not known."""
    flops, macs = kernel.flops, kernel.macs
    inputs, weights, outputs = kernel.input_bytes, kernel.weight_bytes, kernel.output_bytes
    if flops is None or macs is None or inputs is None or weights is None or outputs is None:
        return None
    nodes = plan.cost.nodes
    anchor = nodes[kernel.anchor]
    side, special = int(flops) - 2 * int(macs), int(kernel.transcendentals or 0)
    moved = (int(inputs), int(weights), int(outputs))
    if macs:
        products = tuple([_product(node) for index in kernel.nodes if (node := nodes[index]).macs])
        return Work(WorkClass.PRODUCT, dtype, products, side, special, *moved, 0, 1, anchor.kind)
    kind = _class_of(kernel, [nodes[index].kind for index in kernel.nodes])
    return Work(
        kind, dtype, (), side, special, *moved, _elements(anchor), _window(anchor, kind),
        anchor.kind,
    )  # fmt: skip


def _class_of(kernel: Kernel, op_types: list[str]) -> WorkClass:
    if kernel.rule in _BY_RULE:
        return _BY_RULE[kernel.rule]
    kinds = [_CLASS_OF.get(op_type, WorkClass.ELEMENTWISE) for op_type in op_types]
    if len(kinds) == 1:
        return kinds[0]
    return next((kind for kind in _STRONGEST if kind in kinds), WorkClass.COPY)


def _elements(anchor: NodeCost) -> int:
    """Elements of the larger of the anchor's first input and output."""
    call = anchor.call
    first = call.inputs[0] if call.inputs else None
    shapes = [info.shape for info in (first, *call.outputs[:1]) if info is not None and info.shape]
    return int(max([math.prod(shape) for shape in shapes], default=0))


def _window(anchor: NodeCost, kind: WorkClass) -> int:
    if kind is not WorkClass.POOLING:
        return 1
    window = anchor.call.attributes.get("kernel_shape")
    return math.prod(window) if isinstance(window, tuple) else 1  # type: ignore[arg-type]


def _product(node: NodeCost) -> Product:
    """The GEMM view of a node with multiply-accumulates."""
    call = node.call
    macs = int(node.macs or 0)
    shape = _sizes(call.outputs[0]) if call.outputs else ()
    if not shape or not math.prod(shape):
        return Product(1, macs, 1, 1)
    if node.kind in _CONV_WEIGHTS:
        return _convolution(call, node.kind, shape, macs)
    if node.kind in _RECURRENT:
        steps = _steps(call)
        n = shape[-1] * {"LSTM": 4, "GRU": 3}.get(node.kind, 1)
        m = shape[-2]
        return Product(1, m, n, max(macs // (steps * m * n), 1), steps)
    elements = math.prod(shape)
    k = max(macs // elements, 1)
    if node.kind in _MATMULS and len(shape) > 2 and _is_batched(call):
        return Product(math.prod(shape[:-2]), shape[-2], shape[-1], k)
    return Product(1, elements // shape[-1], shape[-1], k)


def _sizes(info: TensorInfo | None) -> Shape:
    """The shape in plain integers, sizes known by their bounds at the upper end; () if unknown."""
    if info is None or info.shape is None:
        return ()
    return info.shape if info.exact else tuple(map(int, info.shape))


def _steps(call: OpCall) -> int:
    shape = call.inputs[0].shape if call.inputs and call.inputs[0] is not None else None
    return int(shape[1 if call.attributes.get("layout") else 0]) if shape else 1


def _is_batched(call: OpCall) -> bool:
    right = call.inputs[1] if len(call.inputs) > 1 else None
    return right is not None and right.shape is not None and math.prod(right.shape[:-2]) > 1


def _convolution(call: OpCall, op_type: str, shape: Shape, macs: int) -> Product:
    weight, x = _sizes(call.inputs[_CONV_WEIGHTS[op_type]]), _sizes(call.inputs[0])
    if not weight or not x:
        return Product(1, macs, 1, 1)
    attributes = call.attributes
    group = attributes.get("group", 1)
    groups = group if isinstance(group, int) else 1
    if "Nhwc" in op_type:
        window, pixels, filters, channels = weight[1:-1], shape[1:-1], shape[-1], x[-1]
    else:
        window, pixels, filters, channels = weight[2:], shape[2:], shape[1], x[1]
    strides = attributes.get("strides") or (1,) * len(window)
    dilations = attributes.get("dilations") or ()
    elements = math.prod(x)
    channels //= groups
    transposed = op_type == "ConvTranspose"
    m = math.prod(shape) // filters
    n = filters // groups
    if transposed:
        m = max(elements // (channels * groups), 1)
        n = n * math.prod(window)
    k = max(macs // (groups * m * n), 1)
    return Product(
        groups, m, n, k, 1, window, strides,  # type: ignore[arg-type]
        dilations.count(1) != len(dilations),  # type: ignore[union-attr, arg-type]
        transposed, pixels, shape[0], elements, channels,
    )  # fmt: skip
