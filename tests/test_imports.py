"""The architecture as a test: data flows one way, and heavy libraries have one door each."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "onnxroof"

DOORS = {
    "onnx": ("onnxroof.graph", "onnxroof.ops.fallback", "onnxroof.search.from_torch"),
    "networkx": ("onnxroof.graph.algorithms",),
    "pydantic": ("onnxroof.hardware", "onnxroof.latency.runtime_schema"),
    "tabulate": (
        "onnxroof.report",
        "onnxroof.hardware.show",
        "onnxroof.lint",
        "onnxroof.compare",
        "onnxroof.budgets",
        "onnxroof.calibration",
        "onnxroof.rank",
        "onnxroof.sweep",
    ),
}
"""Library → the only modules (or packages) of ours that may import it."""


def modules() -> dict[str, Path]:
    """Every module of the package by dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names a file imports, inside functions too, but not for type checking alone."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    todo: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        todo += ast.iter_child_nodes(node)


def layers() -> list[list[str]]:
    """The contract of pyproject.toml, top first; each layer's siblings."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return [[name.strip(" ()") for name in line.split(":")] for line in contract["layers"]]


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_every_module_has_a_place_in_the_layers() -> None:
    placed = [name for layer in layers() for name in layer]
    entry_points = {"onnxroof", "onnxroof.__main__"}
    homeless = [
        name
        for name in modules()
        if name not in entry_points and not any(is_in(name, package) for package in placed)
    ]
    assert homeless == []


@pytest.mark.parametrize("level", range(len(layers())))
def test_no_layer_imports_from_above(level: int) -> None:
    above = [name for layer in layers()[:level] for name in layer]
    for package in layers()[level]:
        for name, path in modules().items():
            if is_in(name, package):
                wrong = {i for i in imported(path) if any(is_in(i, upper) for upper in above)}
                assert wrong == set(), f"{name} imports from a later stage"


@pytest.mark.parametrize("library", sorted(DOORS))
def test_a_library_has_one_door(library: str) -> None:
    for name, path in modules().items():
        if any(is_in(name, door) for door in DOORS[library]):
            continue
        assert not any(is_in(other, library) for other in imported(path)), name
