"""An operator of somebody's own domain is not what ONNX calls by the same name."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from onnxroof.api import Analysis, analyze
from onnxroof.cost import Status
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.lint.command import lint


def analyzed(body: str, domain: str, runtime: str = "onnxruntime") -> Analysis:
    """Nodes of a line each ("y = Relu(x)"), the last one of this domain; "w" is 4×4×1×1 zeros."""
    nodes = []
    for line in body.split(";"):
        result, _, call = line.strip().partition(" = ")
        op_type, _, arguments = call.rstrip(")").partition("(")
        nodes.append(helper.make_node(op_type, arguments.split(", "), [result], name=op_type))
    nodes[-1].domain = domain
    tensor = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4, 1, 1], [0.0] * 16)
    graph = helper.make_graph(nodes, "g", [tensor], [result], initializer=[weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    proto = helper.make_model(graph, opset_imports=opsets)
    return analyze(proto, "v100", runtime=runtime, keep_going=True)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "body",
    [
        "a = Conv(x, w); y = Relu(a)",
        "a = Conv(x, w); y = BatchNormalization(a, w, w, w, w)",
        "a = Conv(x, w); y = Add(a, x)",
        "a = Sigmoid(x); y = Mul(a, x)",
        "a = Transpose(x); y = Transpose(a)",
        "y = Dropout(x)",
        "y = Identity(x)",
        "y = Reshape(x, w)",
        "y = Shape(x)",
        "y = Concat(x)",
        "y = DequantizeLinear(w)",
    ],
)
def test_it_is_a_kernel_of_its_own_and_stays_unknown(body: str, runtime: str) -> None:
    analysis = analyzed(body, "my", runtime)
    node = analysis.nodes[-1]
    assert node.status is Status.UNKNOWN
    assert "my." in node.note
    kernel = analysis.kernels.kernels[-1]
    assert kernel.nodes == (node.node.index,)
    assert kernel.flops is None
    assert not [n for n in analysis.kernels.removed if n.index == node.node.index]


def test_the_same_name_in_the_domain_of_onnx_is_fused() -> None:
    assert [k.op_type for k in analyzed("a = Conv(x, w); y = Relu(a)", "").kernels.kernels] == [
        "Conv+Relu"
    ]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("y = Transpose(x)", "copying-kernel"),
        ("a = Transpose(x); y = Transpose(a)", "redundant-transpose-pair"),
    ],
)
def test_lint_does_not_take_it_for_onnx_s_either(body: str, rule: str) -> None:
    found = {
        domain: {finding.name for finding in lint(analyzed(body, domain), weights=False).findings}
        for domain in ("", "my")
    }
    assert rule in found[""]
    assert rule not in found["my"]
