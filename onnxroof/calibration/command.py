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


def numpy_says() -> str:
    """Versions of numpy and of the BLAS library it was built with."""
    import numpy as np

    built: object = np.show_config(mode="dicts")
    for key in ("Build Dependencies", "blas"):
        built = built.get(key) if isinstance(built, dict) else None
    blas = built if isinstance(built, dict) else {}
    said = " ".join(str(blas.get(key, "")) for key in ("name", "version")).strip()
    return f"numpy {np.__version__} with {said or 'an unnamed BLAS library'}"
