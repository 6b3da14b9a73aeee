"""Our `onnxruntime` plan launches what ONNX Runtime's own optimized graph holds.

ONNX Runtime writes the graph it would run (`optimized_model_filepath`, extended level, CPU). Its
nodes that launch work are compared with our kernels, kind by kind; every difference is listed here
with its reason.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

from onnxroof.bindings import Bindings
from onnxroof.cost import count_costs
from onnxroof.fusion.plan import KernelPlan, plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.shapes import infer_shapes
from tests.fusion.plans import MODELS, SIZES
from tests.memory.test_against_execution import weights_filled

if TYPE_CHECKING:
    from pathlib import Path

ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.oracle

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Nodes of an optimized graph that move nothing."""

SAME = {
    "FusedConv": "Conv", "QLinearConv": "Conv", "Gemm": "MatMul", "FusedMatMul": "MatMul",
    "QGemm": "MatMul", "QLinearAdd": "Add", "QLinearGlobalAveragePool": "GlobalAveragePool",
    "SkipLayerNormalization": "LayerNormalization", "BiasGelu": "Gelu", "FastGelu": "Gelu",
    "QuickGelu": "Swish", "SimplifiedLayerNormalization": "RMSNormalization",
}  # fmt: skip
"""ONNX Runtime's name of a kernel → the operator it stands for."""

RULES = {
    "gelu-erf": "Gelu", "gelu-tanh": "Gelu", "bias-gelu": "Gelu", "swish": "Swish",
    "parts-to-split": "Split", "rms-normalization": "RMSNormalization",
}  # fmt: skip
"""Our rules that see several nodes as one operator."""

HARD_SWISH = "ONNX Runtime expands HardSwish into HardSigmoid and Mul"
DIFFERENCES: dict[str, tuple[dict[str, int], str]] = {
    "mobilenet_v3_large": ({"HardSwish": -21, "HardSigmoid": 21, "Mul": 21}, HARD_SWISH),
    "deeplabv3_mobilenet_v3_large": (
        {"HardSwish": -20, "HardSigmoid": 20, "Mul": 20}, HARD_SWISH,
    ),
    "convnext_tiny": (
        {"Transpose": -2},
        "the head normalizes one value a channel: ONNX Runtime turns the two transposes of unit "
        "axes there into reshapes",
    ),
    "swin_t_dynamo": (
        {"Transpose": 24, "Pad": 15},
        "ONNX Runtime keeps a Pad by nothing, and moves the transpose of stacked queries, keys "
        "and values behind their split, where one becomes three",
    ),
}  # fmt: skip

COMPARED = (
    "bert_base_dynamic", "bert_small_nbits4", "convnext_tiny", "deeplabv3_mobilenet_v3_large",
    "efficientnet_b0",
    "gpt2_decode_dynamic", "gpt2_dynamic", "inception_v3", "light_densenet121",
    "minilm_l6_dynamo", "mobilenet_v2", "mobilenet_v2_qdq", "mobilenet_v2_unfused",
    "mobilenet_v3_large", "resnet50", "resnet50_dynamo", "resnet50_unfused",
    "shufflenet_v2_x1_0", "squeezenet1_1", "swin_t_dynamo", "vgg16", "vit_b_16",
    "whisper_tiny_decoder",
)  # fmt: skip


def bound(name: str) -> onnx.ModelProto:
    """The model with weights and every free dimension bound."""
    proto = weights_filled(name)
    for item in proto.graph.input:
        for dim in item.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.dim_value = SIZES.get(dim.dim_param, 12)
    return proto


def theirs(proto: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Kinds of the nodes in ONNX Runtime's extended graph that launch work."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    graph = onnx.load(folder / "optimized.onnx").graph
    kinds = [node.op_type for node in graph.node if node.op_type not in VIEWS]
    return Counter(SAME.get(kind, kind) for kind in kinds)


def ours(plan: KernelPlan) -> Counter[str]:
    """Kinds of our kernels: the operator of the anchor, or what the rule sees as one."""
    kinds = []
    for kernel in plan.kernels:
        anchor = plan.cost.nodes[kernel.anchor].op_type
        kind = RULES.get(kernel.rule, anchor)
        kinds.append(SAME.get(kind, kind))
    return Counter(kinds)


@pytest.mark.parametrize("name", COMPARED)
def test_the_same_kernels_with_the_same_anchors(name: str, tmp_path: Path) -> None:
    proto = bound(name)
    shaped, _ = infer_shapes(load_model(proto).graph, Bindings.of({}))
    mine = ours(plan_kernels(count_costs(shaped), "onnxruntime"))
    found = theirs(proto, tmp_path)
    expected, _ = DIFFERENCES.get(name, ({}, ""))
    difference = {
        kind: found[kind] - mine[kind]
        for kind in sorted({*found, *mine})
        if found[kind] != mine[kind]
    }
    assert difference == expected


def test_every_model_of_the_folder_with_these_families_is_compared() -> None:
    assert all((MODELS / f"{name}.onnx").is_file() for name in COMPARED)


SCHEMES = [
    # stored type, scales, block size, axis
    (TensorProto.INT4, (2, 32), 32, 0),
    (TensorProto.UINT4, (4, 32), 16, 0),
    (TensorProto.INT8, (2, 32), 32, 0),
    (TensorProto.INT8, (32,), 0, 1),
    (TensorProto.UINT8, (), 0, 1),
    (TensorProto.INT4, (8, 32), 8, 0),
    (TensorProto.INT4, (64, 2), 16, 1),
    (TensorProto.INT8, (64,), 0, 0),
]


@pytest.mark.parametrize(("stored", "scales", "block", "axis"), SCHEMES)
@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_the_same_products_take_quantized_weights(
    operator: str, stored: int, scales: tuple[int, ...], block: int, axis: int, tmp_path: Path
) -> None:
    proto = _weight_only(operator, stored, scales, block, axis)
    plan = plan_kernels(count_costs(infer_shapes(load_model(proto).graph, Bindings.of({}))[0]))
    taken = theirs(proto, tmp_path)["MatMulNBits"]
    assert [kernel.rule == "weight-only-matmul" for kernel in plan.kernels] == [bool(taken)]


def _weight_only(
    operator: str, stored: int, scales: tuple[int, ...], block: int, axis: int
) -> onnx.ModelProto:
    """x of 4×64 times a quantized matrix of 64×32."""
    nbytes = 64 * 32 // (2 if stored in (TensorProto.INT4, TensorProto.UINT4) else 1)
    blocks = {"block_size": block} if block else {}
    weights = helper.make_tensor("q", stored, (64, 32), bytes(nbytes), raw=True)
    ones = np.ones(scales, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=axis, **blocks),
            helper.make_node(operator, ["x", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 32))],
        [weights, onnx.numpy_helper.from_array(ones, "s")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
