"""The form of a runtime file, as pydantic models: every key, its type, its unit.

Only this module of the package imports pydantic, and only when a file has to be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from onnxroof.hardware.schema import Name, Source, Text, form_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.errors import ProfileProblem

Microseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Host(_Strict):
    """Framework time of one kernel by its class, 10^-6 s, on a reference host."""

    convolution: Microseconds = Field(description="Convolutions.")
    product: Microseconds = Field(description="Matrix products, attention, recurrence.")
    normalization: Microseconds = Field(description="Batch and layer normalization.")
    movement: Microseconds = Field(description="Transposes, concatenations and other movement.")
    other: Microseconds = Field(description="Everything else.")


class Execution(_Strict):
    """How the runtime runs on one sort of device."""

    host_us: Host
    overlaps_host: bool = Field(
        default=False, description="A kernel takes the longer of host and device time."
    )
    thread_start_us: Microseconds = Field(
        default=0.0, description="Starting and joining the threads of a parallel kernel."
    )
    winograd_tile: Literal[0, 2, 4, 6] = Field(
        default=0, description="Side of the output tile of Winograd convolution; 0: none."
    )
    has_fft: bool = Field(default=False, description="Convolution by Fourier transform.")
    lowers_convolutions: bool = Field(
        default=False, description="Writes the im2col matrix, one image at a time."
    )
    loops_over_groups: bool = Field(
        default=False, description="A grouped convolution is one product a group."
    )
    reorders_weights: bool = Field(
        default=False, description="Weights of convolutions change layout at every call."
    )
    reorders_activations: bool = Field(
        default=False, description="Activations change layout around every convolution."
    )
    times_kernels: bool = Field(
        default=False, description="Kernels are chosen by timing them, narrow tiles included."
    )
    copies_layouts: bool = Field(
        default=False, description="Convolutions on the matrix engine copy to channels-last."
    )
    pads_depthwise: bool = Field(
        default=True, description="Depthwise kernels take channels that fill no whole vector."
    )
    serial_convolution_elements: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Inputs of at most so many elements are convolved on one core."
    )


class Runtime(_Strict):
    """A runtime."""

    schema_version: Literal[1]
    name: Name = Field(description="What --runtime takes; the file is called the same.")
    title: Text = Field(description="The runtime in full, with its version.")
    fusion: Name = Field(description="The fusion set it applies.")
    cpu: Execution | None = Field(None, description="On processors.")
    accelerator: Execution | None = Field(None, description="On GPUs and the like.")
    notes: list[Text] = []
    sources: Annotated[dict[Name, Source], Field(min_length=1)]


def runtime_problems(root: Mapping[str, object]) -> tuple[ProfileProblem, ...]:
    """Everything in which a document departs from the form above."""
    return form_problems(Runtime, root, known_keys)


def known_keys() -> tuple[str, ...]:
    """Every key a runtime file can hold, for near matches."""
    models = (Runtime, Execution, Host, Source)
    return tuple(dict.fromkeys(key for model in models for key in model.model_fields))
