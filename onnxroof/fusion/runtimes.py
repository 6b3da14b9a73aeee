"""The fusion sets: which rules each runtime has. Data only; see docs/fusion.md for sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Runtime:
    """A named list of rules.

    Attributes:
        name: How `--runtime` and profiles call it.
        rules: Names of its rules, first match wins.
        what: One line for the help text.
    """

    name: str
    rules: tuple[str, ...]
    what: str


_ALL = (
    Runtime("none", (), "an eager framework: one kernel a node"),
    Runtime("basic", ("convolution", "matmul", "elementwise"), "what every compiler does"),
    Runtime("onnxruntime", ("convolution", "matmul", "elementwise"), "ONNX Runtime"),
    Runtime("tensorrt", ("convolution", "matmul", "elementwise"), "NVIDIA TensorRT"),
    Runtime("torch-compile", ("convolution", "matmul", "elementwise"), "PyTorch Inductor"),
    Runtime("tflite", ("convolution", "matmul", "elementwise"), "TensorFlow Lite"),
)

RUNTIMES: Mapping[str, Runtime] = {runtime.name: runtime for runtime in _ALL}


def find_runtime(name: str) -> Runtime:
    """The fusion set of this name. Raises UsageError, listing the names, for an unknown one."""
    runtime = RUNTIMES.get(name)
    if runtime is None:
        raise UsageError(f"runtime {name!r} is not one of {', '.join(RUNTIMES)}")
    return runtime
