from __future__ import annotations

import pickle

import pytest

from onnxroof.graph.types import DType, Node
from onnxroof.ops import load_rules
from onnxroof.ops.call import Impossible, OpCall, OpCost, TensorInfo, Undetermined, no_traffic
from onnxroof.ops.registry import Registry, cost_rule, declare, default_registry, shape_rule


def cost_of_seven(call: OpCall) -> OpCost:
    return OpCost(flops=7)


def same_shape(call: OpCall) -> list[TensorInfo]:
    return [call.input(0)]


@pytest.fixture
def registry() -> Registry:
    own = Registry()
    own.entry("my", "Foo").cost_rules.update({1: no_traffic, 13: cost_of_seven})
    return own


def test_the_newest_rule_not_above_the_opset_holds(registry: Registry) -> None:
    before, after = registry.find("my", "Foo", 12), registry.find("my", "Foo", 99)
    assert before is not None
    assert after is not None
    assert before.cost_rule is not after.cost_rule
    assert after.cost_rule is cost_of_seven


def test_an_operator_is_found_by_its_domain(registry: Registry) -> None:
    assert registry.find("", "Foo", 13) is None
    assert registry.find("my", "Bar", 13) is None


def test_a_standard_operator_is_not_one_of_the_same_name_elsewhere() -> None:
    rules = load_rules()
    assert rules.find("", "Conv", 21) is not None
    assert rules.find("my.ops", "Conv", 1) is None


def test_a_rule_that_holds_later_does_not_hold_before() -> None:
    own = Registry()
    own.entry("my", "Foo").cost_rules[13] = cost_of_seven
    found = own.find("my", "Foo", 12)
    assert found is not None
    assert found.cost_rule is None


def test_a_look_up_is_repeated_after_a_registration(registry: Registry) -> None:
    assert registry.find("my", "Bar", 1) is None
    registry.entry("my", "Bar").cost_rules[1] = cost_of_seven
    assert registry.find("my", "Bar", 1) is not None


def test_a_registry_on_top_of_another_goes_first(registry: Registry) -> None:
    top = Registry(registry)
    assert top.find("my", "Foo", 13) is registry.find("my", "Foo", 13)
    top.entry("my", "Foo").shape_rules[1] = same_shape
    found = top.find("my", "Foo", 13)
    assert found is not None
    assert found.shape_rule is same_shape
    assert registry.find("my", "Foo", 13).shape_rule is None  # type: ignore[union-attr]


def test_what_the_base_learns_later_the_top_knows(registry: Registry) -> None:
    top = Registry(registry)
    assert top.find("my", "New", 1) is None
    registry.entry("my", "New").cost_rules[1] = cost_of_seven
    assert top.find("my", "New", 1) is not None


def test_registering_a_rule_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        shape_rule("Conv")(same_shape)
    with pytest.raises(ValueError, match="registered twice"):
        cost_rule("Conv")(cost_of_seven)
    with pytest.raises(ValueError, match="declared twice"):
        declare("Loop", pointwise=True)


def test_operators_come_sorted_by_domain_and_name() -> None:
    names = [(operator.domain, operator.op_type) for operator in load_rules()]
    assert names == sorted(names)
    assert len(names) > 300


def test_every_operator_has_both_rules_or_a_body() -> None:
    bodies = ("If", "Loop", "Scan", "SequenceMap")
    halves = [
        operator.qualified_name
        for operator in load_rules()
        if operator.cost_rule is None or operator.shape_rule is None
        if operator.op_type not in bodies
    ]
    assert halves == []


def test_the_shared_registry_survives_pickling_as_itself() -> None:
    assert pickle.loads(pickle.dumps(load_rules())) is default_registry


def test_an_operator_is_pickled_by_name_and_comes_back_as_the_same_one() -> None:
    for operator in (
        load_rules().find("", name, 21) for name in ("Conv", "QuantizeLinear", "Loop")
    ):
        assert pickle.loads(pickle.dumps(operator)) is operator


def test_a_registry_on_top_survives_pickling() -> None:
    top = Registry(load_rules())
    top.entry("my", "Foo").shape_rules[1] = same_shape
    copy = pickle.loads(pickle.dumps(top))
    assert copy.find("my", "Foo", 1).shape_rule is same_shape
    assert copy.find("", "Conv", 21) is load_rules().find("", "Conv", 21)


# -- what rules see --------------------------------------------------------------------------


def call(*infos: TensorInfo | None, **attributes: object) -> OpCall:
    node = Node("", "", "Foo", 21, tuple("abc"[: len(infos)]), ("y",), tuple(attributes.items()))  # type: ignore[arg-type]
    return OpCall(node, infos)


def test_a_missing_required_input_is_impossible_and_an_unsized_one_undetermined() -> None:
    unsized = TensorInfo(DType.FLOAT, None)
    with pytest.raises(Impossible, match="required input 1 is missing"):
        call(unsized).input(1)
    with pytest.raises(Impossible, match="required input 0 is missing"):
        call(None).input(0)
    with pytest.raises(Undetermined, match="shape of input 0"):
        call(unsized).shape(0)


def test_an_attribute_of_the_wrong_type_is_impossible() -> None:
    with pytest.raises(Impossible, match="attribute axis has the wrong type"):
        call(axis="one").attr("axis", 1)
    with pytest.raises(Impossible, match="pads should be a list"):
        call(pads=1).ints_attr("pads")
    assert call(alpha=1).attr("alpha", 0.5) == 1.0
    assert call().attr("axis", -1) == -1


def test_a_control_input_without_a_value_is_undetermined() -> None:
    with pytest.raises(Undetermined, match=r"axes \(input 0\) is computed at run time"):
        call(TensorInfo(DType.INT64, (2,))).ints(0, "axes")


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        (DType.FLOAT, (2, 3), 24),
        (DType.FLOAT, (), 4),
        (DType.INT4, (5,), 3),
        (DType.FLOAT6E2M3, (3,), 3),  # 18 bits
        (DType.FLOAT, (0, 3), 0),
        (DType.STRING, (2,), None),
        (None, (2,), None),
        (DType.FLOAT, None, None),
    ],
)
def test_bytes_of_a_tensor(
    dtype: DType | None, shape: tuple[int, ...] | None, nbytes: int | None
) -> None:
    assert TensorInfo(dtype, shape).nbytes == nbytes


def test_bytes_beyond_64_bits_are_exact() -> None:
    # 2³² · 2³² elements of 4 bytes: a 64-bit product would wrap round to 0
    assert TensorInfo(DType.FLOAT, (2**32, 2**32)).nbytes == 2**66


def test_costs_add_up() -> None:
    total = OpCost(macs=2, flops=5, transcendentals=1) + OpCost(macs=1, flops=2)
    assert (total.macs, total.flops, total.transcendentals) == (3, 7, 1)


def test_every_domain_with_rules_of_our_own_is_one_whose_names_rules_may_trust() -> None:
    # fusion, lint and times know an operator by `Node.kind`: in a stranger's domain not by its type
    domains = {operator.domain for operator in load_rules() if operator.source == "built-in"}
    assert {"", "com.microsoft", "ai.onnx.ml"} <= domains
    for domain in domains:
        assert Node("", domain, "Relu", 1, (), ("y",)).kind == "Relu"
    assert Node("", "my.ops", "Relu", 1, (), ("y",)).kind == "my.ops.Relu"
