"""Garbage collection: put off during an analysis, left as it was found, and with nothing to do."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof.errors import ModelUnreadableError
from onnxroof.garbage import _Unseen, collecting_later

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = Path(__file__).parents[1] / "models"


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    """Every test begins with collection on and nothing frozen, and leaves it on."""
    gc.unfreeze()  # a command that a test before ran froze what there was
    gc.enable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "name", ["mobilenet_v2.onnx", "mobilenet_v2_qdq.onnx", "swin_t_dynamo.onnx"]
)
def test_a_dropped_analysis_is_freed_at_once(name: str) -> None:
    """No cycles: a constant that pointed at itself would keep the whole file's message alive."""

    def analyze_and_drop() -> None:
        onnxroof.analyze(MODELS / name, "v100")

    analyze_and_drop()  # what is imported and remembered on the first call stays
    gc.collect()
    gc.disable()
    analyze_and_drop()
    gc.disable()
    assert gc.collect() == 0


def test_nothing_is_collected_in_between() -> None:
    runs: list[str] = []
    made: list[list[int]] = []
    with collecting_later():
        gc.callbacks.append(lambda phase, _info: runs.append(phase))
        made += [[i] for i in range(10_000)]  # 700 would be enough to start a collection
        during = list(runs)
        gc.callbacks.pop()
    assert not during
    assert gc.isenabled()


class Cycle:
    """Garbage of the caller's that only collection finds."""

    def __init__(self) -> None:
        self.itself = self
        self.held = [[number] for number in range(60_000)]


@pytest.mark.parametrize(
    ("counts_blocks", "rounds"), [(True, 12), (False, 4)], ids=["its allocator", "malloc"]
)
def test_the_caller_s_cycles_are_collected_in_a_loop_of_analyses(
    monkeypatch: pytest.MonkeyPatch, *, counts_blocks: bool, rounds: int
) -> None:
    # An analysis of mobilenet_v2_qdq keeps more than 1,000 records, which nobody looks through.
    # 12 cycles of 60,000 records are 720,000, and more than a quarter of what the process holds;
    # where that is not known, 2,000 of the caller's records are enough
    monkeypatch.setattr("onnxroof.garbage._MANY_RECORDS", 2_000)
    monkeypatch.setattr("onnxroof.garbage._unseen", _Unseen())
    if not counts_blocks:
        monkeypatch.setattr(sys, "getallocatedblocks", lambda: 0)
    left: list[weakref.ref[Cycle]] = []
    for _ in range(rounds):
        left.append(weakref.ref(Cycle()))
        onnxroof.analyze(MODELS / "mobilenet_v2_qdq.onnx", "v100")
    assert sum(reference() is not None for reference in left) < rounds - 1


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A number for each time the process is looked through, with thresholds a test can reach."""
    monkeypatch.setattr("onnxroof.garbage._MANY_RECORDS", 2_000)
    monkeypatch.setattr("onnxroof.garbage._unseen", _Unseen())
    times: list[int] = []
    gc.collect()  # what other tests left is not the caller's

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            times.append(1)

    gc.callbacks.append(note)
    yield times
    gc.callbacks.remove(note)


def test_a_loop_of_analyses_that_are_dropped_never_looks_through_the_process(
    whole: list[int],
) -> None:
    for _ in range(12):  # 12 × 1,000 records are several times 2,000
        onnxroof.analyze(MODELS / "mobilenet_v2_qdq.onnx", "v100")
    assert not whole


def test_a_loop_of_analyses_that_are_kept_does_not_look_through_them(whole: list[int]) -> None:
    kept = [onnxroof.analyze(MODELS / "mobilenet_v2_qdq.onnx", "v100") for _ in range(12)]
    # 12 × 1,000 records are several times 2,000; none of them is the caller's
    assert len(kept) == 12
    assert not whole


def test_a_process_that_holds_four_times_as_much_is_looked_through(
    monkeypatch: pytest.MonkeyPatch, whole: list[int]
) -> None:
    # Whoever made it: 1 million blocks in the beginning, then 2, 3 and 4; the next is what is left
    read: list[int] = []

    def blocks() -> int:
        read.append((len(read) + 1) * 1_000_000)
        return read[-1]

    monkeypatch.setattr(sys, "getallocatedblocks", blocks)
    for _ in range(30):
        onnxroof.analyze(MODELS / "mobilenet_v2_qdq.onnx", "v100")
        if whole:
            break
    assert read[-2:] == [4_000_000, 5_000_000]


def test_what_the_caller_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        onnxroof.analyze(MODELS / "mobilenet_v2_qdq.onnx", "v100")
        assert gc.get_freeze_count() > 0.9 * frozen
    finally:
        gc.unfreeze()


def test_nothing_stays_frozen_that_was_not() -> None:
    onnxroof.analyze(MODELS / "mobilenet_v2_qdq.onnx", "v100")
    assert gc.get_freeze_count() == 0


def test_collection_is_on_again_after_an_error() -> None:
    with pytest.raises(ModelUnreadableError):
        onnxroof.analyze(b"not a model")
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    onnxroof.analyze(MODELS / "mobilenet_v2.onnx")
    assert not gc.isenabled()
