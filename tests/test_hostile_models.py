"""Models that no exporter writes: what is wrong is said, in time, and nothing breaks later on."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxroof.api import analyze
from onnxroof.cost import Status
from onnxroof.errors import InvalidGraphError, ShapeMismatchError
from onnxroof.lint.command import lint
from onnxroof.ops.call import OpCost, TensorInfo
from onnxroof.plugins import register_operator
from tests.builders import cost_of, problem_of, shapes_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

BEYOND = 1 << 40
"""A tensor of BEYOND × BEYOND elements has 2^80, more than 64 bits count."""


def graph_of(
    nodes: list[onnx.NodeProto], outputs: list[str], **inputs: list[int]
) -> onnx.ModelProto:
    """A model of these nodes with fp32 inputs of these shapes."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    proto: onnx.ModelProto = helper.make_model(
        helper.make_graph(nodes, "g", given, made), opset_imports=[helper.make_opsetid("", 21)]
    )
    return proto


def lines_run_for(proto: onnx.ModelProto) -> int:
    """Lines of Python run for everything a report does but printing; a loop counts every turn."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        analysis = analyze(proto, "v100")
        analysis.to_dict()
        lint(analysis, weights=False)
    finally:
        sys.settrace(before)
    return count


def test_a_result_of_negative_size_is_a_problem_and_not_negative_bytes() -> None:
    text = "agraph () => (y) { y = RandomNormal <shape = [3, -4]> () }"
    assert "negative size: 3×-4" in problem_of(text)


def test_a_result_of_more_elements_than_64_bits_count_is_a_problem() -> None:
    text = f"""agraph (float[1] x) => (y)
    <int64[2] s = {{{BEYOND}, {BEYOND}}}> {{ y = Expand (x, s) }}"""
    assert "more than 2^63 elements" in problem_of(text)


def test_a_tensor_that_is_empty_may_have_any_other_sizes() -> None:
    text = f"""agraph (float[0, 1, 1] x) => (y)
    <int64[3] s = {{0, {BEYOND}, {BEYOND}}}> {{ y = Expand (x, s) }}"""
    assert shapes_of(text)["y"] == (0, BEYOND, BEYOND)


def test_sizes_that_double_with_every_node_end_in_a_problem_and_not_in_an_overflow() -> None:
    nodes = [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(2000)]
    analysis = analyze(graph_of(nodes, ["v2000"], v0=[4]), "v100", keep_going=True)
    assert "more than 2^63 elements" in analysis.problems[0].reason  # at 4 · 2^61
    json.dumps(analysis.to_dict(), allow_nan=False)


def test_an_input_of_impossible_size_is_refused_by_name() -> None:
    proto = graph_of([helper.make_node("Relu", ["x"], ["y"])], ["y"], x=[BEYOND, BEYOND])
    with pytest.raises(InvalidGraphError, match="input 'x': has more than 2\\^63 elements"):
        analyze(proto)


def test_an_initializer_of_impossible_size_is_refused_by_name() -> None:
    proto = graph_of([helper.make_node("Add", ["x", "w"], ["y"])], ["y"], x=[4])
    proto.graph.initializer.add(name="w", data_type=1, dims=[BEYOND] * 5000)
    with pytest.raises(InvalidGraphError, match="tensor 'w': has more than 2\\^63 elements"):
        analyze(proto)


def test_a_node_without_outputs_takes_part_in_every_stage() -> None:
    nodes = [helper.make_node("Relu", ["x"], []), helper.make_node("Relu", ["x"], ["y"])]
    analysis = analyze(graph_of(nodes, ["y"], x=[4]), "v100")
    assert analysis.to_dict()["memory"]
    assert lint(analysis, weights=False) is not None


@pytest.mark.parametrize("op_type", ["Transpose", "Reshape", "Cast", "Concat", "Split", "Relu"])
def test_a_node_that_contradicts_its_text_is_no_candidate_for_anything(op_type: str) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node(op_type, [], ["none"]),
        helper.make_node("Transpose", ["t"], ["y"], perm=[7, -9]),
    ]
    analysis = analyze(graph_of(nodes, ["y", "none"], x=[4, 8]), "v100", keep_going=True)
    assert {problem.op_type for problem in analysis.problems} >= {"Transpose", op_type}
    analysis.to_dict()
    lint(analysis, weights=False)


def test_a_blocked_convolution_in_no_groups_is_a_problem() -> None:
    text = """agraph (float[1,16,8,8] x, float[16,16,1,1] w) => (y)
    { y = com.microsoft.nchwc.Conv <group = 0> (x, w) }"""
    assert "0 groups" in problem_of(text, opsets={"com.microsoft.nchwc": 1})


def test_a_formula_that_gives_no_whole_number_leaves_the_cost_unknown() -> None:
    register_operator(
        "hostile", "Half",
        shape=lambda call: [TensorInfo(call.input(0).dtype, call.shape(0))],
        cost=lambda _: OpCost(flops=float("nan")),  # type: ignore[arg-type]
    )  # fmt: skip
    node = cost_of("agraph (float[4] x) => (y) { y = hostile.Half (x) }", opsets={"hostile": 1})
    assert node.status is Status.UNKNOWN
    assert node.flops is None


def test_the_largest_trip_limit_is_no_limit() -> None:
    # 2^63 − 1 trips is how exporters write "while": 4 FLOPs for one trip, not for 2^63
    text = f"""agraph (float[4] x) => (y)
    <int64 most = {{{(1 << 63) - 1}}}>
    {{
      y = Loop (most, , x) <body = b (int64 i, bool go, float[4] v) => (on, w)
        {{ on = Identity (go) w = Relu (v) }}>
    }}"""
    assert cost_of(text).flops == 4


def test_nested_loops_that_grow_are_followed_only_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxroof.shapes.MOST_BODY_NODES", 1000)

    def nest(depth: int) -> onnx.GraphProto:
        inside = (
            helper.make_node("Concat", [f"v{depth}", "one"], [f"w{depth}"], axis=0)
            if depth == 0
            else helper.make_node(
                "Loop", ["most", "", f"v{depth}"], [f"w{depth}"], body=nest(depth - 1)
            )
        )
        return helper.make_graph(
            [inside, helper.make_node("Identity", [f"go{depth}"], [f"on{depth}"])],
            "body",
            [
                helper.make_tensor_value_info(f"i{depth}", TensorProto.INT64, []),
                helper.make_tensor_value_info(f"go{depth}", TensorProto.BOOL, []),
                helper.make_tensor_value_info(f"v{depth}", TensorProto.FLOAT, None),
            ],
            [onnx.ValueInfoProto(name=f"on{depth}"), onnx.ValueInfoProto(name=f"w{depth}")],
        )

    proto = graph_of(
        [helper.make_node("Loop", ["most", "", "x"], ["y"], body=nest(6))], ["y"], x=[4], one=[1]
    )
    proto.graph.initializer.append(helper.make_tensor("most", TensorProto.INT64, [], [50]))
    analysis = analyze(proto)  # 50^7 trips if all were followed
    assert any("nested and unrolled too far" in item.reason for item in analysis.unresolved)


def test_an_einsum_of_a_thousand_operands_is_contracted_from_left_to_right() -> None:
    equation = ",".join(["ab"] * 1000) + "->a"
    proto = graph_of(
        [helper.make_node("Einsum", ["x"] * 1000, ["y"], equation=equation)], ["y"], x=[3, 5]
    )
    node = cost_of(proto)
    # 998 elementwise products of 3 × 5, and a last one summed over b
    assert node.macs == 3 * 5
    assert node.flops == 998 * 3 * 5 + 2 * 3 * 5


def test_a_message_about_a_million_numbers_is_short() -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=list(range(1_000_000)))
    with pytest.raises(ShapeMismatchError) as caught:
        analyze(graph_of([node], ["y"], x=[4]))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("op_type", ["Relu", "Cast", "QuantizeLinear"])
def test_a_chain_of_thousands_of_nodes_takes_work_in_proportion(op_type: str) -> None:
    chains = {
        "Relu": lambda i: [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"])],
        "Cast": lambda i: [helper.make_node("Cast", [f"v{i}"], [f"v{i + 1}"], to=[1, 10][i % 2])],
        "QuantizeLinear": lambda i: [
            helper.make_node("QuantizeLinear", [f"v{i}", "s"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", "s"], [f"v{i + 1}"]),
        ],
    }

    def chain(length: int) -> onnx.ModelProto:
        nodes = [node for i in range(length) for node in chains[op_type](i)]
        proto = graph_of(nodes, [f"v{length}"], v0=[4])
        proto.graph.initializer.append(helper.make_tensor("s", TensorProto.FLOAT, [], [0.5]))
        return proto

    short, long = lines_run_for(chain(250)), lines_run_for(chain(2000))
    assert long < 8 * 1.25 * short  # quadratic would be 64 times


def test_thousands_of_equal_nodes_are_grouped_with_work_in_proportion() -> None:
    def fan(width: int) -> onnx.ModelProto:
        names = [f"y{i}" for i in range(width)]
        nodes = [helper.make_node("Sigmoid", ["x"], [name]) for name in names]
        return graph_of(nodes, names, x=[4])

    short, long = lines_run_for(fan(250)), lines_run_for(fan(2000))
    assert long < 8 * 1.25 * short  # quadratic would be 64 times


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_before_the_first_is_refused(version: int) -> None:
    proto = graph_of([helper.make_node("Relu", ["x"], ["y"])], ["y"], x=[4])
    proto.opset_import[0].version = version
    with pytest.raises(InvalidGraphError, match=f"version {version} does not exist"):
        analyze(proto)


@pytest.mark.parametrize("size", [0, 3])
def test_a_dropout_whose_mode_is_no_single_value_is_no_view(size: int) -> None:
    nodes = [helper.make_node("Dropout", ["x", "", "mode"], ["y"])]
    proto = graph_of(nodes, ["y"], x=[4])
    proto.graph.initializer.append(
        helper.make_tensor("mode", TensorProto.BOOL, [size], [False] * size)
    )
    assert analyze(proto, keep_going=True).to_dict()["memory"]


def test_an_absent_output_of_a_view_is_not_taken_for_an_absent_input_elsewhere() -> None:
    # Dropout's mask and Clip's lower bound are both absent; x itself is read first and dies then.
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Dropout", ["a"], ["b", ""]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("Clip", ["e", "", "most"], ["y"]),
    ]
    proto = graph_of(nodes, ["y"], x=[1, 1000], w=[1000, 2], v=[2, 3])
    proto.graph.initializer.append(helper.make_tensor("most", TensorProto.FLOAT, [], [1.0]))
    memory = analyze(proto, runtime="none").memory
    lifetimes = memory.fused_lifetimes
    death = dict(zip(lifetimes.names, lifetimes.deaths, strict=True))
    names = [kernel.name for kernel in memory.kernels.kernels]
    assert "MatMul" in names[death["a"]]
    assert death["a"] < death["e"]
