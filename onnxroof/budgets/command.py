"""The command `check` as a pure function: options in, answers out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxroof.budgets.check import check_budgets
from onnxroof.budgets.limits import KINDS
from onnxroof.budgets.read import read_budgets
from onnxroof.budgets.records import Budget
from onnxroof.errors import UsageError, about
from onnxroof.hardware.read import load_profile
from onnxroof.units import distinct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.budgets.records import BudgetReport, Limit


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What the command line said.

    Attributes:
        budget: Path of a budget file; "" for none.
        limits: Amounts as text by their key ("max_latency"); None where not given.
        hardware: Devices the limits hold on, each.
        dims: Sizes of free dimensions.
        input_shapes: Whole shapes of inputs.
        precision: As for `analyze`.
        runtime: As for `analyze`.
        peak: "vendor" or "sustained".
        threads: As for `analyze`.
        operators: As for `analyze`.
    """

    budget: str = ""
    limits: Mapping[str, str | None] = field(default_factory=dict)
    hardware: Sequence[str] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    precision: str = ""
    runtime: str | None = None
    peak: str = "vendor"
    threads: int | None = None
    operators: str | None = None


def check_command(models: Sequence[str], options: CheckOptions) -> list[BudgetReport]:
    """Check model files, each against all budgets.

    Raises:
        UsageError: No limits, or an option or the budget file cannot be understood.
        OnnxroofError: As `analyze`.
    """
    budgets = (*_from_file(options), *_from_flags(options))
    if not budgets:
        flags = ", ".join(kind.flag for kind in KINDS)
        raise UsageError(f"nothing to check: give --budget FILE or limits ({flags})")
    if len(models) == 1:
        return [check_budgets(models[0], budgets, options.operators)]
    reports: list[BudgetReport] = []
    for model in models:
        with about(model):
            reports.append(check_budgets(model, budgets, options.operators))
    return reports


def _from_file(options: CheckOptions) -> tuple[Budget, ...]:
    return read_budgets(options.budget) if options.budget else ()


def _from_flags(options: CheckOptions) -> tuple[Budget, ...]:
    """One budget a device for what differs between devices, one for the model as such."""
    limits = [
        kind.limit(text, kind.flag)
        for kind in KINDS
        if (text := options.limits.get(kind.key)) is not None
    ]
    timed = [limit for limit in limits if limit.metric.per_device]
    if timed and not options.hardware:
        raise UsageError("a limit on latency or throughput needs a device: --hw NAME")
    of_devices = tuple(
        [x for x in limits if x.metric.per_device or (x.metric.per_runtime and options.hardware)]
    )
    of_model = tuple([limit for limit in limits if limit not in of_devices])
    first = options.hardware[0] if options.hardware else ""
    budgets = [_budget(options, "model", first, of_model)] if of_model else []
    if of_devices:
        names = distinct([load_profile(device).name for device in options.hardware])
        budgets += [
            _budget(options, name, device, of_devices)
            for name, device in zip(names, options.hardware, strict=True)
        ]
    return tuple(budgets)


def _budget(options: CheckOptions, name: str, device: str, limits: tuple[Limit, ...]) -> Budget:
    return Budget(
        name, device, limits, options.dims, options.input_shapes, options.precision,
        options.runtime, options.peak, options.threads,
    )  # fmt: skip
