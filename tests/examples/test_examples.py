"""The examples with small budgets; each runs where its library is installed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from examples.spaces import CHOICES, every_cell, mobile_net, nas_bench_201, promise
from onnxroof import CostFunction

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_space_has_15625_cells_and_the_deepest_promises_most() -> None:
    cells = list(every_cell())
    assert len(cells) == 5**6
    # four ways from the first vertex to the last, eight 3×3 convolutions on them: log2(1 + 3·8)
    assert max(cells, key=promise) == ("3x3",) * 6
    assert 2 ** promise(("3x3",) * 6) == pytest.approx(25)
    assert promise(("none",) * 6) == 0


def test_a_published_network_has_its_published_size() -> None:
    # MobileNet-like blocks: 1×1, depthwise, 1×1; the depthwise part has k² weights a channel
    small, large = (mobile_net(1.0, [(4, 16, kernel)]) for kernel in (3, 5))
    difference = [CostFunction("v100", "parameters")(g) for g in (large, small)]
    assert difference[0] - difference[1] == 4 * 32 * (25 - 9)


def test_dask_prices_what_one_process_prices() -> None:
    pytest.importorskip("dask.distributed")
    from examples.dask_cluster import price

    source = random.Random(0)
    cells = [tuple(source.choice(CHOICES) for _ in range(6)) for _ in range(40)]
    cost = CostFunction("mobile-arm")
    assert price(40) == [cost(nas_bench_201(cell)) for cell in cells]


def test_the_fronts_of_two_devices_differ_and_flops_has_neither(tmp_path: Path) -> None:
    pytest.importorskip("pymoo")
    pytest.importorskip("matplotlib")
    from examples.pymoo_nas_bench_201 import DEVICES, fronts, plot, regret

    found = fronts(population=60, generations=18)
    assert set(found[DEVICES[0]]) != set(found[DEVICES[1]])
    for device, other in zip(DEVICES, reversed(DEVICES), strict=True):
        cost = CostFunction(device)
        for picked in (other, "FLOPs"):
            assert not set(found[picked]) <= set(found[device])
            assert regret(found[picked], found[device], cost) > 0
    plot(found, tmp_path / "fronts.png")
    assert (tmp_path / "fronts.png").stat().st_size > 10_000


def test_optuna_keeps_within_the_memory_budget(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("matplotlib")
    from examples.optuna_mobile_net import candidate, plot, search

    budget = 24 * 2**20
    study = search("mobile-arm", trials=80, budget_bytes=budget)
    assert len(study.best_trials) > 3
    cost = CostFunction("mobile-arm", ("latency_seconds", "macs", "peak_memory_bytes"))
    for trial in study.best_trials:
        seconds, macs, nbytes = cost(candidate(trial))
        assert (seconds, macs) == tuple(trial.values)
        assert nbytes <= budget
    plot({"mobile-arm": study}, tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 10_000


def test_searching_is_repeatable() -> None:
    pytest.importorskip("optuna")
    from examples.optuna_mobile_net import search

    values = [[t.values for t in search("v100", trials=30).trials] for _ in range(2)]
    assert values[0] == values[1]


def test_the_examples_import_nothing_that_is_not_named_in_the_project() -> None:
    named = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(("import ", "from ")):
                package = line.split()[1].split(".")[0]
                standard = package in sys.stdlib_module_names
                assert standard or package in {"examples", "onnxroof"} or package in named
