"""The recipe of docs/ci.md in a repository of its own: a slower model fails, by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx
import pytest
import yaml

from onnxroof import GraphBuilder

ROOT = Path(__file__).parents[1]
BUDGETS = """\
schema_version: 1
budgets:
  - name: phone
    hardware: mobile-arm
    max_latency: {latency}
"""

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None or shutil.which("bash") is None, reason="needs git and bash"
)


def network(width: int) -> onnx.ModelProto:
    """A small detector whose neck is `width` filters wide."""
    g = GraphBuilder("detector")
    x = g.relu(g.conv(g.input((1, 3, 64, 64)), 16, 3, stride=2, name="stem"))
    with g.scope("neck"):
        x = g.relu(g.conv(x, width, 3, name="widen"))
        x = g.relu(g.conv(x, 16, 3, name="narrow"))
    g.output(g.conv(x, 8, 1, name="head"))
    return g.to_onnx()


class Repository:
    """A git repository with a model and budgets, and the action's environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder.parent / "bin"
        programs.mkdir()
        command = programs / "onnxroof"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnxroof "$@"\n')
        command.chmod(0o755)
        self.environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUTF8": "1",
            "HOME": str(folder.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, env=self.environment, check=True,
            capture_output=True,
        )  # fmt: skip

    def commit(self, model: onnx.ModelProto, message: str) -> None:
        onnx.save(model, self.folder / "model.onnx")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def review(self, **inputs: str) -> tuple[int, str]:
        """The steps of the action on the checked-out branch: (exit code, report)."""
        base = self.folder.parent / "before.onnx"
        with base.open("wb") as file:
            subprocess.run(
                ["git", "show", "main:model.onnx"], cwd=self.folder, env=self.environment,
                check=True, stdout=file,
            )  # fmt: skip
        done = subprocess.run(
            ["bash", str(ROOT / "ci" / "review.sh")], check=False, cwd=self.folder, text=True,
            capture_output=True, encoding="utf-8",
            env={**self.environment, "MODEL": "model.onnx", "BEFORE": str(base),
                 "OUTPUT": str(self.folder.parent / "out"), **inputs},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        report = self.folder.parent / "out" / "onnxroof-report.md"
        return done.returncode, report.read_text(encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "repository"
    folder.mkdir()
    made = Repository(folder)
    (folder / "onnxroof-budgets.yaml").write_text(BUDGETS.format(latency="300 us"))
    made.commit(network(16), "Add the model")
    made.git("checkout", "-q", "-b", "change")
    return made


INPUTS = {"BUDGET": "onnxroof-budgets.yaml", "HARDWARE": "mobile-arm", "FAIL_ABOVE": "10"}


def test_a_change_that_doubles_latency_fails_and_the_comment_names_the_layer(
    repository: Repository,
) -> None:
    repository.commit(network(64), "Widen the neck")
    code, report = repository.review(**INPUTS)
    assert code == 1
    assert "❌" in report
    slower = [line for line in report.splitlines() if line.startswith("| slower")]
    assert "neck/widen" in slower[0] or "neck/narrow" in slower[0]
    assert "not allowed" in report
    junit = repository.folder.parent / "out" / "onnxroof-junit.xml"
    suite = ET.fromstring(junit.read_text(encoding="utf-8")).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"


def test_a_change_that_costs_nothing_passes(repository: Repository) -> None:
    code, report = repository.review(**INPUTS)
    assert code == 0
    assert "✅ within" in report
    assert "latency unchanged" in report


def test_a_model_that_cannot_be_read_is_not_a_failed_check(repository: Repository) -> None:
    (repository.folder / "model.onnx").write_text("nonsense")
    assert repository.review(**INPUTS)[0] == 3


def test_a_review_adds_its_report_to_the_summary_of_the_job(
    repository: Repository, tmp_path: Path
) -> None:
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    _, report = repository.review(
        **INPUTS, GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(outputs)
    )
    assert summary.read_text(encoding="utf-8") == report
    assert outputs.read_text().startswith("report=")


def test_the_action_hands_every_input_to_the_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    review = action["runs"]["steps"][1]
    script = (ROOT / "ci" / "review.sh").read_text(encoding="utf-8")
    used = {name for name in review["env"] if f"${{{name}:-" in script or f'"${name}"' in script}
    assert used == set(review["env"])
    named = {text.split(".")[1].split(" ")[0] for text in review["env"].values()}
    assert named | {"version"} == set(action["inputs"])


def test_the_hook_runs_a_command_that_exists() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"].split()[:2] == ["onnxroof", "check"]
    done = subprocess.run(
        [sys.executable, "-m", *hook["entry"].split()[:2], "--help"], capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    assert "--budget" in done.stdout
