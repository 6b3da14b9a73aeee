"""Operators: shape, value and cost rules side by side, one family a file.

`load_rules` imports every family once and returns the filled registry; look-ups go through it.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxroof.ops.registry import Registry

FAMILIES = (
    "convolution",
    "transposed_convolution",
    "causal_convolution",
    "nchwc",
    "matmul",
    "quantized_matmul",
    "packed_projections",
    "einsum",
    "mixture_of_experts",
    "attention",
    "position",
    "attention_contrib",
    "attention_grouped",
    "attention_packed",
    "attention_sparse",
    "linear_attention",
    "normalization",
    "contrib_normalization",
    "elementwise",
    "elementwise_values",
    "activation",
    "reduction",
    "pooling",
    "resize",
    "movement",
    "slicing",
    "indexing",
    "selection",
    "views",
    "quantization",
    "recurrent",
    "control_flow",
    "sequence",
    "strings",
    "generation",
    "signal",
    "generators",
    "classical_ml",
    "trees",
    "training",
    "contrib",
    "value_ranges",
)


@cache
def load_rules() -> Registry:
    """The registry with every built-in operator in it."""
    for family in FAMILIES:
        if find_spec(f"onnxroof.ops.{family}") is None:
            continue
        importlib.import_module(f"onnxroof.ops.{family}")
    from onnxroof.ops.registry import default_registry

    return default_registry


@cache
def load_plugins() -> tuple[str, ...]:
    """Import what installed packages offer in the entry-point group `onnxroof.operators`.

    Each entry point names a function without arguments that calls `register_operator`. Looked up
    once, and only when a model has an operator that nobody knows, since the search is slow.

    Raises:
        UsageError: A plug-in cannot be imported.
    """
    from importlib.metadata import entry_points

    from onnxroof.errors import UsageError, quoted

    found = entry_points(group="onnxroof.operators")
    for entry_point in found:
        try:
            register = entry_point.load()
        except (ImportError, AttributeError) as error:
            name = quoted(entry_point.name)
            raise UsageError(
                f"plug-in {name} ({entry_point.value}) cannot be loaded: {error}; "
                "repair or uninstall the package that offers it"
            ) from error
        register()
    return tuple(entry_point.name for entry_point in found)
