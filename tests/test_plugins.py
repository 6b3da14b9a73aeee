from __future__ import annotations

import pickle
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof.cost import Status
from onnxroof.errors import UsageError
from onnxroof.ops import load_plugins, load_rules
from onnxroof.ops.call import OpCall, OpCost, TensorInfo
from onnxroof.plugins import read_operators, register_operator
from tests.builders import model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx


def halve(call: OpCall) -> list[TensorInfo]:
    """Half the last size."""
    *lead, last = call.shape(0)
    return [call.input(0).like((*lead, last // 2))]


def three_each(call: OpCall) -> OpCost:
    """Three operations for each output element."""
    return OpCost(flops=3 * call.output().elements)


def foo(op_type: str = "Foo", domain: str = "acme", shape: str = "2,8") -> onnx.ModelProto:
    text = f"agraph (float[{shape}] x) => (float[] y) {{ y = {domain}.{op_type}(x) }}"
    return model(text, opsets={domain: 1})


@pytest.fixture
def registered() -> Iterator[None]:
    """acme.Foo, for one test."""
    register_operator("acme", "Foo", shape=halve, cost=three_each)
    yield
    registry = load_rules()
    registry._entries.pop(("acme", "Foo"), None)
    registry._resolved.clear()


def yaml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "operators.yaml"
    path.write_text(text)
    return path


LINE = """operators:
- {domain: acme, op_type: Foo, outputs: ["x0[0], x0[1] // 2"], flops: "3 * prod(y0)"}
"""


# -- in Python -------------------------------------------------------------------------------


@pytest.mark.usefixtures("registered")
def test_a_registered_operator_is_sized_and_costed() -> None:
    # [2, 8] → [2, 4]: 3 · 8 FLOPs, 64 bytes in and 32 out
    analysis = onnxroof.analyze(foo())
    (node,) = analysis.nodes
    assert analysis.tensors["y"].shape == (2, 4)
    assert (node.flops, node.traffic_bytes, node.status) == (24, 96, Status.COUNTED)
    assert analysis.coverage.by_source == {"plug-in": 1}


@pytest.mark.usefixtures("registered")
def test_registering_it_again_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"acme\.Foo since 1 is registered already"):
        register_operator("acme", "Foo", shape=halve, cost=three_each)


def test_a_standard_operator_cannot_be_replaced_by_accident() -> None:
    with pytest.raises(ValueError, match="registered already"):
        register_operator("", "Conv", shape=halve, cost=three_each)
    assert load_rules().find("", "Conv", 21).source == "built-in"  # type: ignore[union-attr]


@pytest.mark.usefixtures("registered")
def test_a_later_version_goes_beside_the_first() -> None:
    register_operator("acme", "Foo", shape=halve, cost=lambda _: OpCost(flops=1), since=2)
    first, second = (load_rules().find("acme", "Foo", version) for version in (1, 2))
    assert first is not None
    assert second is not None
    assert first.cost_rule is three_each
    assert second.cost_rule is not three_each


@pytest.mark.parametrize(
    "rule",
    [
        lambda _: None,
        lambda call: call.missing,
        lambda call: call.shape(0)[9],
        lambda _: 1 // 0,
    ],
)
def test_a_rule_that_fails_is_a_problem_of_its_node(rule: object) -> None:
    proto = model(
        "agraph (float[2,8] x) => (float[] y, float z) { y = acme.Bad(x) z = Relu(x) }",
        opsets={"acme": 1},
    )
    try:
        register_operator("acme", "Bad", shape=rule, cost=rule)  # type: ignore[arg-type]
        analysis = onnxroof.analyze(proto, keep_going=True)
        assert analysis.nodes[0].status is Status.UNKNOWN
        assert analysis.nodes[1].flops == 16
    finally:
        load_rules()._entries.pop(("acme", "Bad"))
        load_rules()._resolved.clear()


def test_a_cost_rule_that_returns_nothing_leaves_the_node_unknown() -> None:
    try:
        register_operator("acme", "Bad", shape=halve, cost=lambda _: None)  # type: ignore[arg-type, return-value]
        (node,) = onnxroof.analyze(foo("Bad")).nodes
        assert (node.status, node.flops) == (Status.UNKNOWN, None)
    finally:
        load_rules()._entries.pop(("acme", "Bad"))
        load_rules()._resolved.clear()


# -- through an entry point ------------------------------------------------------------------


def register_installed() -> None:
    """What a package names in its entry point."""
    register_operator("acme", "Installed", shape=halve, cost=three_each)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Entry points of the test's own: append "module:function" texts."""
    values: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        assert group == "onnxroof.operators"
        return [EntryPoint("acme", value, group) for value in values]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    load_plugins.cache_clear()
    yield values
    load_plugins.cache_clear()
    load_rules()._entries.pop(("acme", "Installed"), None)
    load_rules()._resolved.clear()


def test_an_installed_package_is_asked_for_what_nobody_knows(installed: list[str]) -> None:
    installed.append(f"{__name__}:register_installed")
    assert onnxroof.analyze(foo("Installed")).totals.flops == 24


def test_installed_packages_are_not_asked_while_everything_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_plugins.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", pytest.fail)
    onnxroof.analyze(model("agraph (float[2] x) => (float y) { y = Relu(x) }"))


@pytest.mark.parametrize("value", ["no_such_module_anywhere:f", f"{__name__}:no_such_function"])
def test_a_package_that_cannot_be_loaded_is_named(installed: list[str], value: str) -> None:
    installed.append(value)
    with pytest.raises(UsageError, match=r"plug-in 'acme' \(.*\) cannot be loaded"):
        onnxroof.analyze(foo("Installed"))


# -- in YAML ---------------------------------------------------------------------------------


def test_one_line_of_yaml_describes_an_operator(tmp_path: Path) -> None:
    analysis = onnxroof.analyze(foo(), operators=yaml(tmp_path, LINE))
    assert analysis.tensors["y"].shape == (2, 4)
    assert analysis.totals.flops == 24
    assert analysis.coverage.by_source == {"YAML": 1}


def test_a_yaml_file_holds_for_its_analysis_alone(tmp_path: Path) -> None:
    onnxroof.analyze(foo(), operators=yaml(tmp_path, LINE))
    assert onnxroof.analyze(foo()).coverage.unknown


def test_all_keys_and_attributes_may_be_used(tmp_path: Path) -> None:
    # stride 2: [2, 8] → [2, 4] of int8; 16 MACs, 2·16 + 1 FLOPs; 10 bytes in, 3 out
    path = yaml(
        tmp_path,
        """operators:
- domain: acme
  op_type: Foo
  outputs: ["x0[0], ceil_div(x0[1], stride)"]
  dtype: int8
  macs: prod(x0)
  flops: 2 * prod(x0) + 1
  transcendentals: 1
  read_bytes: 10
  written_bytes: 3
  control: [1]
""",
    )
    text = "agraph (float[2,8] x, int64[1] s) => (int8[] y) { y = acme.Foo <stride = 2> (x, s) }"
    analysis = onnxroof.analyze(model(text, opsets={"acme": 1}), operators=path)
    (node,) = analysis.nodes
    info = analysis.tensors["y"]
    assert info.dtype is not None
    assert (info.dtype.label, info.shape) == ("int8", (2, 4))
    assert (node.macs, node.flops, node.transcendentals) == (16, 33, 1)
    assert (node.input_bytes, node.output_bytes) == (10, 3)


def test_several_outputs_have_a_text_each(tmp_path: Path) -> None:
    path = yaml(
        tmp_path,
        """operators:
- {domain: acme, op_type: Foo, outputs: ["x0[0]", "", "max(x0[0], 3), 7"], flops: 0}
""",
    )
    text = "agraph (float[2,8] x) => (float[] a, float[] b, float[] c) { a, b, c = acme.Foo(x) }"
    tensors = onnxroof.analyze(model(text, opsets={"acme": 1}), operators=path).tensors
    assert [tensors[name].shape for name in "abc"] == [(2,), (), (3, 7)]


def test_an_expression_that_fails_leaves_the_node_unknown_with_the_reason(tmp_path: Path) -> None:
    path = yaml(
        tmp_path,
        'operators:\n- {domain: acme, op_type: Foo, outputs: ["x0[5]"], flops: prod(y0)}\n',
    )
    analysis = onnxroof.analyze(foo(), operators=path)
    assert analysis.nodes[0].status is Status.UNKNOWN
    assert "'x0[5]' cannot be evaluated" in analysis.unresolved[0].reason


@pytest.mark.parametrize(
    "fields", ['outputs: ["x0[0] - 5"], flops: prod(y0)', 'outputs: ["2"], flops: "0 - 3"']
)
def test_nothing_is_negative(fields: str, tmp_path: Path) -> None:
    path = yaml(tmp_path, f"operators:\n- {{domain: acme, op_type: Foo, {fields}}}\n")
    analysis = onnxroof.analyze(foo(), operators=path, keep_going=True)
    (node,) = analysis.nodes
    assert (node.status, node.flops) == (Status.UNKNOWN, None)
    assert "negative" in node.note


def test_fewer_flops_than_two_a_multiply_accumulate_are_refused_for_their_node(
    tmp_path: Path,
) -> None:
    # flops 3 · 2·4 = 24, but 2 · 13 macs alone are 26; 2 · 12 = 24 would do
    line = LINE.replace("flops:", "macs: {}, flops:")
    (node,) = onnxroof.analyze(foo(), operators=yaml(tmp_path, line.replace("{}", "13"))).nodes
    assert (node.status, node.macs, node.flops) == (Status.UNKNOWN, None, None)
    assert node.note == (
        "its formulas contradict each other: flops, 24, include 2·macs, which alone are 26"
    )
    (node,) = onnxroof.analyze(foo(), operators=yaml(tmp_path, line.replace("{}", "12"))).nodes
    assert (node.status, node.macs, node.flops) == (Status.COUNTED, 12, 24)


def test_an_entry_that_matches_no_node_is_named(tmp_path: Path) -> None:
    misspelt = LINE.replace("acme", "acne")
    analysis = onnxroof.analyze(foo(), operators=yaml(tmp_path, misspelt))
    assert analysis.assumptions == (
        "the operators file describes acne.Foo, of which the model has no node; it has acme.Foo",
    )
    assert onnxroof.analyze(foo(), operators=yaml(tmp_path, LINE)).assumptions == ()


def test_an_entry_that_matches_a_node_in_a_body_is_not_missed(tmp_path: Path) -> None:
    text = """agraph (bool c, float[2,8] x) => (float[] y) {
        y = If (c) <
            then_branch = t () => (float[] a) { a = acme.Foo(x) },
            else_branch = e () => (float[] b) { b = acme.Foo(x) }
        >
    }"""
    proto = model(text, opsets={"acme": 1})
    analysis = onnxroof.analyze(proto, operators=yaml(tmp_path, LINE))
    assert not any("operators file" in sentence for sentence in analysis.assumptions)


def test_the_standard_domain_may_be_written_out(tmp_path: Path) -> None:
    # Relu said to be 5 operations for each of 2·8 elements
    path = yaml(
        tmp_path,
        "operators:\n- {domain: ai.onnx, op_type: Relu, outputs: ['x0[0], x0[1]'],"
        " flops: 5 * prod(y0)}\n",
    )
    proto = model("agraph (float[2,8] x) => (float[2,8] y) { y = Relu(x) }")
    assert onnxroof.analyze(proto, operators=path).totals.flops == 80


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "operators"),
        ("operators: 3\n", "one key, operators, with a list"),
        ("operators: []\nmore: 1\n", "one key"),
        ("operators: [3]\n", r"operators\.0: must be a mapping"),
        (
            "operators:\n- {op_type: Foo, outputs: [], flops: 0, colour: red}\n",
            "unknown key 'colour'",
        ),
        ("operators:\n- {outputs: [], flops: 0}\n", "op_type must be text"),
        ("operators:\n- {op_type: Foo, outputs: x0, flops: 0}\n", "outputs must be a list"),
        ("operators:\n- {op_type: Foo, outputs: [x0]}\n", "flops is missing"),
        ('operators:\n- {op_type: Foo, outputs: ["x0["], flops: 0}\n', "not an expression"),
        ("operators:\n- {op_type: Foo, outputs: [], flops: open(1)}\n", "not allowed"),
        ("operators:\n- {op_type: Foo, outputs: [], flops: true}\n", "flops must be"),
        ("operators:\n- {op_type: Foo, outputs: [], flops: 0, dtype: f99}\n", "dtype 'f99'"),
        ("operators:\n- {op_type: Foo, outputs: [], flops: 0, control: [x]}\n", "control must be"),
        (LINE + LINE.partition("\n")[2], r"operators\.1: acme\.Foo is described twice"),
        ("operators: [\n", "line"),
        ("operators: !!python/object:os.system []\n", "operators.yaml"),
    ],
)
def test_a_yaml_file_that_is_wrong_says_where(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_operators(yaml(tmp_path, text))
    assert "operators.yaml" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_yaml_file_that_is_missing_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_operators(tmp_path / "none.yaml")


def test_a_described_operator_survives_pickling(tmp_path: Path) -> None:
    analysis = onnxroof.analyze(foo(), operators=yaml(tmp_path, LINE))
    copy = pickle.loads(pickle.dumps(analysis))
    assert copy.totals == analysis.totals
    assert copy.memo.registry.find("acme", "Foo", 1) is not None
