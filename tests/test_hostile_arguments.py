"""What callers pass instead of what is meant: taken where it is clear, else refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxroof.api import analyze
from onnxroof.errors import UsageError
from onnxroof.search.cost_function import CostFunction
from tests.builders import model

MODEL = model("agraph (float[batch, width] x) => (float[batch, width] y) { y = Relu (x) }")
SIZES = {"batch": 2, "width": 3}


def test_sizes_may_be_integers_of_numpy() -> None:
    sizes = {"batch": np.int64(2), "width": np.array(3, np.uint8)}
    assert analyze(MODEL, dims=sizes).totals.flops == 2 * 3  # type: ignore[arg-type]
    shapes = {"x": np.array([2, 3])}
    assert analyze(MODEL, input_shapes=shapes).totals.flops == 2 * 3  # type: ignore[arg-type]


def test_hardware_may_be_a_path_object_none_or_any_iterable() -> None:
    path = Path(__file__).parent.parent / "hardware_profiles" / "v100.yaml"
    by_path = analyze(MODEL, path, dims=SIZES)
    by_name = analyze(MODEL, iter(["v100"]), dims=SIZES)
    assert by_path.rooflines[0].latency_seconds == by_name.rooflines[0].latency_seconds
    assert analyze(MODEL, None, dims=SIZES).rooflines == ()


def test_a_buffer_of_other_items_than_bytes_is_read_as_bytes() -> None:
    content = MODEL.SerializeToString()
    content += b"\x32\x00" * (-len(content) % 4 // 2 or 2)  # an empty doc_string, to whole words
    words = memoryview(content[: len(content) // 4 * 4]).cast("I")
    assert analyze(words, dims=SIZES).totals.flops == 2 * 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"dims": [("batch", 2)]},
        {"dims": {1: 2}},
        {"dims": {"batch": 2.0, "width": 3}},
        {"dims": {"batch": True, "width": 3}},
        {"dims": {"batch": np.array([2, 3]), "width": 3}},
        {"dims": {"batch": 1 << 70, "width": 3}},
        {"input_shapes": {"x": 5}},
        {"input_shapes": {"x": None}},
        {"input_shapes": {"x": "23"}},
        {"hardware": 5},
        {"hardware": b"v100"},
        {"hardware": ["v100", None]},
        {"hardware": "mobile-arm", "threads": 1.5},
        {"hardware": "mobile-arm", "threads": 0},
        {"hardware": "mobile-arm", "threads": "4"},
        {"runtime": 5},
        {"precision": ["fp16"]},
        {"operators": 5},
    ],
    ids=str,
)
def test_an_argument_of_another_kind_is_a_usage_error_that_shows_it(
    arguments: dict[str, object],
) -> None:
    with pytest.raises(UsageError, match=r"meant|must be|is a sequence|is not one of"):
        analyze(MODEL, **{"dims": SIZES, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("models", ["model.onnx", b"bytes", Path("model.onnx"), None, 5], ids=str)
def test_many_candidates_are_not_the_letters_of_one_path(models: object) -> None:
    with pytest.raises(UsageError, match="several are meant"):
        CostFunction("v100").many(models)  # type: ignore[arg-type]
