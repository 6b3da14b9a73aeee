"""`GraphBuilder`: the same graph as its ONNX export, errors at the call, pickles."""

from __future__ import annotations

import pickle
import random

import numpy as np
import onnx
import pytest

from onnxroof import (
    CostFunction,
    GraphBuilder,
    InvalidGraphError,
    ShapeMismatchError,
    UsageError,
    analyze,
)
from tests.search.spaces import dense, mobile_net, nas_bench_201, random_cell, transformer

NETWORKS = [
    nas_bench_201(random_cell(random.Random(2)), cells=2),
    mobile_net([(3, 16, 3, 1), (6, 24, 5, 2)], excite=True),
    dense([4, 8]),
    transformer(1, 32, 2),
]
METRICS = ("latency_seconds", "flops", "macs", "parameters", "weight_bytes", "peak_memory_bytes")


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: graph.draft.name)
def test_a_graph_costs_what_its_export_costs(graph: GraphBuilder) -> None:
    for hardware in ("mobile-arm", "v100"):
        cost = CostFunction(hardware, METRICS)
        assert cost(graph) == cost(graph.to_onnx())


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: graph.draft.name)
def test_an_export_with_values_is_a_model_that_runs(graph: GraphBuilder) -> None:
    runtime = pytest.importorskip("onnxruntime")
    proto = graph.to_onnx(values="random")
    onnx.checker.check_model(proto, full_check=True)
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (info,) = session.get_inputs()
    (result,) = session.run(None, {info.name: np.ones(info.shape, np.float32)})
    analysis = analyze(graph)
    assert result.shape == analysis.cost.shaped.outputs[0].shape
    assert np.isfinite(result).all()


@pytest.mark.parametrize("graph", NETWORKS, ids=lambda graph: graph.draft.name)
def test_a_pickled_graph_costs_the_same(graph: GraphBuilder) -> None:
    copy = pickle.loads(pickle.dumps(graph))
    cost = CostFunction("mobile-arm", METRICS)
    assert cost(copy) == cost(graph)
    copy.output(copy.relu(copy.input((1, 2))))
    assert copy.node_count == graph.node_count + 1


def test_shapes_are_known_as_the_graph_is_written() -> None:
    g = GraphBuilder()
    x = g.conv(g.input((1, 3, 224, 224)), 64, 7, stride=2)
    assert x.shape == (1, 64, 112, 112)
    assert g.max_pool(x, 3, stride=2, padding=1).shape == (1, 64, 56, 56)
    assert g.flatten(g.global_average_pool(x)).shape == (1, 64)
    assert g.conv(x, 8, (3, 5), padding=(0, 0)).shape == (1, 8, 110, 108)
    assert g.conv(x, 8, 3, dilation=2).shape == (1, 8, 112, 112)
    assert g.reshape(x, (1, 64, -1)).shape == (1, 64, 12_544)


def test_a_convolution_counts_as_the_formula_says() -> None:
    g = GraphBuilder()
    g.output(g.conv(g.input((1, 16, 8, 8)), 32, 3, groups=4, bias=True))
    # 8·8 pixels · 32 filters · (16/4)·9 products; 32·4·9 weights and 32 biases
    assert CostFunction("v100", ("macs", "parameters"))(g) == (64 * 32 * 36, 32 * 36 + 32)


def test_a_weight_that_two_nodes_share_counts_once() -> None:
    g = GraphBuilder()
    x, w = g.input((4, 8)), g.weight((8, 8), name="w")
    g.output(g.matmul(g.matmul(x, w), w))
    assert CostFunction("v100", "parameters")(g) == 64
    assert analyze(g).totals.parameters == 64


def test_any_operator_can_be_used_with_attributes_and_absent_inputs() -> None:
    g = GraphBuilder()
    x = g.input((1, 4, 8, 8))
    y = g.op("Resize", x, None, None, g.constant([1, 4, 16, 16], "int64"), mode="nearest")
    assert y.shape == (1, 4, 16, 16)
    first = g.op("Split", y, outputs=2, axis=1, num_outputs=2)
    parts = g.outputs_of(first)
    assert [part.shape for part in parts] == [(1, 2, 16, 16)] * 2
    g.output(g.op("BiasGelu", g.flatten(parts[1]), g.weight((512,)), domain="com.microsoft"))
    assert analyze(g).coverage.complete
    assert CostFunction("v100")(g) == CostFunction("v100")(g.to_onnx())


def test_scopes_name_the_nodes_inside() -> None:
    g = GraphBuilder()
    x = g.input((1, 3, 8, 8))
    with g.scope("stage"):
        with g.scope("block"):
            x = g.conv(x, 4, 3)
        x = g.relu(x, name="act")
    g.output(g.relu(x))
    nodes = analyze(g).nodes
    assert [node.name for node in nodes] == ["stage/block/Conv_0", "stage/act", "Relu_2"]
    assert nodes[0].node.scope == "stage/block"


def test_what_cannot_be_is_an_error_at_the_call() -> None:
    g = GraphBuilder()
    x, y = g.input((1, 3, 8, 8)), g.input((1, 5, 8, 8))
    with pytest.raises(ShapeMismatchError):
        g.add(x, y)
    with pytest.raises(ShapeMismatchError, match="groups must divide"):
        g.conv(x, 8, 3, groups=2)
    with pytest.raises(UsageError, match="did you mean 'Relu'"):
        g.op("Rele", x)
    with pytest.raises(UsageError, match="another graph"):
        GraphBuilder().relu(x)
    with pytest.raises(UsageError, match="spatial axes"):
        g.conv(x, 8, (3, 3, 3))
    with pytest.raises(UsageError, match="whole numbers"):
        g.input((1, -1))
    with pytest.raises(UsageError, match="element type"):
        g.input((1, 1), "float")
    with pytest.raises(UsageError, match="depends on values"):
        g.op("NonZero", x)
    with pytest.raises(InvalidGraphError, match="no output"):
        analyze(g)


def test_two_tensors_may_not_have_one_name() -> None:
    g = GraphBuilder()
    x = g.input((1, 4), name="a")
    g.output(g.relu(x), name="a")
    with pytest.raises(InvalidGraphError, match="two tensors are named 'a'"):
        CostFunction("v100")(g)


def test_constants_steer_shapes_and_are_no_parameters() -> None:
    g = GraphBuilder()
    x = g.relu6(g.input((2, 6)))
    g.output(g.mul(x, g.constant(0.5)))
    assert CostFunction("v100", "parameters")(g) == 0
    assert CostFunction("v100", "parameters")(g.to_onnx()) == 0


def test_an_input_that_is_no_tensor_is_a_wrong_use() -> None:
    with pytest.raises(UsageError, match="Relu: an input must be a tensor or None, not 3"):
        GraphBuilder().op("Relu", 3)
