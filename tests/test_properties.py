"""What must hold for any graph: linear in batch, bounded below and above, blind to node order."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onnxroof

CHANNELS = 4
UNARY = ("Relu", "Sigmoid", "Tanh", "Identity", "Softmax")
BINARY = ("Add", "Mul", "Sub")
WEIGHTED = ("Conv", "BatchNormalization", "PRelu")


@dataclass(frozen=True)
class Step:
    """One node of a random graph; operands count back from the newest value."""

    op_type: str
    first: int
    second: int


steps = st.lists(
    st.builds(
        Step, st.sampled_from(UNARY + BINARY + WEIGHTED), st.integers(0, 5), st.integers(0, 5)
    ),
    min_size=1,
    max_size=12,
)


def weight(name: str, *shape: int) -> TensorProto:
    """A weight unlike every other, so that no two nodes compute the same."""
    return numpy_helper.from_array(np.full(shape, zlib.crc32(name.encode()), np.float32), name)


def weights_of(op_type: str, value: str) -> list[TensorProto]:
    if op_type == "Conv":
        return [weight(f"{value}_w", CHANNELS, CHANNELS, 3, 3), weight(f"{value}_b", CHANNELS)]
    if op_type == "PRelu":
        return [weight(f"{value}_slope", CHANNELS, 1, 1)]
    if op_type == "BatchNormalization":
        return [weight(f"{value}_{part}", CHANNELS) for part in ("scale", "bias", "mean", "var")]
    return []


def model_of(graph_steps: list[Step], order: list[int] | None = None) -> onnx.ModelProto:
    """A graph over [batch, 4, 8, 8] tensors; whatever nobody reads is an output."""
    values, read, nodes, weights = ["x"], set(), [], []
    for number, step in enumerate(graph_steps):
        value = f"v{number}"
        operands = [values[-1 - min(step.first, number)]]
        if step.op_type in BINARY:
            operands.append(values[-1 - min(step.second, number)])
        own = weights_of(step.op_type, value)
        attributes = {"pads": [1, 1, 1, 1]} if step.op_type == "Conv" else {}
        inputs = [*operands, *(tensor.name for tensor in own)]
        nodes.append(helper.make_node(step.op_type, inputs, [value], name=value, **attributes))
        weights += own
        values.append(value)
        read.update(operands)
    shape = ["batch", CHANNELS, 8, 8]
    outputs = [value for value in values[1:] if value not in read]
    graph = helper.make_graph(
        [nodes[index] for index in order] if order else nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape) for value in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@st.composite
def reordered(draw: st.DrawFn) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The same random graph twice, its nodes in two orders that both respect the data flow."""
    graph_steps = draw(steps)
    model = model_of(graph_steps)
    waiting = dict(enumerate(model.graph.node))
    made, order = {"x"} | {tensor.name for tensor in model.graph.initializer}, []
    while waiting:
        ready = [index for index, node in waiting.items() if made.issuperset(node.input)]
        chosen = draw(st.sampled_from(ready))
        made.update(waiting.pop(chosen).output)
        order.append(chosen)
    return model, model_of(graph_steps, order)


@settings(deadline=None, max_examples=60)
@given(steps, st.integers(1, 9))
def test_work_is_linear_in_the_batch(graph_steps: list[Step], batch: int) -> None:
    model = model_of(graph_steps)
    one = onnxroof.analyze(model, dims={"batch": 1}).totals
    many = onnxroof.analyze(model, dims={"batch": batch}).totals
    assert many.macs == batch * one.macs
    assert many.flops == batch * one.flops
    assert many.transcendentals == batch * one.transcendentals
    assert many.parameters == one.parameters


@settings(deadline=None, max_examples=60)
@given(steps)
def test_traffic_holds_at_least_the_largest_tensor_a_node_writes(graph_steps: list[Step]) -> None:
    analysis = onnxroof.analyze(model_of(graph_steps), dims={"batch": 2})
    working = [node for node in analysis.nodes if node.op_type != "Identity"]
    largest = max((node.output_bytes for node in working), default=0)
    assert analysis.totals.traffic_bytes >= largest


@settings(deadline=None, max_examples=60)
@given(steps)
def test_flops_hold_two_per_mac(graph_steps: list[Step]) -> None:
    for node in onnxroof.analyze(model_of(graph_steps), dims={"batch": 2}).nodes:
        assert node.flops >= 2 * node.macs + node.transcendentals


@settings(deadline=None, max_examples=60)
@given(steps)
def test_fusion_never_adds_traffic_or_changes_work(graph_steps: list[Step]) -> None:
    analysis = onnxroof.analyze(model_of(graph_steps), dims={"batch": 2})
    kernels = analysis.kernels.kernels
    fused = sum(kernel.read_bytes + kernel.written_bytes for kernel in kernels)
    assert fused <= analysis.totals.traffic_bytes
    assert sum(kernel.macs for kernel in kernels) == analysis.totals.macs


@settings(deadline=None, max_examples=60)
@given(steps)
def test_peak_lies_between_the_largest_working_set_and_the_sum_of_tensors(
    graph_steps: list[Step],
) -> None:
    analysis = onnxroof.analyze(model_of(graph_steps), dims={"batch": 2})
    sizes = {
        name: tensor.nbytes for name, tensor in analysis.tensors.items() if not tensor.constant
    }
    largest = max(
        sum(sizes.get(name, 0) for name in {*node.node.inputs, *node.node.outputs})
        for node in analysis.nodes
    )
    assert largest <= analysis.memory.peak_activation_bytes <= sum(sizes.values())


@settings(deadline=None, max_examples=60)
@given(reordered())
def test_node_order_never_changes_totals(
    models: tuple[onnx.ModelProto, onnx.ModelProto],
) -> None:
    first, second = (onnxroof.analyze(model, dims={"batch": 2}) for model in models)
    assert first.totals == second.totals


def test_node_order_changes_the_peak() -> None:
    # Two branches x → big → small. One after the other needs one big tensor at a time, side by
    # side needs both. Bytes: x 4·8·4 = 128, big = 16·128, small = 128.
    def branch(number: int) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Concat", ["x"] * 16, [f"big{number}"], axis=0),
            helper.make_node("ReduceMax", [f"big{number}"], [f"small{number}"], axes=[0]),
        ]

    def peak(nodes: list[onnx.NodeProto]) -> int:
        vector = [1, 4, 8]
        graph = helper.make_graph(
            [*nodes, helper.make_node("Add", ["small0", "small1"], ["y"])],
            "branches",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, vector)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, vector)],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        return onnxroof.analyze(model).memory.peak_activation_bytes

    (grow, shrink), (grow_too, shrink_too) = branch(0), branch(1)
    # ReduceMax of the second branch while x is gone: big + small0 + small1 against x + big + big.
    assert peak([grow, shrink, grow_too, shrink_too]) == 128 + 16 * 128 + 128
    assert peak([grow, grow_too, shrink, shrink_too]) == 128 + 2 * 16 * 128
