"""The commands `lint` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from tests.builders import model
from tests.test_start_up import command, loaded_by

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
RESNET = str(ROOT / "models" / "resnet50.onnx")

Run = tuple[int, str, str]


@pytest.fixture
def wasteful(tmp_path: Path) -> str:
    """A model with a warning (a dead node) and an error (two nodes of one name)."""
    text = "agraph (float[1,64] x) => (float[1,64] y) { [a] y = Relu (x)  [a] z = Abs (x) }"
    path = tmp_path / "model.onnx"
    onnx.save(model(text), path)
    return str(path)


def test_a_clean_model_ends_with_zero(run: Callable[..., Run]) -> None:
    code, out, err = run("lint", RESNET, "--hw", "v100", "--fail-on", "warning")
    assert (code, err) == (0, "")
    assert "no findings" in out


def test_an_error_ends_with_one(run: Callable[..., Run], wasteful: str) -> None:
    code, out, _ = run("lint", wasteful)
    assert code == 1
    assert "1 error, 1 warning" in out
    assert "STR007" in out


@pytest.mark.parametrize(("threshold", "expected"), [("error", 0), ("warning", 1)])
def test_a_warning_ends_as_was_asked(
    run: Callable[..., Run], wasteful: str, threshold: str, expected: int
) -> None:
    code, _, _ = run("lint", wasteful, "--ignore", "STR007", "--fail-on", threshold)
    assert code == expected


def test_findings_go_to_a_file(run: Callable[..., Run], wasteful: str, tmp_path: Path) -> None:
    target = tmp_path / "lint.sarif"
    code, out, _ = run("lint", wasteful, "--format", "sarif", "-o", str(target))
    assert (code, out) == (1, "")
    assert json.loads(target.read_text(encoding="utf-8"))["version"] == "2.1.0"


def test_savings_hold_for_one_device(run: Callable[..., Run]) -> None:
    code, _, err = run("lint", RESNET, "--hw", "v100", "--hw", "mobile-arm")
    assert code == 2
    assert "give one --hw" in err


def test_an_unknown_rule_is_a_wrong_call(run: Callable[..., Run]) -> None:
    assert run("lint", RESNET, "--select", "NOPE")[0] == 2
    assert run("explain", "NOPE")[0] == 2


def test_explain_shows_a_rule_or_lists_them(run: Callable[..., Run]) -> None:
    code, out, _ = run("explain", "FUS002")
    assert code == 0
    assert out.startswith("FUS002 unfusable-conv-act-bn")
    assert "FUS002" in run("explain")[1]


def test_a_report_can_leave_the_findings_out(run: Callable[..., Run]) -> None:
    assert "findings" in run("report", RESNET)[1]
    assert "findings" not in run("report", RESNET, "--no-lint")[1]


def test_nothing_heavy_is_loaded_for_help() -> None:
    assert loaded_by(command("lint", "--help")) == set()


def test_rules_are_loaded_only_to_lint() -> None:
    code = command("report", RESNET, "--no-lint")
    tail = "\nassert not [name for name in sys.modules if name.startswith('onnxroof.lint')]"
    assert "numpy" in loaded_by(code + tail)
