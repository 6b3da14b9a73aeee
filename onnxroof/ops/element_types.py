"""Element types that operators name by their code in an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.graph.types import DTYPE_BY_CODE, DType
from onnxroof.ops.call import Impossible

if TYPE_CHECKING:
    from onnxroof.ops.call import OpCall


def dtype_attr(call: OpCall, name: str, default: DType | None) -> DType | None:
    """The element type an attribute names, or the default when it is absent or 0.

    The code of TensorProto.DataType; opset 1 to 5 wrote its name ("FLOAT") instead.

    Raises:
        Impossible: There is no such element type.
    """
    code = call.attributes.get(name, 0)
    if not code:
        return default
    dtype = DTYPE_BY_CODE.get(code) if isinstance(code, int) else _by_name(code)
    if dtype is None:
        raise Impossible(f"attribute {name} names no element type: {code!r:.40}")
    return dtype


def _by_name(name: object) -> DType | None:
    return DType.__members__.get(name.upper()) if isinstance(name, str) else None
