"""The pipeline, top to bottom: load → shapes → cost → kernels → memory → roofline."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

from onnxroof.analysis import Analysis
from onnxroof.cost import count_costs
from onnxroof.errors import ShapeMismatchError, UsageError
from onnxroof.fusion.plan import plan_kernels
from onnxroof.garbage import collecting_later
from onnxroof.graph.load import load_model
from onnxroof.graph.types import DType, Model
from onnxroof.hardware.profile import HardwareProfile, told_apart
from onnxroof.hardware.read import load_profile
from onnxroof.latency.predict import Predictor
from onnxroof.latency.runtime_read import load_runtime
from onnxroof.memory import plan_memory
from onnxroof.open_shapes import bound
from onnxroof.plugins import read_operators, unmatched
from onnxroof.roofline import apply_roofline
from onnxroof.shapes import Memo, infer_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxroof.builder import GraphBuilder
    from onnxroof.graph.load import ModelSource
    from onnxroof.hardware.profile import PeakKind
    from onnxroof.latency.runtime import RuntimeProfile

    Hardware = str | os.PathLike[str] | HardwareProfile

MOST_PREDICTORS = 64
"""Devices and runtimes a memo keeps prices for."""

_STORED_AS: Mapping[str, Mapping[DType, DType]] = {
    "": {},
    "fp32": {DType.FLOAT16: DType.FLOAT, DType.BFLOAT16: DType.FLOAT},
    "fp16": {DType.FLOAT: DType.FLOAT16, DType.BFLOAT16: DType.FLOAT16},
    "bf16": {DType.FLOAT: DType.BFLOAT16, DType.FLOAT16: DType.BFLOAT16},
    "fp8": dict.fromkeys((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16), DType.FLOAT8E4M3FN),
    "int8": dict.fromkeys((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16), DType.INT8),
}
"""What `precision` stores floating-point tensors as."""


@collecting_later()
def analyze(  # noqa: PLR0913 - every argument is one choice of the caller
    source: ModelSource | GraphBuilder | Model,
    hardware: Hardware | Iterable[Hardware] | None = (),
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    precision: str = "",
    runtime: str | None = None,
    peak: PeakKind = "vendor",
    threads: int | None = None,
    operators: str | os.PathLike[str] | None = None,
    keep_going: bool = False,
    memo: Memo | None = None,
) -> Analysis:
    """Say what a model costs and how long it takes, without running it.

    Args:
        source: Path, bytes, ModelProto (which is not modified), finished `GraphBuilder`, or a
            `Model` loaded before.
        hardware: Name of a shipped profile, path of a YAML file, a `HardwareProfile`, or several.
        dims: Sizes of free dimensions by name.
        input_shapes: Whole shapes of inputs by name; a name in the place of a size, as in
            ("batch", 3, 224, 224), leaves that dimension open, for `dims` to size.
        precision: "fp16", "bf16", "fp8", "int8" or "fp32": as if weights and activations were
            stored and computed so; "" keeps the file's types.
        runtime: Whose fusions, algorithms and overheads to expect: a runtime's name, a fusion
            set's, or the path of a YAML file; None takes each profile's default. `kernels` and
            `memory` are those of the first device.
        peak: "vendor" for data-sheet peaks, "sustained" for measured ones.
        threads: Threads to use, on devices that have them; others say that they have none.
            None takes the profile's default.
        operators: YAML file that describes operators of your own (see `onnxroof.plugins`).
        keep_going: Return a partial analysis (see `Analysis.problems`) where a node contradicts
            its operator's text, instead of raising.
        memo: Results shared between calls; None shares them with the process's other analyses
            at this precision.

    Raises:
        ModelError: The file cannot be read or its graph cannot be repaired.
        ShapeError: A free dimension is not bound, or (without `keep_going`) a node cannot be.
        ProfileError: A hardware profile is unknown or invalid.
        UsageError: An argument cannot be understood.
    """
    if peak not in ("vendor", "sustained"):
        raise UsageError(f"peak {peak!r} is not one of vendor, sustained")
    _check_text(runtime, "runtime", "a name or the path of a YAML file")
    _check_text(precision, "precision", "a type such as 'fp16'")
    profiles = _profiles(hardware, threads)
    model, bindings = bound(_loaded(source), dims, input_shapes)
    if memo is None:
        memo = memo_for(precision, operators) if operators is not None else _shared_memo(precision)
    shaped, findings = infer_shapes(model.graph, bindings, memo)
    if findings.problems and not keep_going:
        raise ShapeMismatchError(findings.problems)
    cost = count_costs(shaped)
    runs = [load_runtime(runtime or profile.runtime) for profile in profiles]
    first = runs[0] if runs else load_runtime(runtime or default_runtime(()))
    plans = {name: plan_kernels(cost, name) for name in {run.fusion for run in (first, *runs)}}
    kernels = plans[first.fusion]
    memory = plan_memory(kernels)
    rooflines = tuple(
        predictor.expect(apply_roofline(plan, predictor.device), plan)
        for predictor, plan in [
            (predictor_for(profile, run, peak, memo), plans[run.fusion])
            for profile, run in zip(profiles, runs, strict=True)
        ]
    )
    missed = () if operators is None else unmatched(memo.registry, model.graph)
    said = (
        *model.assumptions,
        *bindings.assumptions,
        *findings.assumptions,
        *cost.assumptions,
        *missed,
        *_without_threads(profiles, threads),
    )
    return Analysis(
        model=model,
        inputs={item.name: shaped.tensors[item.name] for item in model.graph.inputs},
        precision=precision,
        cost=cost,
        kernels=kernels,
        memory=memory,
        rooflines=rooflines,
        assumptions=tuple(dict.fromkeys(said)),
        unresolved=findings.unresolved,
        problems=findings.problems,
        data_dependent=findings.data_dependent,
        dims=dict(bindings.sizes),
        memo=memo,
    )


def _loaded(source: ModelSource | GraphBuilder | Model) -> Model:
    """The model without weights, whatever it comes from."""
    if isinstance(source, Model):
        return source
    to_model: Callable[[], Model] | None = getattr(source, "to_model", None)
    return load_model(source) if to_model is None else to_model()  # type: ignore[arg-type]


def memo_for(precision: str, operators: str | os.PathLike[str] | None = None) -> Memo:
    """A fresh memo for a precision and operators. Raises UsageError for bad ones."""
    if precision not in _STORED_AS:
        known = ", ".join(name for name in _STORED_AS if name)
        raise UsageError(f"precision {precision!r} is not one of {known}")
    registry = None if operators is None else read_operators(operators)
    return Memo(_STORED_AS[precision], registry)


@cache
def _shared_memo(precision: str) -> Memo:
    """What the analyses of this process share: results of pure functions, bounded in number."""
    return memo_for(precision)


def predictor_for(
    hardware: HardwareProfile, runtime: RuntimeProfile, peak: PeakKind, memo: Memo
) -> Predictor:
    """The predictor of a device and runtime, which the memo keeps with all it has priced."""
    key = (id(hardware), id(runtime), peak)
    known = memo.predictors.get(key)
    if not isinstance(known, Predictor):
        if len(memo.predictors) >= MOST_PREDICTORS:
            memo.predictors.clear()
        known = memo.predictors[key] = Predictor(hardware, runtime, peak)
    return known


def _check_text(value: object, argument: str, meant: str) -> None:
    """Raise UsageError for anything but text or None."""
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{argument} {value!r:.200}: {meant} is meant")


def _check_count(value: object, argument: str) -> None:
    """Raise UsageError for anything but an integer from 1 on."""
    is_number = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if not is_number or index(value) < 1:  # type: ignore[arg-type]
        raise UsageError(f"{argument} {value!r:.200}: a whole number from 1 on is meant")


def profile_of(hardware: object) -> HardwareProfile:
    """The profile by name, path, or itself.

    Raises:
        UsageError: It is none of these.
        ProfileError: The profile is unknown or invalid.
    """
    if isinstance(hardware, HardwareProfile):
        return hardware
    if isinstance(hardware, os.PathLike):
        return load_profile(Path(hardware))
    if isinstance(hardware, str):
        return load_profile(hardware)
    raise UsageError(
        f"hardware {hardware!r:.200}: the name of a profile, the path of a YAML file or a"
        " HardwareProfile is meant"
    )


def default_runtime(profiles: Sequence[HardwareProfile]) -> str:
    """The first profile's default runtime, else ONNX Runtime's fusions."""
    return profiles[0].runtime if profiles else "onnxruntime"


def _profiles(
    hardware: Hardware | Iterable[Hardware] | None, threads: int | None
) -> tuple[HardwareProfile, ...]:
    """The devices, with the number of threads asked for, no two under one name."""
    loaded = [profile_of(item) for item in _several(hardware)]
    if threads is not None:
        _check_count(threads, "threads")
        loaded = [item if item.threads is None else item.for_threads(threads) for item in loaded]
    return told_apart(loaded) if len(loaded) > 1 else tuple(loaded)


def _without_threads(profiles: Sequence[HardwareProfile], threads: int | None) -> list[str]:
    """Which devices have no threads, where a number of them was asked for."""
    return [
        f"{profile.name} has no threads: the number asked for changes nothing there"
        for profile in profiles
        if threads is not None and profile.threads is None
    ]


def _several(hardware: object) -> Iterable[object]:
    """What is listed, or the one thing given."""
    if hardware is None:
        return ()
    is_one = isinstance(hardware, str | bytes | os.PathLike | HardwareProfile)
    return hardware if isinstance(hardware, Iterable) and not is_one else (hardware,)
