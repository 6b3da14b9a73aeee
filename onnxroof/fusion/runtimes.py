"""The fusion sets: which rules each runtime has. Data only; docs/fusion.md tells where from."""

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
        what: One line for the help text.
        rules: Names of its rules; an earlier rule takes its nodes before a later one.
        folds: Equal nodes run once, QDQ pairs become integer kernels, transposes cancel: the
            clean-ups it has besides dead code and constants.
        contiguous_views: A contiguous part of a buffer (Slice, Split) is passed on as a view.
        strided_views: Readers that accept strides take a Transpose, Slice or Expand as a view.
        copies_unit_transposes: A Transpose that moves only axes of size 1 is copied all the same.
        im2col: Convolutions larger than 1×1 unroll their input into a workspace.
        concat_in_place: Producers write their part of a Concat's result directly.
    """

    name: str
    what: str
    rules: tuple[str, ...]
    folds: frozenset[str] = frozenset()
    contiguous_views: bool = False
    strided_views: bool = False
    concat_in_place: bool = False
    copies_unit_transposes: bool = False
    im2col: bool = False


CSE, QDQ, TRANSPOSES = "common-subexpressions", "qdq", "transpose-pairs"

_DECOMPOSED = (
    "gelu-erf", "gelu-tanh", "gelu-sigmoid", "swish", "hard-swish", "mish", "softmax",
    "layer-normalization", "rms-normalization", "l2-normalization",
)  # fmt: skip

_ALL = (
    Runtime(
        name="none",
        what="an eager framework: one kernel a node, slices and transposes as strided views",
        rules=(),
        strided_views=True,
    ),
    Runtime(
        name="eager",
        what="an eager framework module by module: what exporters took apart is one kernel again",
        rules=(*_DECOMPOSED, "flash-attention", "matmul-bias"),
        contiguous_views=True,
        strided_views=True,
    ),
    Runtime(
        name="basic",
        what="what every compiler does: folding, activations, elementwise chains",
        rules=("convolution-activation", "matmul-activation", "elementwise"),
        folds=frozenset({CSE}),
    ),
    Runtime(
        name="onnxruntime",
        what="ONNX Runtime's CPU provider at its extended level",
        rules=(
            "weight-only-matmul", "parts-to-split", "gelu-erf", "gelu-tanh", "gelu-sigmoid",
            "swish", "layer-normalization", "rms-normalization", "skip-layer-normalization",
            "convolution-activation", "matmul-scale", "matmul-bias", "gemm-activation",
            "bias-gelu", "weight-only-bias", "transpose-chain", "pad-pool",
        ),
        folds=frozenset({CSE, QDQ, TRANSPOSES}),
        copies_unit_transposes=True,
        im2col=True,
    ),
    Runtime(
        name="tensorrt",
        what="NVIDIA TensorRT: convolution and product epilogues, fused attention, point-wise "
        "kernels, concatenation in place",
        rules=(
            "weight-only-matmul-4-bit",
            *_DECOMPOSED, "flash-attention", "rotary-embedding", "group-normalization",
            "convolution-residual-activation", "matmul-bias-residual-activation",
            "residual-normalization", "transpose-chain", "pad-pool",
            "elementwise-broadcast",
        ),
        folds=frozenset({CSE, QDQ, TRANSPOSES}),
        contiguous_views=True,
        concat_in_place=True,
    ),
    Runtime(
        name="torch-compile",
        what="PyTorch Inductor: library products and convolutions, generated kernels for the rest",
        rules=(
            *_DECOMPOSED, "flash-attention", "rotary-embedding", "group-normalization",
            "elementwise-reduction", "library-bias",
        ),
        folds=frozenset({CSE}),
        contiguous_views=True,
        strided_views=True,
        concat_in_place=True,
    ),
    Runtime(
        name="tflite",
        what="TensorFlow Lite: activations inside convolutions, products and additions",
        rules=(
            "gelu-erf", "gelu-tanh", "hard-swish", "softmax", "l2-normalization",
            "convolution-lite-activation", "matmul-lite-activation", "add-activation",
            "transpose-chain", "pad-pool",
        ),
        folds=frozenset({CSE, QDQ, TRANSPOSES}),
    ),
)  # fmt: skip

RUNTIMES: Mapping[str, Runtime] = {runtime.name: runtime for runtime in _ALL}
"""Every fusion set by name."""


EVERYTHING = Runtime(
    name="everything",
    what="every rule there is, to tell what a runtime leaves out",
    rules=(
        "weight-only-matmul", *_DECOMPOSED, "flash-attention", "squeeze-excite", "rotary-embedding",
        "group-normalization", "convolution-residual-activation",
        "matmul-bias-residual-activation", "residual-normalization",
        "transpose-chain", "pad-pool", "elementwise-reduction",
    ),
    folds=frozenset({CSE, QDQ, TRANSPOSES}),
)  # fmt: skip
"""Not a runtime; the widest grouping, which `explain_fusion` compares with."""


def find_runtime(name: str) -> Runtime:
    """The fusion set of this name. Raises UsageError, listing the names, for an unknown one."""
    runtime = RUNTIMES.get(name)
    if runtime is None:
        raise UsageError(f"runtime {name!r} is not one of {', '.join(RUNTIMES)}")
    return runtime
