"""Budgets: three answers, what to look at, exit codes, files and formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import onnx
import pytest

from onnxroof import GraphBuilder, UsageError
from onnxroof.budgets.check import check_budgets
from onnxroof.budgets.command import CheckOptions, check_command
from onnxroof.budgets.limits import KINDS
from onnxroof.budgets.read import read_budgets
from onnxroof.budgets.records import Answer, Budget
from onnxroof.budgets.render import CheckFormat, render
from onnxroof.errors import UnknownDimensionError
from tests.builders import model

if TYPE_CHECKING:
    from pathlib import Path

    from onnxroof.budgets.records import BudgetReport, Check

LIMITS = {kind.key: kind for kind in KINDS}


def small() -> GraphBuilder:
    """Two layers: 1·100 by 100·1000 and 1·1000 by 1000·10."""
    g = GraphBuilder("small")
    x = g.linear(g.input((1, 100)), 1000, bias=False, name="wide")
    g.output(g.linear(x, 10, bias=False, name="last"))
    return g


def checked(source: object, hardware: str = "", **limits: str) -> list[Check]:
    found = tuple(LIMITS[key].limit(text, key) for key, text in limits.items())
    return list(check_budgets(source, [Budget("b", hardware, found)]).checks)


def check_budgets_of(text: str, **limits: str) -> list[BudgetReport]:
    found = tuple(LIMITS[key].limit(given, key) for key, given in limits.items())
    return [check_budgets(model(text), [Budget("b", "", found)])]


def test_a_model_within_its_limits() -> None:
    # 100·1000 + 1000·10 = 110,000 weights of 4 bytes, and as many multiply-accumulates
    checks = checked(small(), max_params="110k", max_macs="110k", max_flops="220k")
    assert [check.answer for check in checks] == [Answer.WITHIN] * 3
    assert [check.value for check in checks] == [110_000, 110_000, 220_000]


def test_a_limit_missed_names_the_layer_and_by_how_much() -> None:
    (check,) = checked(small(), max_macs="55k")
    assert check.answer is Answer.EXCEEDS
    assert check.excess == pytest.approx(1.0)
    assert [part.name for part in check.culprits] == ["wide", "last"]
    assert check.culprits[0].share == pytest.approx(100_000 / 110_000)


def test_weights_are_named_by_the_layer_that_reads_them() -> None:
    (check,) = checked(small(), max_params="1k")
    assert [part.name for part in check.culprits] == ["wide", "last"]


def test_latency_names_the_slowest_kernels() -> None:
    (check,) = checked(small(), "mobile-arm", max_latency="1ns")
    assert check.answer is Answer.EXCEEDS
    assert check.culprits[0].name == "wide"
    assert sum(part.share for part in check.culprits) == pytest.approx(1.0)


def test_throughput_is_a_limit_from_below() -> None:
    kept, missed = (checked(small(), "v100", min_throughput=amount)[0] for amount in ("10", "100G"))
    assert (kept.answer, missed.answer) == (Answer.WITHIN, Answer.EXCEEDS)
    assert missed.excess is not None
    assert 0 < missed.excess < 1


def unknown() -> onnx.ModelProto:
    """The two layers, and an operator nobody knows."""
    proto = small().to_onnx()
    proto.graph.node.append(onnx.helper.make_node("Mystery", ["input"], ["m"], domain="acme"))
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("m", 1, [1]))
    return proto


def test_what_is_not_known_gives_no_answer_unless_the_rest_is_too_much_already() -> None:
    (open_,) = checked(unknown(), max_flops="1M")
    assert open_.answer is Answer.CANNOT_TELL
    assert "Mystery" in open_.unknown[0]
    (missed,) = checked(unknown(), max_flops="100k")
    assert missed.answer is Answer.EXCEEDS


def test_only_strict_fails_on_what_nobody_can_tell() -> None:
    report = check_budgets(unknown(), [Budget("b", "", (LIMITS["max_flops"].limit("1M", ""),))])
    assert report.exit_code(strict=False) == 0
    assert report.exit_code(strict=True) == 1


def test_the_model_size_of_a_model_in_memory_is_not_known() -> None:
    (check,) = checked(small(), max_model_size="1MB")
    assert check.answer is Answer.CANNOT_TELL


def test_the_model_size_counts_external_data(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(small().to_onnx(), path)
    (check,) = checked(str(path), max_model_size="440kB")
    assert check.value == path.stat().st_size + 440_000
    assert check.answer is Answer.EXCEEDS


FILE = """\
schema_version: 1
budgets:
  - name: phone
    hardware: mobile-arm
    dims: {batch: 1}
    max_latency: 5 ms
    max_peak_memory: 64 MiB
  - name: server
    hardware: v100
    dims: {batch: 64}
    precision: fp16
    min_throughput: 10k
"""


def dynamic() -> onnx.ModelProto:
    """The two layers with a free batch size."""
    proto = small().to_onnx()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    return proto


def test_one_file_covers_several_deployments(tmp_path: Path) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(FILE, encoding="utf-8")
    phone, server = read_budgets(str(path))
    assert (phone.dims, server.dims) == ({"batch": 1}, {"batch": 64})
    assert phone.limits[0].amount == pytest.approx(0.005)
    assert phone.limits[1].amount == 64 * 2**20
    assert (server.precision, server.limits[0].amount) == ("fp16", 10_000)
    report = check_budgets(dynamic(), (phone, server))
    assert [check.budget.name for check in report.checks] == ["phone", "phone", "server"]
    # 110,000 weights of 4 bytes; while the first product runs its 1·100 and 1·1000 are alive
    assert report.checks[1].value == 440_000 + 4 * 1100


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("- a", "a budget file is a mapping"),
        ("schema_version: 2\nbudgets: [{max_macs: 1}]", "schema_version: must be 1"),
        ("schema_version: 1", "budgets: a list of budgets is meant"),
        ("schema_version: 1\nbudgets: [{hardware: v100}]", "it sets no limit"),
        ("schema_version: 1\nbudgets: [{max_latency: 5ms}]", "need `hardware`"),
        ("schema_version: 1\nbudgets: [{max_macs: 5ms}]", "for example 1G"),
        ("schema_version: 1\nbudgets: [{max_mac: 5}]", "did you mean max_macs?"),
        ("schema_version: 1\nbudgets: [{max_macs: 5, max_macs: 6}]", "stands twice"),
        ("schema_version: 1\nbudgets: [{max_macs: 5, dims: {a: x}}]", "{batch: 1}"),
        ("schema_version: 1\nbudgets: [{max_macs: 5}, {max_macs: 6}]", "a second budget named"),
        ("schema_version: 1\nbudgets: [{max_macs: true}]", "an amount is meant"),
    ],
)
def test_a_wrong_budget_file_is_refused_with_the_reason(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_budgets(str(path))
    assert says in str(caught.value)


def test_a_budget_for_a_dimension_the_model_does_not_have_is_an_error() -> None:
    budget = Budget("b", "", (LIMITS["max_macs"].limit("1", ""),), dims={"sequence": 3})
    with pytest.raises(UnknownDimensionError):
        check_budgets(dynamic(), [budget])


def test_junit_has_a_case_for_every_limit() -> None:
    amounts = {"max_macs": "1", "max_params": "1G", "max_model_size": "1MB"}
    limits = tuple(LIMITS[key].limit(text, "") for key, text in amounts.items())
    report = check_budgets(small(), [Budget('<"&', "", limits)])
    suite = ET.fromstring(render([report], CheckFormat.JUNIT)).find("testsuite")
    assert suite is not None
    assert suite.attrib | {"name": '<"&', "tests": "3", "failures": "1", "skipped": "1"} == (
        suite.attrib
    )
    failed = suite.find("testcase/failure")
    assert failed is not None
    assert "wide (Gemm)" in (failed.text or "")


def test_every_format_says_the_same() -> None:
    report = check_budgets(small(), [Budget("b", "", (LIMITS["max_macs"].limit("55k", ""),))])
    assert "exceeds by 55.0 kMAC (2.00 ×)" in render([report], CheckFormat.TEXT)
    assert "❌ exceeds by 55.0 kMAC" in render([report], CheckFormat.MARKDOWN)
    (check,) = json.loads(render([report], CheckFormat.JSON))["models"][0]["checks"]
    assert (check["value"], check["limit"], check["answer"]) == (110_000, 55_000, "exceeds")
    assert check["culprits"][0]["name"] == "wide"


def test_limits_of_the_command_line_hold_on_each_device(tmp_path: Path) -> None:
    path = str(tmp_path / "small.onnx")
    onnx.save(small().to_onnx(), path)
    limits = {"max_latency": "1s", "max_macs": "1M"}
    (report,) = check_command([path], CheckOptions(limits=limits, hardware=("v100", "mobile-arm")))
    named = [(check.budget.name, check.limit.metric.name) for check in report.checks]
    assert named == [
        ("model", "macs"), ("v100", "latency_seconds"), ("mobile-arm", "latency_seconds"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (CheckOptions(), "nothing to check"),
        (CheckOptions(limits={"max_latency": "1s"}), "--hw NAME"),
        (CheckOptions(limits={"max_macs": "much"}), "--max-macs 'much'"),
        (CheckOptions(budget="absent.yaml"), "absent.yaml cannot be read"),
    ],
)
def test_what_cannot_be_checked_is_a_wrong_use(options: CheckOptions, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_command(["model.onnx"], options)


OPEN_LOOP = """agraph (float[8,8] x, int64 m) => (float[8,8] y) <bool yes = {1}> {
    y = Loop(m, yes, x) <body = b (int64 i, bool go, float[8,8] h)
        => (bool on, float[8,8] next) { on = Identity(go) next = MatMul(h, h) }> }"""
"""8 · 8 · 8 = 512 MACs a trip, and m trips."""


def test_what_a_loop_of_unknown_trips_costs_cannot_be_told() -> None:
    macs, parameters = checked(model(OPEN_LOOP), max_macs="1M", max_params="1k")
    assert (macs.answer, macs.value, macs.exactness) == (Answer.CANNOT_TELL, 512, "per trip")
    assert "how often a loop runs" in macs.unknown[0]
    assert parameters.answer is Answer.WITHIN
    text = render(check_budgets_of(OPEN_LOOP, max_macs="1M"), CheckFormat.TEXT)
    assert "512 MAC per trip" in text


CHOICE = """agraph (bool c, float[2,8] x) => (float[2,8] y) {
    y = If(c) <then_branch = t () => (float[2,8] a) { s = Transpose(x) p = MatMul(x, s)
                                                      a = MatMul(p, x) },
               else_branch = e () => (float[2,8] b) { b = Relu(x) }> }"""
"""At most 2 · 2·8·2 = 64 MACs, 128 FLOPs; at least the 16 FLOPs of Relu."""


@pytest.mark.parametrize(
    ("limit", "answer", "value", "exactness"),
    [
        ("200", Answer.WITHIN, 128, "at most"),
        ("100", Answer.CANNOT_TELL, 128, "at most"),
        ("8", Answer.EXCEEDS, 16, "at least"),
    ],
)
def test_of_a_figure_with_two_ends_the_one_that_answers_is_shown(
    limit: str, answer: Answer, value: int, exactness: str
) -> None:
    (check,) = checked(model(CHOICE), max_flops=limit)
    assert (check.answer, check.value, check.exactness) == (answer, value, exactness)


def test_the_excess_of_a_figure_with_two_ends_is_the_certain_one() -> None:
    # At least 16 of 8: twice as much
    (check,) = checked(model(CHOICE), max_flops="8")
    assert check.excess == 1.0
    text = render(check_budgets_of(CHOICE, max_flops="100"), CheckFormat.TEXT)
    assert "at most 128 FLOP" in text
