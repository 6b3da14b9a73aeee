"""Measuring this machine: what is measured and how it becomes a profile. No test asserts a time."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof import cli
from onnxroof.calibration import bench as module
from onnxroof.calibration import command
from onnxroof.calibration.bench import Bench, bench, thread_counts, working_sets
from onnxroof.calibration.host import Cache, Host, inspect_host
from onnxroof.calibration.sampling import (
    FEWEST_SAMPLES,
    Measurement,
    Run,
    measure,
    summarize,
    timed,
)
from onnxroof.calibration.worker import Request, run
from onnxroof.calibration.write import bench_text, profile_name, profile_text
from onnxroof.errors import MeasurementError
from onnxroof.hardware.read import check_profile, load_profile
from tests.builders import model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = dt.date(2026, 1, 31)

HOST = Host(
    processor="Toy 9000", vendor="none", cores=4, places=(0, 2, 4, 6), logical=8,
    caches=(Cache(1, 32 * 1024, 4), Cache(2, 2**20, 4), Cache(3, 2**25, 1)),
    memory_bytes=2**34, vector_bits=256, flops_per_cycle=32, clock_hertz=2e9, load=0.0,
    quota=None, environment={"OPENBLAS_CORETYPE": "HASWELL"},
)  # fmt: skip


def steady(rate: float, spread: float = 0.01) -> Measurement:
    return Measurement(rate, rate * 1.05, spread, 50, 3)


def canned(request: Request) -> Iterator[tuple[str, Measurement]]:
    """Measurements of an imaginary machine: 50 GFLOP/s a core, 20 GB/s by one, 40 by all."""
    cores = request.threads
    if request.blas_threads > 1:
        yield "product", steady(42.5e9 * cores)
        yield "small", steady(60e9)
        return
    yield "fp32", steady(50e9 * cores)
    yield "fp64", steady(25e9 * cores)
    if cores == 1:
        yield "small", steady(40e9)
        yield "call", steady(4e6)
    for nbytes in request.working_sets:
        yield f"scale {nbytes}", steady((100e9 if nbytes < 2**25 else 20e9) * cores)
    for kernel in ("scale", "copy", "read"):
        yield kernel, steady(min(20e9 * cores, 40e9))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "_measured", canned)
    return bench(host=HOST)


# -- sampling --------------------------------------------------------------------------------


def test_a_rate_is_the_median_and_its_spread_the_quartiles_over_it() -> None:
    # quartiles of 1, 2, 3, 4, 5 are 2 and 4
    found = summarize([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.rate_per_second, found.best_per_second) == (3.0, 5.0)
    assert found.spread == pytest.approx(2 / 3)


def test_runs_go_on_until_there_are_enough() -> None:
    calls = []
    found = measure(lambda: timed(lambda: calls.append(1)), 1.0, 1e-9)
    assert found.samples + found.disturbed >= FEWEST_SAMPLES
    assert len(calls) > FEWEST_SAMPLES


def test_disturbed_runs_are_left_out_and_counted() -> None:
    # every second run takes three times as long because a core was taken away
    runs = cycle([Run(1.0, is_calm=True), Run(3.0, is_calm=False)])
    found = measure(lambda: next(runs), 6.0, 0.01)
    assert (found.rate_per_second, found.spread) == (6.0, 0.0)
    assert found.disturbed > 0


def test_where_hardly_a_run_is_calm_all_count() -> None:
    found = measure(lambda: Run(2.0, is_calm=False), 6.0, 0.01)
    assert (found.rate_per_second, found.disturbed) == (3.0, 0)


# -- what is measured ------------------------------------------------------------------------


def test_threads_are_powers_of_two_and_all_cores() -> None:
    assert thread_counts(1) == [1]
    assert thread_counts(6) == [1, 2, 4, 6]
    assert thread_counts(8) == [1, 2, 4, 8]


def test_working_sets_reach_from_the_first_cache_to_beyond_the_last() -> None:
    sets = working_sets(HOST, 4)
    assert sets[0] < 4 * 32 * 1024
    assert sets[-1] > 2**25


def test_every_level_is_measured_inside_it_and_beyond_the_nearer_ones(measured: Bench) -> None:
    inner = 0
    for level in measured.levels[:-1]:
        assert level.cache is not None
        outer = level.cache.nbytes * level.cache.instances
        assert inner < level.working_set < outer
        inner = outer
    # main memory: four times the last cache
    assert measured.levels[-1].working_set == 4 * 2**25


def test_the_plan_counts_every_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_measured", canned)
    plans, done = [], []
    bench(host=HOST, plan=plans.append, progress=lambda: done.append(1))
    assert plans == [len(done)]


def test_this_machine_tells_its_cores() -> None:
    host = inspect_host()
    assert 1 <= host.cores <= host.logical
    sizes = [cache.nbytes for cache in host.caches]
    assert sizes == sorted(sizes)


def test_the_worker_measures_what_was_asked_for() -> None:
    names = [name for name, _ in run(Request(1, (49152,), 2**20, 0.001))]
    assert names == ["fp32", "fp64", "small", "call", "scale 49152", "scale", "copy", "read"]


def test_the_worker_runs_in_a_process_with_its_threads() -> None:
    found = dict(module._measured(Request(1, (), 2**20, 0.001)))
    assert found["fp32"].rate_per_second > 0


def test_several_blas_threads_share_products() -> None:
    names = [name for name, _ in run(Request(2, (), 2**20, 0.001, blas_threads=2))]
    assert names == ["product", "small"]


def test_forking_is_what_a_shared_product_takes_beyond_its_share(measured: Bench) -> None:
    # 2 · 128^3 FLOP at 60 GFLOP/s together, at 40 alone on each of 4
    work = 2 * 128**3
    assert measured.fork_join_seconds() == pytest.approx(work / 60e9 - work / 40e9 / 4)


def test_a_worker_that_fails_is_an_error_in_one_line() -> None:
    with pytest.raises(MeasurementError, match="measuring with -1 threads failed: "):
        dict(module._measured(Request(-1, (), 2**20, 0.001)))


# -- the profile -----------------------------------------------------------------------------


def test_the_profile_passes_the_check_and_times_a_model(measured: Bench, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(profile_text(measured, "toy", "numpy 2", DAY), encoding="utf-8")
    assert check_profile(path) == ()
    text = "agraph (float[64,64] x, float[64,64] w) => (float[64,64] y) { y = MatMul (x, w) }"
    found = onnxroof.analyze(model(text), str(path))
    assert found.rooflines[0].latency_seconds > 0


def test_sustained_figures_are_the_medians(measured: Bench, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(profile_text(measured, "toy", "numpy 2", DAY), encoding="utf-8")
    profile = load_profile(path)
    assert profile.peak_ops_per_second("fp32", "vector", "sustained").ops_per_second == 200e9
    assert profile.bandwidth_bytes_per_second("sustained") == 40e9
    assert profile.kernel_overhead_seconds == 0.25e-6
    assert profile.threads == profile.cores == 4
    single = profile.for_threads(1)
    assert single.peak_ops_per_second("fp32", "vector", "sustained").ops_per_second == 50e9
    assert single.bandwidth_bytes_per_second("sustained") == 20e9


def test_a_product_reaches_all_of_what_products_reached(measured: Bench, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(profile_text(measured, "toy", "numpy 2", DAY), encoding="utf-8")
    constants = dict(load_profile(path).latency_constants)
    assert constants["product_share"] == 1.0
    # 4 threads together 210 GFLOP/s, sharing one product 178.5: (210 / 178.5 - 1) / 3
    assert constants["parallel_loss"] == pytest.approx((210 / 178.5 - 1) / 3, rel=1e-3)


def test_a_loss_by_sharing_that_no_library_has_is_replaced(measured: Bench, tmp_path: Path) -> None:
    # twice the time is other programs' doing; 5 % over the three threads beyond the first is usual
    run = {**measured.runs[4], "product": steady(100e9)}
    path = tmp_path / "toy.yaml"
    busy = replace(measured, runs={**measured.runs, 4: run})
    path.write_text(profile_text(busy, "toy", "numpy 2", DAY), encoding="utf-8")
    loss = dict(load_profile(path).latency_constants)["parallel_loss"]
    assert loss == pytest.approx(0.05 / 3, rel=1e-3)


def test_peaks_are_no_lower_than_the_clock_allows_and_than_what_was_seen(
    measured: Bench, tmp_path: Path
) -> None:
    def peak(found: Bench) -> float:
        path = tmp_path / "toy.yaml"
        path.write_text(profile_text(found, "toy", "numpy 2", DAY), encoding="utf-8")
        return load_profile(path).peak_ops_per_second("fp32", "vector").ops_per_second or 0.0

    # 4 cores · 2 GHz · 32 FLOP; without a clock the best run, 4 · 52.5 GFLOP/s, over 0.9
    assert peak(measured) == pytest.approx(256e9)
    unclocked = replace(measured, host=replace(HOST, clock_hertz=None))
    assert peak(unclocked) == pytest.approx(4 * 52.5e9 / 0.9, rel=2e-3)


def test_the_variables_that_choose_kernels_are_recorded(measured: Bench) -> None:
    assert "OPENBLAS_CORETYPE=HASWELL" in " ".join(
        profile_text(measured, "toy", "numpy 2", DAY).split()
    )


def test_what_is_left_out_is_said_with_the_reason(measured: Bench) -> None:
    text = " ".join(profile_text(measured, "toy", "numpy 2", DAY).split())
    assert "fp16 is left out: numpy computes it in software" in text
    assert "int8 is left out" in text


def test_a_machine_that_tells_nothing_has_main_memory_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_measured", canned)
    bare = replace(HOST, caches=(), memory_bytes=None, clock_hertz=None, flops_per_cycle=None)
    path = tmp_path / "toy.yaml"
    path.write_text(profile_text(bench(host=bare), "toy", "numpy 2", DAY), encoding="utf-8")
    assert [level.level for level in load_profile(path).memory] == ["dram"]


@pytest.mark.parametrize(
    ("path", "name"),
    [("my.yaml", "my"), ("/a/b/My Board.yml", "my-board"), ("...", "this-machine"), ("x", "x")],
)
def test_a_profile_is_called_as_its_file(path: str, name: str) -> None:
    assert profile_name(path) == name


# -- noise -----------------------------------------------------------------------------------


def noisy(found: Bench, spread: float) -> Bench:
    run = {**found.runs[4], "fp32": steady(200e9, spread)}
    return replace(found, runs={**found.runs, 4: run})


def test_a_calm_measurement_has_nothing_to_mind(measured: Bench) -> None:
    assert measured.warnings() == []
    assert measured.refusal() == ""


def test_a_large_spread_is_said(measured: Bench) -> None:
    assert "fp32 on 4 threads (30%)" in noisy(measured, 0.3).warnings()[0]
    assert noisy(measured, 0.3).refusal() == ""


def test_a_spread_too_large_is_refused_with_a_way_out(measured: Bench) -> None:
    assert "--accept-noise" in noisy(measured, 0.6).refusal()


def test_all_threads_slower_than_one_is_refused(measured: Bench) -> None:
    run = {**measured.runs[4], "fp32": steady(2e9)}
    slow = replace(measured, runs={**measured.runs, 4: run})
    assert "products on 4 threads are slower than on one" in slow.refusal()


def test_other_programs_and_limits_are_said(measured: Bench) -> None:
    busy = replace(measured, host=replace(HOST, load=6.0, quota=2.0))
    assert any("a load of 6.0" in said for said in busy.warnings())
    assert any("a limit of 2 cores" in said for said in busy.warnings())


# -- the command -----------------------------------------------------------------------------


def test_the_command_writes_a_profile_and_shows_a_table(
    measured: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr("onnxroof.calibration.bench.bench", lambda *_, **__: measured)
    path = tmp_path / "board.yaml"
    monkeypatch.setattr(sys, "argv", ["onnxroof", "hw", "bench", "-o", str(path)])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert not done.value.code
    assert check_profile(path) == ()
    assert load_profile(path).name == "board"
    assert capsys.readouterr().out == bench_text(measured)


def test_the_command_refuses_noise_unless_told_otherwise(
    measured: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxroof.calibration.bench.bench", lambda *_, **__: noisy(measured, 0.6))
    with pytest.raises(
        MeasurementError, match="quartiles of fp32 products lie 60% of the median apart"
    ):
        command.bench_command("toy", 1.0)
    outcome = command.bench_command("toy", 1.0, accept_noise=True)
    assert "fp32 on 4 threads (60%)" in outcome.warnings[0]
