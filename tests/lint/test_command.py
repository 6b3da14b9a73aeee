"""Selection, baseline, formats and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxroof.api import analyze
from onnxroof.errors import UsageError
from onnxroof.lint.baseline import read_baseline
from onnxroof.lint.command import LintOptions, explain_command, lint, lint_command
from onnxroof.lint.registry import all_rules, choose
from onnxroof.lint.render import LintFormat, section_lines
from onnxroof.lint.rule import Severity
from tests.builders import model

if TYPE_CHECKING:
    from pathlib import Path

DEAD_AND_CAST = """agraph (float16[1,64] x) => (float16[1,64] y)
{
  [wide] wide = Cast<to = 1> (x)
  [back] back = Cast<to = 10> (wide)
  [act] y = Relu (back)
  [left] unread = Sigmoid (x)
}"""
"""Two warnings: STR001 at "wide|1" and "back", STR012 at "left"."""


def run(**options: object) -> tuple[str, int]:
    proto = model(DEAD_AND_CAST)
    proto.graph.node[0].name = "wide|1"
    analysis = analyze(proto.SerializeToString())
    return lint_command(analysis, LintOptions(**options))  # type: ignore[arg-type]


def codes(**options: object) -> list[str]:
    text, _ = run(format_=LintFormat.JSON, **options)
    return [finding["code"] for finding in json.loads(text)["findings"]]


def baseline(path: Path, *entries: object) -> str:
    file = path / "baseline.json"
    file.write_text(json.dumps({"schema_version": 1, "accepted": entries}), encoding="utf-8")
    return str(file)


def test_everything_is_found_without_a_selection() -> None:
    assert sorted(codes()) == ["STR001", "STR012"]


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        (("STR012",), (), ["STR012"]),
        (("str",), ("STR001",), ["STR012"]),
        (("dead-node",), (), ["STR012"]),
        (("STR001,STR012",), (), ["STR001", "STR012"]),
        ((), ("STR",), []),
        (("WGT",), (), []),
    ],
)
def test_rules_are_chosen_by_code_beginning_or_name(
    select: tuple[str, ...], ignore: tuple[str, ...], expected: list[str]
) -> None:
    assert sorted(codes(select=select, ignore=ignore)) == expected


@pytest.mark.parametrize("word", ["STR999", "dead-nod", ""])
def test_a_selection_that_matches_nothing_is_an_error(word: str) -> None:
    with pytest.raises(UsageError, match="no lint rule begins so"):
        choose([word])


def test_a_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean denormal-weights"):
        explain_command("denormal-weight")


def test_exit_codes_follow_the_threshold() -> None:
    assert run(fail_on=Severity.ERROR)[1] == 0
    assert run(fail_on=Severity.WARNING)[1] == 1
    assert run(fail_on=Severity.WARNING, ignore=("STR",))[1] == 0


def test_a_baseline_accepts_with_a_reason(tmp_path: Path) -> None:
    entry = {"code": "STR001", "nodes": ["back", "wide|1"], "reason": "the converter's business"}
    file = baseline(tmp_path, entry)
    document = json.loads(run(format_=LintFormat.JSON, baseline=file)[0])
    assert [finding["code"] for finding in document["findings"]] == ["STR012"]
    assert document["accepted"][0]["reason"] == "the converter's business"
    assert run(baseline=file, fail_on=Severity.WARNING, ignore=("STR012",))[1] == 0


def test_an_entry_for_other_nodes_accepts_nothing_and_is_reported(tmp_path: Path) -> None:
    entry = {"code": "STR001", "nodes": ["elsewhere"], "reason": "gone"}
    text, _ = run(baseline=baseline(tmp_path, entry))
    assert "STR001 redundant-cast-pair" in text
    assert "the baseline's entry for STR001 matches nothing any more" in text


def test_an_entry_of_a_rule_that_did_not_run_is_not_called_stale(tmp_path: Path) -> None:
    entry = {"code": "STR001", "nodes": ["elsewhere"], "reason": "gone"}
    text, _ = run(baseline=baseline(tmp_path, entry), select=("STR012",))
    assert "matches nothing" not in text


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"code": "STR001"}, "entry 1: has no reason"),
        ({"code": "STR001", "reason": "  "}, "entry 1: has no reason"),
        ({"code": "ABC001", "reason": "r"}, "no lint rule has the code 'ABC001'"),
        ({"code": "STR001", "reason": "r", "node": "x"}, "unknown key 'node'"),
        ({"code": "STR001", "reason": "r", "nodes": "x"}, "nodes is not a list"),
        ("STR001", "is not an object"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, entry: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_baseline(baseline(tmp_path, entry))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"schema_version": 1}', "\udcff", "[" * 100_000]
)
def test_a_broken_baseline_is_an_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match="baseline"):
        read_baseline(str(file))


def test_sarif_names_rules_files_and_nodes(tmp_path: Path) -> None:
    entry = {"code": "STR012", "reason": "kept for debugging"}
    text, _ = run(format_=LintFormat.SARIF, baseline=baseline(tmp_path, entry))
    document = json.loads(text)
    assert document["version"] == "2.1.0"
    (sarif,) = document["runs"]
    rules = [rule["id"] for rule in sarif["tool"]["driver"]["rules"]]
    assert rules == ["STR001", "STR012"]
    for result in sarif["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] == "warning"
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
        assert result["partialFingerprints"]["onnxroof/v1"]
    suppressed = [r for r in sarif["results"] if "suppressions" in r]
    assert suppressed[0]["suppressions"][0]["justification"] == "kept for debugging"


def test_names_cannot_break_markdown() -> None:
    text, _ = run(format_=LintFormat.MARKDOWN)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert any(r"wide\|1" in row for row in rows)
    assert {row.replace(r"\|", "").count("|") for row in rows} == {3}


def test_text_says_what_was_left_out() -> None:
    text, _ = run(weights=False)
    assert "no device was given (--hw)" in text
    assert "values of weights were not looked at" in text
    assert "2 warnings" in text


def test_findings_are_sorted_by_what_they_save() -> None:
    text = """agraph (float16[1,4096] a, float16[1,64] b) => (float16[1,4096] x, float16[1,64] y)
    {
      c = Cast<to = 1> (b)  d = Cast<to = 10> (c)  y = Relu (d)
      e = Cast<to = 1> (a)  f = Cast<to = 10> (e)  x = Relu (f)
    }"""
    analysis = analyze(model(text).SerializeToString(), ("mobile-arm",))
    found = lint(analysis, choose(["STR001"])).findings
    savings = [finding.saving_seconds or 0.0 for finding in found]
    assert len(found) == 2
    assert savings == sorted(savings, reverse=True)
    # both casts: 2 + 4 and 4 + 2 bytes an element at 34.1 GB/s, and 1 µs for each launch
    assert savings[0] == pytest.approx(2 * (4096 * 6 / 34.1e9 + 1e-6))
    assert found[0].saving_bytes == 2 * 4096 * 6


def test_a_file_with_few_weights_is_read_unasked(tmp_path: Path) -> None:
    values = np.random.default_rng(5).standard_normal((16, 32)).astype(np.float32)
    values[3, 3] = np.nan
    proto = model("agraph (float[1,16] x, float[16,32] w) => (float[1,32] y) { y = MatMul (x, w) }")
    del proto.graph.input[1]
    proto.graph.initializer.append(numpy_helper.from_array(values, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    seen: list[tuple[int, int]] = []
    result = lint(analyze(path), progress=lambda done, total: seen.append((done, total)))
    assert [finding.code for finding in result.findings] == ["WGT002"]
    assert result.read_bytes == 16 * 32 * 4
    assert seen == [(2048, 2048)]
    assert lint(analyze(path), weights=False).findings == ()


def test_explain_lists_every_rule_or_shows_one() -> None:
    listed = explain_command()
    assert all(code in listed for code in all_rules())
    shown = explain_command("wgt001")
    assert "Why it costs" in shown
    assert "agraph" in shown
    assert shown == explain_command("denormal-weights")


def test_a_section_has_one_line_a_rule() -> None:
    result = lint(analyze(model(DEAD_AND_CAST).SerializeToString()))
    lines = section_lines(result)
    assert len(lines) == 2
    assert lines[0].startswith("warning STR")
