"""Every rule finds its flagged example, and only that; the clean one is clean for all rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnxroof.lint.documentation import pages, text_of
from onnxroof.lint.registry import all_rules, registered
from onnxroof.lint.rule import Rule, Severity
from tests.lint.examples import findings_of

ROOT = Path(__file__).parents[2]
RULES = list(all_rules().values())
IDS = [rule.name for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_the_flagged_example_fires_exactly_its_rule(rule: Rule) -> None:
    found = findings_of(text_of(rule).sections["Flagged"])
    assert {finding.code for finding in found} == {rule.code}, [f.message for f in found]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_the_clean_example_fires_no_rule(rule: Rule) -> None:
    found = findings_of(text_of(rule).sections["Clean"])
    assert not found, [(finding.code, finding.message) for finding in found]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_lives_in_a_file_of_its_name(rule: Rule) -> None:
    assert type(rule).__module__.rpartition(".")[2] == rule.name.replace("-", "_")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert "".join(word.capitalize() for word in rule.name.split("-")) == type(rule).__name__


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_finding_names_a_node_or_a_tensor(rule: Rule) -> None:
    for finding in findings_of(text_of(rule).sections["Flagged"]):
        assert rule.code == "HWD007" or finding.nodes or finding.tensors
        assert finding.message
        assert finding.message[-1] != "."


def test_the_pages_are_what_the_docstrings_say() -> None:
    folder = ROOT / "docs" / "rules"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert written == pages(), "run python -m onnxroof.lint.generate"


def test_the_python_example_of_the_index_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    example = re.search(r"```python\n(.*?)```", pages()["README.md"], re.DOTALL)
    assert example is not None
    exec(example[1], {})
    assert "HWD002" in capsys.readouterr().out


class _First(Rule):
    code, name, severity, since = "ABC001", "first", Severity.INFO, "0.1"


class _SameCode(Rule):
    code, name, severity, since = "ABC001", "second", Severity.INFO, "0.1"


class _SameName(Rule):
    code, name, severity, since = "ABC002", "first", Severity.INFO, "0.1"


class _OddCode(Rule):
    code, name, severity, since = "A1", "odd", Severity.INFO, "0.1"


@pytest.mark.parametrize(
    ("other", "message"),
    [(_SameCode, "code ABC001 is taken"), (_SameName, "name first is taken"), (_OddCode, "A1")],
)
def test_the_registry_refuses_duplicates(other: type[Rule], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        registered([_First, other])
