"""Reading runtimes: strict, all problems at once, units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof.errors import InvalidProfileError, UsageError
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.hardware.read import available_profiles, load_profile
from onnxroof.latency.generate import generated_files
from onnxroof.latency.runtime_read import (
    available_runtimes,
    check_runtime,
    load_runtime,
    runtime_directory,
)
from tests.builders import model

if TYPE_CHECKING:
    from pathlib import Path

MINE = """schema_version: 1
name: mine
title: My runtime
fusion: basic
cpu:
  host_us: {convolution: 4, product: 3, normalization: 2, movement: 1, other: 0.5}
  thread_start_us: 6
  winograd_tile: 4
sources:
  guess: {title: A guess, basis: assumption, where: nowhere, covers: [cpu]}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", available_runtimes())
def test_a_shipped_runtime_has_no_problems_and_is_called_like_its_file(name: str) -> None:
    assert check_runtime(runtime_directory() / f"{name}.yaml") == ()
    runtime = load_runtime(name)
    assert runtime.name == name
    assert runtime.fusion in RUNTIMES
    assert runtime.sources


def test_the_runtimes_of_the_documentation_ship() -> None:
    assert set(available_runtimes()) == {
        "caffe", "ncnn", "onnxruntime", "pytorch-eager", "pytorch-mobile", "tensorrt", "tflite",
        "torch-compile",
    }  # fmt: skip


@pytest.mark.parametrize("name", available_profiles())
def test_every_profile_names_a_runtime_that_ships(name: str) -> None:
    assert load_profile(name).runtime in available_runtimes()


@pytest.mark.parametrize("name", sorted(generated_files()))
def test_generated_files_are_fresh(name: str) -> None:
    fresh = generated_files()[name]
    assert (runtime_directory() / name).read_text(encoding="utf-8") == fresh, (
        "run: python -m onnxroof.latency.generate"
    )


def test_microseconds_become_seconds(tmp_path: Path) -> None:
    runtime = load_runtime(str(written(tmp_path, MINE)))
    host = runtime.cpu.host
    assert (host.convolution, host.product, host.other) == (4e-6, 3e-6, 0.5e-6)
    assert (host.normalization, host.copy) == (2e-6, 1e-6)
    assert (runtime.cpu.thread_start_seconds, runtime.cpu.winograd_tile) == (6e-6, 4)
    assert runtime.on("cpu") is runtime.on("mcu") is runtime.cpu
    assert runtime.on("gpu") is runtime.on("npu") is runtime.accelerator


def test_a_file_of_ones_own_is_a_runtime(tmp_path: Path) -> None:
    text = "agraph (float[64,64] x, float[64,64] w) => (float y) { y = MatMul (x, w) }"
    path = str(written(tmp_path, MINE))
    result = onnxroof.analyze(model(text), "10980xe", runtime=path).rooflines[0]
    assert result.runtime == "mine"
    assert result.expected[0].host_seconds == pytest.approx(3e-6)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = MINE.replace("fusion: basic", "fusion: tensorflow").replace("winograd_tile: 4",
        "winograd_tile: 3\n  winogard: true").replace("other: 0.5", "other: -1")  # fmt: skip
    with pytest.raises(InvalidProfileError) as caught:
        load_runtime(str(written(tmp_path, text)))
    paths = {problem.path for problem in caught.value.problems}
    assert paths >= {"fusion", "cpu.winograd_tile", "cpu.winogard", "cpu.host_us.other"}


def test_every_part_needs_a_source(tmp_path: Path) -> None:
    text = MINE.replace("covers: [cpu]", "covers: [accelerator]")
    with pytest.raises(InvalidProfileError, match="cpu: no source"):
        load_runtime(str(written(tmp_path, text)))


def test_units_and_expressions_are_refused(tmp_path: Path) -> None:
    for bad in ("6 us", "2 * 3", "!!python/object:os.system x", "1e-3"):
        with pytest.raises(InvalidProfileError):
            load_runtime(str(written(tmp_path, MINE.replace("thread_start_us: 6",
                f"thread_start_us: {bad}"))))  # fmt: skip


def test_an_unknown_runtime_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"pytorch-eager.*tflite"):
        load_runtime("pytorch")


def test_a_missing_file_is_an_error_of_ours() -> None:
    with pytest.raises(InvalidProfileError, match="no such file"):
        load_runtime("./nowhere.yaml")
