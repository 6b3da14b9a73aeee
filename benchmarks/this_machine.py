"""This machine measured, models run on it, and what was said before they ran.

`hw bench` writes a profile; ONNX Runtime then runs twelve models of `models/` with random weights.
Times must lie above the roofline bound, rank as predicted, and be near what was predicted; ten
measurements given to `hw fit` must bring the models left out nearer.

    python benchmarks/this_machine.py                 # all of it, a few minutes
    python benchmarks/this_machine.py --hw my.yaml    # with a profile measured before
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import onnxroof
from onnxroof.calibration.cases import build_cases, runtime_of
from onnxroof.calibration.fit import fit
from onnxroof.calibration.measurements import Measured
from onnxroof.calibration.sampling import measure, timed
from onnxroof.errors import OnnxroofError
from onnxroof.hardware.read import load_profile

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
sys.path.insert(0, str(MODELS))

from weightless import fill_missing_weights  # noqa: E402

CHOSEN: dict[str, dict[str, int]] = {
    "squeezenet1_1": {},
    "shufflenet_v2_x1_0": {},
    "mobilenet_v2": {},
    "mobilenet_v3_large": {},
    "efficientnet_b0": {},
    "resnet50": {},
    "inception_v3": {},
    "vgg16": {},
    "convnext_tiny": {"N": 1},
    "vit_b_16": {},
    "minilm_l6_dynamo": {"batch": 1, "sequence": 128},
    "gpt2_dynamic": {"batch": 1, "sequence": 128},
}
"""Models and sizes of their free dimensions."""

ROUNDS = 10
SPLITS = 20
TEN = 10

TYPES = {
    "tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}  # fmt: skip


def session(name: str, dims: dict[str, int], threads: int | None):
    """A model with random weights, ready to run, and what to feed it."""
    import onnxruntime as ort

    proto = onnx.load(MODELS / f"{name}.onnx", load_external_data=False)
    fill_missing_weights(proto)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    run = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {}
    for item in run.get_inputs():
        shape = [size if isinstance(size, int) else dims[size] for size in item.shape]
        dtype = TYPES[item.type]
        values = np.random.default_rng(0).standard_normal(shape)
        feeds[item.name] = values.astype(dtype) if dtype is np.float32 else np.ones(shape, dtype)
    return run, feeds


def measured_seconds(threads: int | None, budget: float) -> dict[str, float]:
    """Seconds of each model: the median of the undisturbed runs of its calmest round.

    Rounds go through all models, so that what else the machine does falls on all alike.
    """
    loaded = {name: session(name, dims, threads) for name, dims in CHOSEN.items()}
    best = dict.fromkeys(CHOSEN, float("inf"))
    for _ in range(ROUNDS):
        for name, (run, feeds) in loaded.items():
            found = measure(
                lambda run=run, feeds=feeds: timed(lambda: run.run(None, feeds)),
                1.0, budget / ROUNDS / 2,
            )  # fmt: skip
            best[name] = min(best[name], 1 / found.rate_per_second)
    return best


def ranks(values: list[float]) -> list[float]:
    return list(np.argsort(np.argsort(values)).astype(float))


def spearman(left: list[float], right: list[float]) -> float:
    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def mape(predicted: list[float], measured: list[float]) -> float:
    return float(np.mean([abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]))


def profile_of_this_machine(folder: Path) -> Path:
    """Written by `hw bench`; noise is said, not refused."""
    from onnxroof.calibration.command import bench_command

    outcome = bench_command("this-machine", 20.0, accept_noise=True)
    print(outcome.table)
    path = folder / "this-machine.yaml"
    path.write_text(outcome.profile, encoding="utf-8")
    return path


def compare(profile: Path, times: dict[str, float], threads: int | None) -> bool:
    """Print measured against predicted; whether every target is met."""
    print(f"{'model':24}{'measured':>12}{'expected':>12}{'bound':>12}{'error':>9}")
    expected, bounds, measured = [], [], []
    for name, seconds in times.items():
        path = MODELS / f"{name}.onnx"
        found = onnxroof.analyze(path, str(profile), dims=CHOSEN[name], threads=threads)
        result = found.rooflines[0]
        expected.append(result.latency_seconds)
        bounds.append(result.bound_seconds)
        measured.append(seconds)
        cells = [f"{value * 1e3:.2f} ms" for value in (seconds, expected[-1], bounds[-1])]
        error = expected[-1] / seconds - 1
        print(f"{name:24}" + "".join(f"{cell:>12}" for cell in cells) + f"{error:>+9.0%}")
    targets = [
        ("times below the bound", sum(m < b for m, b in zip(measured, bounds, strict=True)), 0, -1),
        ("Spearman", spearman(expected, measured), 0.95, 1),
        ("MAPE", mape(expected, measured), 0.25, -1),
    ]
    met = True
    for what, value, target, sign in targets:
        holds = sign * value >= sign * target
        met &= holds
        relation = "at least" if sign > 0 else "at most"
        print(f"{what}: {value:.3g} ({relation} {target:g}: {'yes' if holds else 'NO'})")
    return met


def fitted_halves(profile: Path, times: dict[int, dict[str, float]]) -> bool:
    """Fit ten measurements of all, look at the others; whether every held-out part improves."""
    hardware = load_profile(profile)
    runtime = runtime_of(hardware, "onnxruntime")
    rows = [
        Measured(str(MODELS / f"{name}.onnx"), seconds, None, threads, CHOSEN[name], 0)
        for threads, measured in times.items()
        for name, seconds in measured.items()
    ]
    cases = build_cases(rows, hardware, runtime)
    print(f"{'held out':>10}{'base':>10}{'fitted':>10}")
    improved = 0
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(cases))
        used, rest = [cases[i] for i in order[:TEN]], [cases[i] for i in order[TEN:]]
        speeds = fit(used, runtime).speeds
        base, fitted = (
            mape([case.predict(runtime, s) for case in rest], [case.seconds for case in rest])
            for s in ({}, speeds)
        )
        improved += fitted < base
        print(f"{len(rest):>10}{base:>10.1%}{fitted:>10.1%}{'' if speeds else '  base kept'}")
    print(f"held-out parts that improve: {improved} of {SPLITS} (all: {improved == SPLITS})")
    return improved == SPLITS


def measured_on(threads: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Times on so many threads, from the file where there is one."""
    path = arguments.times and arguments.times.with_suffix(f".{threads}.json")
    if path and path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    times = measured_seconds(threads, arguments.seconds)
    if path:
        path.write_text(json.dumps(times), encoding="utf-8")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hw", type=Path, help="a profile of this machine measured before")
    parser.add_argument("--times", type=Path, help="where times are kept, to measure them once")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            profile = arguments.hw or profile_of_this_machine(Path(folder))
        except OnnxroofError as error:
            sys.exit(str(error))
        counts = sorted({1, load_profile(profile).threads or 1}, reverse=True)
        times = {threads: measured_on(threads, arguments) for threads in counts}
        met = True
        for threads in counts:
            print(f"\n{threads} threads")
            met &= compare(profile, times[threads], threads)
        print()
        met &= fitted_halves(profile, times)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
