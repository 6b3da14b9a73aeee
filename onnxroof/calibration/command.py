"""The commands `hw bench`, `hw fit` and `overlay` as functions: options in, text out."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from onnxroof.errors import MeasurementError
from onnxroof.progress import Progress


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    """What `hw bench` has to say: the profile, a table, and what to mind."""

    profile: str
    table: str
    warnings: tuple[str, ...]


def bench_command(name: str, seconds: float, *, accept_noise: bool = False) -> BenchOutcome:
    """Measure this machine and describe it.

    Args:
        name: What the profile is called.
        seconds: Time to spend.
        accept_noise: Write a profile however far measurements spread.

    Raises:
        MeasurementError: The machine could not be measured, or is too busy.
    """
    from onnxroof.calibration.bench import bench
    from onnxroof.calibration.write import bench_text, profile_text

    with Progress(None, "measurements") as bar:

        def plan(total: int) -> None:
            bar.total = total

        found = bench(seconds, plan=plan, progress=bar.advance)
    refusal = found.refusal()
    if refusal and not accept_noise:
        raise MeasurementError("", refusal)
    profile = profile_text(found, name, numpy_says(), dt.datetime.now(dt.UTC).date())
    return BenchOutcome(profile, bench_text(found), tuple(found.warnings()))


@dataclass(frozen=True, slots=True)
class FitOutcome:
    """What `hw fit` has to say: the profile, and a table."""

    profile: str
    table: str


def fit_command(
    base: str, table: str, name: str, runtime: str | None = None, constants: str = ""
) -> FitOutcome:
    """Fit constants of the latency model on measured models.

    Args:
        base: The profile to start from: a name or a path.
        table: Path of the measurements.
        name: What the new profile is called.
        runtime: What the models were measured with; None takes the base profile's.
        constants: Groups of constants to fit, comma-separated; "" takes those that matter.

    Raises:
        MeasurementError: The table or a model in it cannot be used, or holds too little.
        ProfileError: The base profile is unknown or invalid.
        UsageError: An unknown group of constants.
    """
    from onnxroof.calibration.cases import build_cases, runtime_of
    from onnxroof.calibration.fit import fit
    from onnxroof.calibration.fit_report import fit_text, fitted_profile
    from onnxroof.calibration.measurements import read_measurements
    from onnxroof.hardware.read import load_profile, profile_data

    hardware = load_profile(base)
    rows = read_measurements(table)
    chosen = runtime_of(hardware, runtime)
    groups = [part.strip() for part in constants.split(",")] if constants else None
    found = fit(build_cases(rows, hardware, chosen), chosen, groups)
    today = dt.datetime.now(dt.UTC).date()
    profile = fitted_profile(profile_data(base), hardware, found, name, table, today)
    return FitOutcome(profile, fit_text(hardware, found))


def numpy_says() -> str:
    """Versions of numpy and of the BLAS library it was built with."""
    import numpy as np

    built: object = np.show_config(mode="dicts")
    for key in ("Build Dependencies", "blas"):
        built = built.get(key) if isinstance(built, dict) else None
    blas = built if isinstance(built, dict) else {}
    said = " ".join(str(blas.get(key, "")) for key in ("name", "version")).strip()
    return f"numpy {np.__version__} with {said or 'an unnamed BLAS library'}"
