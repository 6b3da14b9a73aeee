"""The form of a profile file, as pydantic models: every key, its type, its unit.

Only this module imports pydantic, and `onnxroof.hardware.read` imports this module only when a
file has to be checked, since pydantic costs more start-up than everything else here together.
`onnxroof.hardware.generate` writes the JSON Schema that gives editors completion.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onnxroof.hardware.messages import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxroof.errors import ProfileProblem

FloatType = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]
IntegerType = Literal["int64", "int32", "int16", "int8", "int4"]

LatencyConstant = Literal[
    "product_share", "convolution_share", "winograd_share", "depthwise_slots",
    "depthwise_index_slots", "exposed", "elementwise_share", "batch_normalization_share",
    "normalization_share", "softmax_share", "reduction_share", "copy_share", "parallel_loss",
]  # fmt: skip
"""Constants of the latency model that a profile may set for its device; see docs/latency.md."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Multiple = Annotated[int, Field(ge=1, le=4096)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
LevelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
ThreadCount = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Engine(_Strict):
    """One engine and its peaks, dense, a fused multiply-add counted as two operations."""

    name: Text = Field(description="What the engine is called on this device.")
    peak_tflops: dict[FloatType, Positive] = Field(
        default={}, description="Vendor's peak by floating-point type, 10^12 FLOP/s."
    )
    peak_tops: dict[IntegerType, Positive] = Field(
        default={}, description="Vendor's peak by integer type, 10^12 operations/s."
    )
    sustained_tflops: dict[FloatType, Positive] = Field(
        default={}, description="Measured peak by floating-point type, 10^12 FLOP/s."
    )
    sustained_tops: dict[IntegerType, Positive] = Field(
        default={}, description="Measured peak by integer type, 10^12 operations/s."
    )
    channel_multiple: dict[FloatType | IntegerType, Multiple] = Field(
        default={}, description="Channels taken at once, by type; others are padded up to it."
    )


class MemoryLevel(_Strict):
    """One level of memory; the key above it is its name."""

    capacity_kb: Positive | None = Field(None, description="Size of one instance, 10^3 bytes.")
    capacity_kib: Positive | None = Field(None, description="Size of one instance, 2^10 bytes.")
    capacity_mb: Positive | None = Field(None, description="Size of one instance, 10^6 bytes.")
    capacity_mib: Positive | None = Field(None, description="Size of one instance, 2^20 bytes.")
    capacity_gb: Positive | None = Field(None, description="Size of one instance, 10^9 bytes.")
    capacity_gib: Positive | None = Field(None, description="Size of one instance, 2^30 bytes.")
    instances: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="How many there are, e.g. one cache per core."
    )
    bandwidth_gb_per_s: Positive | None = Field(
        None, description="Vendor's bandwidth of all instances together, 10^9 bytes/s."
    )
    sustained_bandwidth_gb_per_s: Positive | None = Field(
        None, description="Measured bandwidth of all instances together, 10^9 bytes/s."
    )


class ThreadVariant(_Strict):
    """Figures for another number of threads; what is left out is as in the file's main part."""

    matrix_engine: Engine | None = None
    vector_engine: Engine
    special_function_gops: Positive | None = None
    bandwidth_gb_per_s: Positive | None = Field(None, description="Of main memory.")
    sustained_bandwidth_gb_per_s: Positive | None = Field(None, description="Of main memory.")
    kernel_overhead_us: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    cores: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class Source(_Strict):
    """Where figures come from. Needs `url` or `where`, or both."""

    title: Text = Field(description="Title of the document, data set or measurement.")
    basis: Literal["datasheet", "measurement", "publication", "derived", "assumption"]
    url: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=2000)] | None = None
    where: Text | None = Field(None, description="Page, table, file, conditions, arithmetic.")
    read: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None = Field(
        None, description="The day somebody looked, as 2026-01-31."
    )
    covers: Annotated[list[Text], Field(min_length=1)] = Field(
        description="Dotted paths of the keys this stands for; memory covers everything below."
    )


class Profile(_Strict):
    """A hardware profile."""

    schema_version: Literal[1]
    name: Name = Field(description="What --hw takes; the file is called the same.")
    title: Text = Field(description="The device in full.")
    vendor: Text
    kind: Literal["cpu", "gpu", "npu", "mcu"]
    runtime: Name = Field(description="The runtime whose fusions are assumed by default.")
    threads: Annotated[int, Field(ge=1, le=99_999)] | None = Field(
        None, description="Threads the figures below hold for; the default of --threads."
    )
    cores: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Multiprocessors of a GPU; cores that the threads use."
    )
    vector_bits: Annotated[int, Field(ge=32, le=65_536)] | None = Field(
        None, description="Width of a vector register, e.g. 512 for AVX-512."
    )
    core_bandwidth_gb_per_s: Positive | None = Field(
        None, description="Most that one core draws from main memory, 10^9 bytes/s."
    )
    host_factor: Positive | None = Field(
        None, description="Framework time on this device's host over that of a reference host."
    )
    latency_constants: dict[LatencyConstant, Positive] = Field(
        default={},
        description="Constants of the latency model for this device, fitted on measurements of it"
        " (onnxroof hw fit); others are those of its kind.",
    )
    winograd_channels: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1, description="Least input channels for which there is a Winograd kernel."
    )
    matrix_engine: Engine | None = Field(
        None, description="Runs matrix products only: tensor cores, AMX, dot products."
    )
    vector_engine: Engine = Field(description="Runs everything else.")
    special_function_gops: Positive | None = Field(
        None, description="exp, log, tanh … evaluations, 10^9 per second."
    )
    kernel_overhead_us: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        description="Least time between two queued kernels, 10^-6 s."
    )
    denormal_penalty_ns: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None,
        description="Time a core loses on a vector instruction that meets a subnormal number,"
        " 10^-9 s; 0 where they run at full speed or are flushed; left out where not known.",
    )
    memory: Annotated[dict[LevelName, MemoryLevel], Field(min_length=1)] = Field(
        description="Levels from the nearest to main memory, which is the last."
    )
    thread_variants: dict[ThreadCount, ThreadVariant] = {}
    notes: list[Text] = []
    sources: Annotated[dict[Name, Source], Field(min_length=1)]


def schema_problems(root: Mapping[str, object]) -> tuple[ProfileProblem, ...]:
    """Everything in which a document departs from the form above."""
    return form_problems(Profile, root, known_keys)


def form_problems(
    form: type[BaseModel], root: Mapping[str, object], keys: Callable[[], tuple[str, ...]]
) -> tuple[ProfileProblem, ...]:
    """Everything in which a document departs from a form, whose `keys` serve near matches."""
    try:
        form.model_validate(root)
    except ValidationError as error:
        return tuple(
            describe(e["type"], e["loc"], e["input"], e.get("ctx", {}), keys())
            for e in error.errors(include_url=False)
        )
    return ()


def known_keys() -> tuple[str, ...]:
    """Every key a profile file can hold, for near matches."""
    models = (Profile, Engine, MemoryLevel, ThreadVariant, Source)
    return tuple(dict.fromkeys(key for model in models for key in model.model_fields))


def json_schema() -> str:
    """The JSON Schema of a profile file, as text."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Profile.model_json_schema(),
        "title": "onnxroof hardware profile",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
