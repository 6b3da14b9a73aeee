"""What `import onnxroof` offers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import onnxroof
from onnxroof import errors

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", onnxroof.__all__)
def test_every_public_name_exists_and_has_a_docstring(name: str) -> None:
    value = getattr(onnxroof, name)
    assert name == "__version__" or value.__doc__


def test_public_names_are_sorted_and_listed_by_dir() -> None:
    assert onnxroof.__all__ == sorted(onnxroof.__all__)
    assert set(onnxroof.__all__) <= set(dir(onnxroof))


def test_every_error_a_user_can_meet_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.OnnxroofError)
    }
    assert raised <= set(onnxroof.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'analyse'"):
        onnxroof.analyse  # noqa: B018


def test_the_version_is_the_one_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("version", onnxroof.__version__) == onnxroof.__version__
