"""NSGA-II over NAS-Bench-201 cells on two devices: each has its own front, FLOPs has neither.

python examples/pymoo_nas_bench_201.py --plot docs/nas_bench_201_fronts.png
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.mutation import Mutation
from pymoo.core.problem import Problem
from pymoo.operators.crossover.ux import UniformCrossover
from pymoo.operators.sampling.rnd import IntegerRandomSampling
from pymoo.optimize import minimize

from examples.spaces import CHOICES, nas_bench_201, promise
from onnxroof import CostFunction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from examples.spaces import Cell

DEVICES = ("mobile-arm", "v100")
Point = tuple[float, float]


class CellSearch(Problem):
    """Six choices; minimize the cost, maximize the promise."""

    def __init__(self, cost: CostFunction) -> None:
        super().__init__(n_var=6, n_obj=2, xl=0, xu=len(CHOICES) - 1, vtype=int)
        self.cost = cost

    def _evaluate(self, x: np.ndarray, out: dict[str, object], *_: object, **__: object) -> None:
        cells = [cell_of(row) for row in x]
        out["F"] = np.array([[self.cost(nas_bench_201(cell)), -promise(cell)] for cell in cells])


class OtherChoice(Mutation):
    """Each edge becomes another with a chance of one in six: the choices have no order."""

    def _do(
        self, problem: Problem, x: np.ndarray, *, random_state: np.random.Generator, **_: object
    ) -> np.ndarray:
        fresh = random_state.integers(0, len(CHOICES), x.shape)
        return np.where(random_state.random(x.shape) < 1 / problem.n_var, fresh, x)


def cell_of(row: Iterable[float]) -> Cell:
    """The cell of a row of numbers."""
    return tuple(CHOICES[int(number)] for number in row)


def search(cost: CostFunction, population: int, generations: int, seed: int = 1) -> list[Cell]:
    """The cells that NSGA-II finds to be on the front."""
    algorithm = NSGA2(
        pop_size=population,
        sampling=IntegerRandomSampling(),
        crossover=UniformCrossover(),
        mutation=OtherChoice(),
        eliminate_duplicates=True,
    )
    found = minimize(CellSearch(cost), algorithm, ("n_gen", generations), seed=seed)
    return front([cell_of(row) for row in found.X], cost)


def front(cells: Iterable[Cell], cost: CostFunction) -> list[Cell]:
    """The cells that no other of them beats in both cost and promise, cheapest first."""
    priced = sorted({(cost(nas_bench_201(cell)), -promise(cell), cell) for cell in cells})
    best, kept = 0.0, []
    for _, negative, cell in priced:
        if -negative > best:
            best = -negative
            kept.append(cell)
    return kept


def points(cells: Iterable[Cell], cost: CostFunction) -> list[Point]:
    """(cost, promise) of each cell."""
    return [(cost(nas_bench_201(cell)), promise(cell)) for cell in cells]


def regret(picked: Iterable[Cell], best: Iterable[Cell], cost: CostFunction) -> float:
    """How much slower picked cells are than the best ones that promise as much, on average."""
    ideal = points(best, cost)
    ratios = []
    for seconds, quality in points(picked, cost):
        rivals = [rival for rival, other in ideal if other >= quality]
        if rivals:
            ratios.append(seconds / min(rivals) - 1)
    return float(np.mean(ratios)) if ratios else 0.0


def fronts(population: int, generations: int) -> dict[str, list[Cell]]:
    """The front for each device's latency, and for FLOPs, among all cells that were found."""
    costs = {device: CostFunction(device) for device in DEVICES}
    costs["FLOPs"] = CostFunction(DEVICES[0], "flops")
    found = [search(cost, population, generations) for cost in costs.values()]
    return {
        name: front({c for cells in found for c in cells}, cost) for name, cost in costs.items()
    }


def plot(found: Mapping[str, list[Cell]], path: Path | str) -> None:
    """Each front as seen on each device."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(DEVICES), figsize=(11, 4.2), sharey=True)
    marks = dict(
        zip(found, (("o", "tab:blue"), ("s", "tab:orange"), ("x", "tab:gray")), strict=True)
    )
    for axis, device in zip(axes, DEVICES, strict=True):
        cost = CostFunction(device)
        for name, cells in found.items():
            marker, color = marks[name]
            seen = sorted(points(cells, cost))
            axis.plot(
                [1e3 * seconds for seconds, _ in seen], [quality for _, quality in seen],
                marker=marker, color=color, linestyle="-" if name == device else "none",
                label=f"best for {name}",
            )  # fmt: skip
        axis.set_title(f"as {device} sees it")
        axis.set_xlabel("latency (ms)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("promise (stand-in for accuracy)")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Search, compare the fronts, draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=80)
    parser.add_argument("--generations", type=int, default=30)
    parser.add_argument("--plot", metavar="FILE")
    chosen = parser.parse_args()
    found = fronts(chosen.population, chosen.generations)
    for name, cells in found.items():
        print(f"best for {name}: {len(cells)} cells")
    for device in DEVICES:
        cost = CostFunction(device)
        for name, cells in found.items():
            if name != device:
                shared = len(set(cells) & set(found[device]))
                slower = 100 * regret(cells, found[device], cost)
                print(
                    f"on {device}, the cells best for {name}: {shared} of {len(cells)} are on its"
                    f" front; {slower:.0f} % slower on average than those that promise as much"
                )
    if chosen.plot:
        plot(found, chosen.plot)


if __name__ == "__main__":
    main()
