"""A PyTorch module → the ONNX graph it exports to, without its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.errors import UsageError

if TYPE_CHECKING:
    import onnx  # noqa: TID251 - the type of a result
    import torch

KEPT_ELEMENTS = 256
"""Tensors of up to so many elements keep their values, which may steer shapes."""


def export(module: torch.nn.Module, example: object) -> onnx.ModelProto:
    """The graph of a module, to price or to save.

    Weights are neither copied nor written: the graph refers to a file that does not exist. So a
    module on the device "meta", which has no weights at all, is exported as well as any other.

    Args:
        module: In the mode to export (`module.eval()`); it is not changed.
        example: Its argument, or a tuple of arguments; only shapes and types matter.

    Raises:
        UsageError: PyTorch and its exporter (the extra `onnxroof[torch]`) are not installed, or
            the module cannot be exported.
    """
    try:
        import onnx_ir
        import torch
    except ImportError as error:
        raise UsageError(f"pricing a PyTorch module needs onnxroof[torch]: {error}") from error
    arguments = example if isinstance(example, tuple) else (example,)
    first = next(module.parameters(), None)
    if first is not None:
        arguments = tuple(
            [
                item.to(first.device) if isinstance(item, torch.Tensor) else item
                for item in arguments
            ]
        )
    try:
        program = torch.onnx.export(module, arguments, dynamo=True, verbose=False, optimize=False)
    except (torch.onnx.errors.OnnxExporterError, ImportError) as error:
        raise UsageError(f"PyTorch cannot export the module: {error}") from error
    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        raw = getattr(tensor, "raw", None)
        has_values = getattr(getattr(raw, "device", None), "type", "") != "meta"
        if tensor.size > KEPT_ELEMENTS or not has_values:
            value.const_value = onnx_ir.ExternalTensor(
                "weights.bin", None, None, tensor.dtype, shape=tensor.shape, name=name
            )
    proto: onnx.ModelProto = onnx_ir.serde.serialize_model(program.model)
    return proto
