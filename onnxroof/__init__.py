"""What an ONNX model costs, and how long it takes on named hardware, without running it.

The public names are imported on first use, so that `import onnxroof` and the command line's
`--help` cost nothing; see `analyze` for the one call most programs need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis
    from onnxroof.api import analyze
    from onnxroof.builder import GraphBuilder
    from onnxroof.errors import (
        InvalidGraphError,
        InvalidProfileError,
        MeasurementError,
        ModelError,
        ModelUnreadableError,
        OnnxroofError,
        ProfileError,
        ShapeError,
        ShapeMismatchError,
        SizeOutOfBoundsError,
        UnboundDimensionError,
        UnknownDimensionError,
        UnknownProfileError,
        UnsupportedOperatorError,
        UsageError,
    )
    from onnxroof.hardware.profile import HardwareProfile
    from onnxroof.hardware.read import available_profiles, load_profile
    from onnxroof.plugins import register_operator
    from onnxroof.search.cost_function import CostFunction

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "CostFunction",
    "GraphBuilder",
    "HardwareProfile",
    "InvalidGraphError",
    "InvalidProfileError",
    "MeasurementError",
    "ModelError",
    "ModelUnreadableError",
    "OnnxroofError",
    "ProfileError",
    "ShapeError",
    "ShapeMismatchError",
    "SizeOutOfBoundsError",
    "UnboundDimensionError",
    "UnknownDimensionError",
    "UnknownProfileError",
    "UnsupportedOperatorError",
    "UsageError",
    "__version__",
    "analyze",
    "available_profiles",
    "load_profile",
    "register_operator",
]

_HOMES = {
    "Analysis": "onnxroof.analysis",
    "CostFunction": "onnxroof.search.cost_function",
    "GraphBuilder": "onnxroof.builder",
    "HardwareProfile": "onnxroof.hardware.profile",
    "analyze": "onnxroof.api",
    "available_profiles": "onnxroof.hardware.read",
    "load_profile": "onnxroof.hardware.read",
    "register_operator": "onnxroof.plugins",
}
"""Where a public name lives; the errors are in `onnxroof.errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "onnxroof.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
