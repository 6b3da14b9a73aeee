"""Real profiles of ONNX Runtime: nearly everything measured finds its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxroof
from onnxroof.calibration.overlay import Overlay, overlay
from onnxroof.calibration.traces import read_trace
from tests.memory.test_against_execution import weights_filled

if TYPE_CHECKING:
    from pathlib import Path

ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.oracle

RUNS = 3
LEVELS = {
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def traced(name: str, level: str, folder: Path) -> Overlay:
    """A model run a few times with profiling on, laid over its analysis."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / name)
    options.graph_optimization_level = LEVELS[level]
    options.log_severity_level = 3
    session = ort.InferenceSession(
        weights_filled(name).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (item,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in item.shape]
    for _ in range(RUNS):
        session.run(None, {item.name: np.ones(shape, np.float32)})
    trace = read_trace(session.end_profiling())
    assert trace.runs == RUNS
    dims = {size: 1 for size in item.shape if isinstance(size, str)}
    return overlay(onnxroof.analyze(weights_filled(name), "10980xe", dims=dims), trace)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_large", "resnet50_dynamo"])
def test_what_was_measured_finds_its_kernels(name: str, level: str, tmp_path: Path) -> None:
    found = traced(name, level, tmp_path)
    left = [item for item in found.unmatched if not item.op_type.startswith("Reorder")]
    assert len(left) <= 0.05 * len(found.trace.entries)
    assert {item.reason.split(":")[0] for item in left} <= {"launches nothing in our plan"}
    # the trace was made at the sizes of the analysis, which the measured outputs confirm
    assert not any("other dimensions" in note for note in found.notes)


def test_nothing_measured_is_dropped(tmp_path: Path) -> None:
    found = traced("resnet50_dynamo", "all", tmp_path)
    left = sum(item.seconds for item in found.unmatched)
    assert found.matched_seconds + left == pytest.approx(found.measured_seconds)
