"""docs/compare.md, search.md and ci.md: what they show works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from onnxroof import CostFunction, cli
from onnxroof.budgets.limits import KINDS
from onnxroof.budgets.read import read_budgets
from onnxroof.search.cost_function import METRICS
from tests.search.spaces import mobile_net

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [body for named, body in found if named == language]


def test_the_budget_file_shown_is_read(tmp_path: Path) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(blocks("compare.md", "yaml")[0], encoding="utf-8")
    assert [budget.name for budget in read_budgets(str(path))] == ["phone", "server"]


def test_every_limit_and_metric_is_documented() -> None:
    compare = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    search = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    assert [kind.flag for kind in KINDS if f"`{kind.flag}`" not in compare] == []
    assert [name for name in METRICS if f"`{name}`" not in search] == []


def test_python_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import onnx

    onnx.save(mobile_net([(3, 16, 3, 1)]).to_onnx(), "model.onnx")
    for block in blocks("search.md", "python"):
        exec(compile(block, "search.md", "exec"), {})


def test_energy_is_not_promised() -> None:
    with pytest.raises(Exception, match="is not one of"):
        CostFunction("v100", "energy_joules")


@pytest.mark.parametrize("page", ["compare.md", "ci.md"])
def test_commands_shown_have_these_options(page: str) -> None:
    lines = [line for block in blocks(page, "") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("onnxroof ")]
    assert commands
    for _, name, *arguments in commands:
        known = CliRunner().invoke(cli.command, [name, "--help"]).output
        assert [a for a in arguments if a.startswith("--") and a not in known] == []


def test_the_workflow_shown_uses_inputs_the_action_has() -> None:
    workflow = yaml.safe_load(blocks("ci.md", "yaml")[0])
    steps = workflow["jobs"]["review"]["steps"]
    (used,) = [step for step in steps if step.get("id") == "onnxroof"]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert set(used["with"]) <= set(action["inputs"])
    hook = yaml.safe_load(blocks("ci.md", "yaml")[1])["repos"][0]["hooks"][0]["id"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook in [entry["id"] for entry in hooks]
