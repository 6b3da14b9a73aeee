"""Optuna: MobileNet widths and kernels, latency against capacity, within a memory budget.

python examples/optuna_mobile_net.py --trials 400 --plot docs/mobile_net_front.png
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import optuna

from examples.spaces import mobile_net
from onnxroof import CostFunction

if TYPE_CHECKING:
    from pathlib import Path

    from onnxroof import GraphBuilder

FILTERS = (16, 24, 32, 64, 96, 160)


def candidate(trial: optuna.Trial | optuna.trial.FrozenTrial) -> GraphBuilder:
    """The network a trial stands for."""
    width = trial.suggest_float("width", 0.35, 1.4, step=0.05)
    blocks = [
        (
            trial.suggest_int(f"expansion{at}", 2, 6),
            filters,
            trial.suggest_categorical(f"kernel{at}", (3, 5, 7)),
        )
        for at, filters in enumerate(FILTERS)
    ]
    return mobile_net(width, blocks)


def search(device: str, trials: int, budget_bytes: int = 24 * 2**20, seed: int = 0) -> optuna.Study:
    """Minimize latency, maximize multiply-accumulates; weights and activations fit the budget.

    Multiply-accumulates are a stand-in for accuracy, which in this family of networks grows with
    them: put your own measurement or predictor in their place.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    cost = CostFunction(device, ("latency_seconds", "macs", "peak_memory_bytes"))

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        seconds, macs, nbytes = cost(candidate(trial))
        trial.set_user_attr("excess_bytes", nbytes - budget_bytes)
        return seconds, macs

    def excess(trial: optuna.trial.FrozenTrial) -> tuple[float]:
        return (trial.user_attrs["excess_bytes"],)

    study = optuna.create_study(
        directions=("minimize", "maximize"),
        sampler=optuna.samplers.NSGAIISampler(
            population_size=40, seed=seed, constraints_func=excess
        ),
    )
    study.optimize(objective, n_trials=trials)
    return study


def plot(studies: dict[str, optuna.Study], path: Path | str) -> None:
    """Latency against capacity of all trials and of the best, a panel a device."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(studies), figsize=(5.5 * len(studies), 4.2), squeeze=False)
    for axis, (device, study) in zip(axes[0], studies.items(), strict=True):
        for trials, marker, color, label in (
            (study.trials, ".", "lightgray", "tried"),
            (study.best_trials, "o", "tab:blue", "on the front"),
        ):
            axis.plot(
                [1e3 * trial.values[0] for trial in trials],
                [trial.values[1] / 1e6 for trial in trials],
                marker, color=color, label=label,
            )  # fmt: skip
        axis.set_title(device)
        axis.set_xlabel("latency (ms)")
        axis.set_ylabel("MMAC (stand-in for accuracy)")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Search for two devices and show the kernels each prefers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--plot", metavar="FILE")
    chosen = parser.parse_args()
    studies = {device: search(device, chosen.trials) for device in ("mobile-arm", "v100")}
    for device, study in studies.items():
        best = study.best_trials
        kernels = [trial.params[f"kernel{at}"] for trial in best for at in range(len(FILTERS))]
        mean = sum(kernels) / len(kernels)
        print(f"{device}: {len(best)} networks on the front, kernels {mean:.1f} wide on average")
    if chosen.plot:
        plot(studies, chosen.plot)


if __name__ == "__main__":
    main()
