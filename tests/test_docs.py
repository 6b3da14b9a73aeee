"""What the documentation says holds: links resolve, pages are fresh, commands run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onnxroof import cli

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for folder in (ROOT, ROOT / "docs", ROOT / "docs" / "decisions", ROOT / "hardware_profiles",
                   ROOT / "models", ROOT / "benchmarks")
    for path in folder.glob("*.md")
)  # fmt: skip
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of a language."""
    text = page.read_text(encoding="utf-8")
    return [body for found, body in _FENCE.findall(text) if found == language]


def generator() -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_inside_the_repository_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for target in _LINK.findall(_CODE.sub("", text)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        found = file.exists() and file.is_relative_to(ROOT)
        if found and anchor and file.suffix == ".md":
            found = anchor in anchors(file.read_text(encoding="utf-8"))
        if not found:
            broken.append(target)
    assert broken == []


def test_the_operator_page_is_what_the_rules_say() -> None:
    generate = generator()
    text = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    written_for = re.search(r"^Opsets: (.*)\.$", text, re.MULTILINE)
    assert written_for is not None
    if written_for[1] != generate.opsets_line():
        pytest.skip(f"the page is for {written_for[1]}, installed is {generate.opsets_line()}")
    assert text == generate.page(), "run python docs/generate.py"


def test_formulas_are_split_into_macs_and_other_operations() -> None:
    split = generator().formula_columns
    assert split("macs = M · K · N; flops = 2 · macs + M · N") == (
        "macs = M · K · N",
        "flops = 2 · macs + M · N",
    )
    assert split("Per cell: macs = H · I; flops = 2 · macs") == (
        "Per cell: macs = H · I",
        "Per cell: flops = 2 · macs",
    )
    assert split("n − 1 per row") == ("", "n − 1 per row")


def test_every_decision_has_a_number_of_its_own_and_its_three_parts() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert numbers == [f"{number:04d}" for number in range(1, len(numbers) + 1)]
    for path in DECISIONS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:4]}. ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Choice", "Consequences"]


def test_the_list_of_decisions_is_complete() -> None:
    listed = _LINK.findall((ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in DECISIONS]


def commands() -> list[list[str]]:
    """Commands of README's console blocks that onnxroof runs on what the repository holds."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(ROOT / "README.md", "console")
        for line in block.splitlines()
        if line.startswith("$ onnxroof ")
    ]
    return [shlex.split(line)[1:] for line in lines]


def test_the_readme_shows_at_least_one_command() -> None:
    assert commands()


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_console_commands_of_the_readme_run(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["onnxroof", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", ["dimensions.md", "plugins.md"])
def test_python_examples_compile(name: str) -> None:
    examples = blocks(ROOT / "docs" / name, "python")
    assert examples
    for example in examples:
        compile(example, name, "exec")


def test_the_yaml_of_an_operator_of_ones_own_is_read(tmp_path: Path) -> None:
    from onnxroof.plugins import read_operators

    file = tmp_path / "ops.yaml"
    file.write_text(blocks(ROOT / "docs" / "plugins.md", "yaml")[0], encoding="utf-8")
    operator = read_operators(file).find("my.ops", "Foo", 1)
    assert operator is not None
    assert operator.source == "YAML"
