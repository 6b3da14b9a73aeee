"""Every tensor of every model in models/ against the shape that a real run gave it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

import onnxroof
from onnxroof.bounded import lower

MODELS = Path(__file__).parents[1] / "models"
RECORDS = Path(__file__).parent / "data" / "shapes"
NAMES = sorted(file.stem for file in MODELS.glob("*.onnx"))
NUMPY_NAMES = {"fp32": "float32", "fp16": "float16", "fp64": "float64"}


def record_of(name: str) -> dict[str, dict[str, str]]:
    return json.loads(gzip.decompress((RECORDS / f"{name}.json.gz").read_bytes()))


def shape_in(spelling: str) -> tuple[int, ...]:
    """(1, 3, 224, 224) of "float32[1,3,224,224]"."""
    return tuple(int(size) for size in re.findall(r"\d+", spelling.partition("[")[2]))


def agrees(recorded: str, dtype: str, shape: tuple[int, ...] | None) -> bool:
    """Same type, same rank, and every size equal or, if it follows from data, within bounds."""
    true = shape_in(recorded)
    return (
        NUMPY_NAMES.get(dtype, dtype) == recorded.partition("[")[0]
        and shape is not None
        and len(shape) == len(true)
        and all(lower(size) <= seen <= int(size) for size, seen in zip(shape, true, strict=True))
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_has_its_recorded_shape(name: str) -> None:
    record = record_of(name)
    shapes = {key: shape_in(spelling) for key, spelling in record["inputs"].items()}
    tensors = onnxroof.analyze(MODELS / f"{name}.onnx", input_shapes=shapes).tensors
    wrong = {
        key: (recorded, tensors[key])
        for key, recorded in record["values"].items()
        if not agrees(recorded, tensors[key].dtype.label, tensors[key].shape)
    }
    assert not wrong


def test_every_model_has_a_record() -> None:
    assert {file.name.partition(".")[0] for file in RECORDS.glob("*.gz")} == set(NAMES)
