"""The README and the page of the command line say what is true."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from onnxroof import cli

ROOT = Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def printed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a command prints when it is run in the repository's folder, into a pipe."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "argv", ["onnxroof", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().out


def test_the_report_in_the_readme_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = re.search(r"```console\n\$ onnxroof (.*?)\n(.*?)```", read("README.md"), re.DOTALL)
    assert shown is not None
    # `python docs/readme.py` writes it anew
    assert printed(shown[1].split(), monkeypatch, capsys) == shown[2]


def test_the_two_lines_of_the_set_up_stand_in_the_readme() -> None:
    readme = read("README.md")
    assert "    pip install . && onnxroof report models/resnet50.onnx --hw v100\n" in readme
    assert "    pip install '.[test]' && pytest -n auto\n" in readme


def test_every_option_is_documented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    text = printed(["report", "--help"], monkeypatch, capsys)
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)) - {"--help"}
    assert len(options) > 10
    documented = set(re.findall(r"--[\w-]+", read("docs/cli.md")))
    assert options - documented == set()


def test_the_python_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    example = re.search(r"```python\n(.*?)```", read("README.md"), re.DOTALL)
    assert example is not None
    found: dict[str, object] = {}
    exec(example[1], found)
    assert "analysis" in found
