"""First stage: an ONNX file, bytes or ModelProto → `Model`.

Weight payloads never enter (see `wire`); external data files are never opened. What files in the
wild do wrong and a reader can repair is repaired and said in `Model.assumptions`: nodes out of
order, initializers listed as inputs. What cannot be repaired is an error that names the culprit.
Model-local functions are expanded by `onnxroof.graph.convert`, which does the translation.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, ModelUnreadableError, quoted
from onnxroof.graph.text import NotTextError, with_text
from onnxroof.graph.types import Model
from onnxroof.graph.wire import WireError, skeleton

if TYPE_CHECKING:
    import onnx

    from onnxroof.graph.types import Payload

    ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto

_MEMORY_NAME = "<model in memory>"

_TFLITE = b"TFL3"
"""Stands four bytes into the file."""

_LOOKS_LIKE = (
    (b"version https://git-lfs", "a Git LFS pointer, not the model itself: fetch it with git lfs"),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?), not an ONNX model"),
    (b"\x1f\x8b", "gzip-compressed: unpack it first"),
    (b"\x89HDF", "an HDF5 file, not an ONNX model"),
    (b"\x89PNG", "a PNG picture, not an ONNX model"),
    (b"\xff\xd8\xff", "a JPEG picture, not an ONNX model"),
    (b"%PDF", "a PDF document, not an ONNX model"),
    (b"<?xml", "an XML file (OpenVINO?), not an ONNX model"),
    (b"{", "a JSON or text file, not an ONNX model"),
    (b"GGUF", "a GGUF file, not an ONNX model"),
    (_TFLITE, "a TensorFlow Lite model, not an ONNX model"),
)


def load_model(source: ModelSource) -> Model:
    """Read a model without its weights.

    Args:
        source: Path of the file, its bytes, or a ModelProto (which is not modified).

    Raises:
        ModelUnreadableError: The file cannot be read or is not an ONNX model.
        InvalidGraphError: The graph is cyclic, uses an undefined tensor or a domain that is not
            imported, or names an external file outside the model's folder.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _from_buffer(_as_bytes(source), None)
    if isinstance(source, str | os.PathLike):
        return _from_file(os.fspath(source))
    if hasattr(source, "graph") and hasattr(source, "ByteSize"):
        return _translate(source, (), None, source.ByteSize())
    raise ModelUnreadableError(
        _MEMORY_NAME, f"expected a path, bytes or a ModelProto, got {type(source).__name__}"
    )


def _as_bytes(source: bytes | bytearray | memoryview) -> memoryview:
    """The buffer byte by byte, whatever it holds."""
    view = memoryview(source)
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


def _from_file(path: str) -> Model:
    with _mapped(path) as mapped, memoryview(mapped) as view:
        return _from_buffer(view, path)


def _mapped(path: str) -> mmap.mmap:
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe would be waited for
            raise ModelUnreadableError(path, "not a regular file: write the model to one first")
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelUnreadableError(path, f"cannot be read: {reason}") from None
    raise ModelUnreadableError(path, "the file is empty")


def _from_buffer(buffer: memoryview, path: str | None) -> Model:
    import onnx
    from google.protobuf.message import DecodeError

    where = path or _MEMORY_NAME
    head = bytes(buffer[:32])
    for magic, what in _LOOKS_LIKE:
        if head.startswith(magic) or (magic == _TFLITE and head[4:8] == magic):
            raise ModelUnreadableError(where, what)
    try:
        stripped, payloads = skeleton(buffer)
        proto = onnx.ModelProto.FromString(stripped)
    except WireError as error:
        raise ModelUnreadableError(where, str(error)) from None
    except (DecodeError, UnicodeDecodeError):
        raise ModelUnreadableError(where, "not an ONNX model: protobuf cannot parse it") from None
    return _translate(proto, payloads, path, len(buffer), stripped)


def _translate(
    proto: onnx.ModelProto,
    payloads: tuple[Payload, ...],
    path: str | None,
    file_bytes: int,
    encoded: bytes = b"",
) -> Model:
    from onnxroof.graph.convert import SCOPES_KEY, Converter

    where = path or _MEMORY_NAME
    if not proto.HasField("graph"):
        raise ModelUnreadableError(where, "not an ONNX model: it holds no graph")
    if not proto.graph.node and not proto.graph.output:
        raise InvalidGraphError(where, "the graph is empty: it has neither nodes nor outputs")
    records_scopes = not encoded or SCOPES_KEY.encode() in encoded
    converter = Converter(proto, payloads, records_scopes=records_scopes)
    try:
        graph = converter.main_graph()
    except (NotTextError, TypeError, AttributeError):
        repaired = with_text(proto)
        if repaired is None:
            raise
        converter = Converter(repaired, payloads)
        graph = converter.main_graph()
        converter.assumptions.append("names that are not UTF-8 text are shown with escapes")
    assumptions = converter.assumptions
    if path is not None:
        assumptions = assumptions + _missing_files(Path(path).parent, converter.external_files)
    return Model(
        graph=graph,
        opsets=converter.opsets,
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        path=path,
        file_bytes=file_bytes,
        external_files=converter.external_files,
        assumptions=tuple(assumptions),
    )


def _missing_files(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [
        f"external data missing; value checks skipped ({quoted(name)} is not beside the model, "
        "and nothing that is counted needs it)"
        for name in names
        if not os.path.isfile(folder / name)  # noqa: PTH113 - Path.is_file raises on long names
    ]
