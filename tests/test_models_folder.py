"""The models folder holds what its README says: graphs without weights, traces or paths."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

MODELS = Path(__file__).parents[1] / "models"
FILES = sorted(MODELS.glob("*.onnx"))
README = (MODELS / "README.md").read_text()
INDEX_TYPES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


def tensors_of(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t] if attribute.HasField("t") else []
            found += tensors_of(attribute.g) if attribute.HasField("g") else []
    return found


def test_the_folder_stays_small() -> None:
    assert sum(file.stat().st_size for file in FILES) < 6_000_000


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_weight_bytes_are_in_a_model(file: Path) -> None:
    model = onnx.load(file, load_external_data=False)
    for tensor in tensors_of(model.graph):
        limit = 32 * 1024 if tensor.data_type in INDEX_TYPES else 1024
        assert len(tensor.raw_data) <= limit, tensor.name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_machine_path_or_doc_string_is_in_a_model(file: Path) -> None:
    content = file.read_bytes()
    assert not re.search(
        rb"/home/|/root/|/tmp/|/usr/|site-packages|[A-Z]:\\\\|stack_trace", content
    )
    model = onnx.load_model_from_string(content)
    assert not any(node.doc_string for node in model.graph.node)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_readme_tells_where_a_model_comes_from(file: Path) -> None:
    assert f"| `{file.name}` |" in README


def test_a_plain_load_refuses_a_weightless_model() -> None:
    with pytest.raises((onnx.checker.ValidationError, FileNotFoundError)):
        onnx.load(MODELS / "resnet50.onnx")
