from __future__ import annotations

import pytest

import onnxroof
from onnxroof.api import memo_for
from onnxroof.cost import Status
from onnxroof.graph.types import DType, Node
from onnxroof.ops.call import OpCall, TensorInfo, Undetermined
from onnxroof.ops.fallback import expandable, function_body, infer_by_schema
from tests.builders import model


def call(op_type: str, *infos: TensorInfo | None, opset: int = 21, outputs: int = 1,
         domain: str = "", **attributes: object) -> OpCall:  # fmt: skip
    names = tuple("" if info is None else f"i{n}" for n, info in enumerate(infos))
    made = tuple(f"o{n}" for n in range(outputs))
    node = Node("", domain, op_type, opset, names, made, tuple(attributes.items()))  # type: ignore[arg-type]
    return OpCall(node, infos)


F = TensorInfo(DType.FLOAT, (2, 3))


def test_the_standard_s_own_inference_sizes_one_node() -> None:
    (info,) = infer_by_schema(call("MatMul", F, TensorInfo(DType.FLOAT, (3, 5))))
    assert (info.dtype, info.shape) == (DType.FLOAT, (2, 5))


def test_an_answer_with_an_open_dimension_is_no_shape() -> None:
    (info,) = infer_by_schema(call("NonZero", F))
    assert (info.dtype, info.shape) == (DType.INT64, None)


def test_an_input_without_a_shape_is_undetermined() -> None:
    with pytest.raises(Undetermined, match="an input is not sized"):
        infer_by_schema(call("MatMul", F, TensorInfo(DType.FLOAT, None)))


def test_an_operator_of_no_schema_is_undetermined_by_name() -> None:
    with pytest.raises(Undetermined, match=r"no rule is known for operator my\.Foo"):
        infer_by_schema(call("Foo", F, domain="my"))


@pytest.mark.parametrize(
    "odd",
    [
        call("MatMul", F),
        call("MatMul", F, TensorInfo(DType.FLOAT, (4, 5))),
        call("Concat", F, F),
        call("Concat", F, F, axis=9),
        call("Transpose", F, perm=(0, 0)),
        call("Relu", F, outputs=7),
        call("If", F),
    ],
    ids=lambda odd: odd.op_type,
)
def test_what_the_schema_refuses_is_undetermined_with_its_words(odd: OpCall) -> None:
    with pytest.raises(Undetermined, match="failed"):
        infer_by_schema(odd)


def test_operators_with_a_body_are_expandable_and_others_not() -> None:
    assert expandable("", "CenterCropPad", 18) is not None
    assert expandable("", "Conv", 21) is None
    assert expandable("", "NoSuchOperator", 21) is None
    assert expandable("my", "Foo", 1) is None


def test_a_body_depends_on_the_types_where_its_schema_says_so() -> None:
    body = function_body(call("Softmax", F, opset=13, axis=-1))
    assert [node.op_type for node in body.nodes if node.op_type == "Exp"] == ["Exp"]
    assert len(body.inputs) == 1


def without_rules(monkeypatch: pytest.MonkeyPatch, *op_types: str) -> None:
    """Let the registry know nothing of some operators, so that their bodies stand in."""
    from onnxroof.ops import load_rules

    registry = load_rules()
    find = registry.find

    def found(self: object, domain: str, op_type: str, opset: int) -> object:
        return None if op_type in op_types else find(domain, op_type, opset)

    monkeypatch.setattr(type(registry), "find", found)


def test_an_operator_without_a_rule_costs_what_its_body_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Softmax of 2 rows of 3 by its body: max 2·2, minus 6, exp 6, sum 2·2, division 6
    without_rules(monkeypatch, "Softmax")
    analysis = onnxroof.analyze(
        model("agraph (float[2,3] x) => (float y) { y = Softmax <axis = -1> (x) }", opset=13)
    )
    (node,) = analysis.nodes
    assert (node.flops, node.transcendentals) == (4 + 6 + 6 + 4 + 6, 6)
    assert node.status is Status.COUNTED
    assert analysis.tensors["y"].shape == (2, 3)
    assert "function body" in analysis.coverage.by_source


def test_a_body_is_expanded_once_per_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    without_rules(monkeypatch, "Softmax")
    calls = []

    def counted(call: OpCall) -> object:
        calls.append(call)
        return function_body(call)

    monkeypatch.setattr("onnxroof.ops.fallback.function_body", counted)
    chain = " ".join(f"t{i + 1} = Softmax <axis = -1> (t{i})" for i in range(50))
    proto = model(f"agraph (float[2,3] t0) => (float t50) {{ {chain} }}", opset=13)
    onnxroof.analyze(proto, memo=memo_for(""))
    assert len(calls) == 1


def test_an_operator_without_rule_body_or_shape_is_unknown_not_zero() -> None:
    analysis = onnxroof.analyze(
        model("agraph (float[2] x) => (float[] y) { y = my.Foo(x) }", opsets={"my": 1})
    )
    (node,) = analysis.nodes
    assert (node.status, node.macs, node.flops) == (Status.UNKNOWN, None, None)
    assert "my.Foo" in node.note
    assert analysis.totals.is_lower_bound
