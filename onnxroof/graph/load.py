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
from onnxroof.graph.convert import MODEL_FIELDS, Converter
from onnxroof.graph.types import Model
from onnxroof.graph.wire import Message, Source, WireError

if TYPE_CHECKING:
    import onnx  # noqa: TID251 - the type of an argument

    ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto

_MEMORY_NAME = "<model in memory>"

_IR_VERSION, _PRODUCER, _PRODUCER_VERSION, _GRAPH = 1, 2, 3, 7
"""Fields of a ModelProto."""

_COPIED_BYTES = 4 << 20
"""Files up to this size are read whole, which is quicker to index than a mapped file."""

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
        return _from_bytes(bytes(source), None)
    if isinstance(source, str | os.PathLike):
        return _from_file(os.fspath(source))
    if hasattr(source, "graph") and hasattr(source, "SerializeToString"):
        return _from_bytes(_serialized(source), None)
    raise ModelUnreadableError(
        _MEMORY_NAME, f"expected a path, bytes or a ModelProto, got {type(source).__name__}"
    )


def _serialized(proto: onnx.ModelProto) -> bytes:
    from google.protobuf.message import EncodeError

    try:
        written: bytes = proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelUnreadableError(
            _MEMORY_NAME,
            f"protobuf cannot write it ({error!s:.100}): above 2 GB keep the weights in an external"
            " data file, and give the path of the model",
        ) from None
    return written


def _from_file(path: str) -> Model:
    try:
        data = _content(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelUnreadableError(path, f"cannot be read: {reason}") from None
    if isinstance(data, bytes):
        return _from_bytes(data, path)
    with data:
        return _from_bytes(data, path)


def _content(path: str) -> bytes | mmap.mmap:
    """A file's bytes, or the file mapped where it is large: most of it are weights."""
    place = Path(path)
    mode = place.stat().st_mode
    if stat.S_ISDIR(mode):
        raise ModelUnreadableError(path, "a folder, not a model; `onnxroof rank` takes folders")
    if not stat.S_ISREG(mode):  # a pipe would be waited for
        raise ModelUnreadableError(path, "not a regular file: write the model to one first")
    with place.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise ModelUnreadableError(path, "the file is empty")
        if size <= _COPIED_BYTES:
            return file.read(size)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _from_bytes(data: bytes | mmap.mmap, path: str | None) -> Model:
    where = path or _MEMORY_NAME
    head = data[:32]
    for magic, what in _LOOKS_LIKE:
        if head.startswith(magic) or (magic == _TFLITE and head[4:8] == magic):
            raise ModelUnreadableError(where, what)
    try:
        try:
            return _translated(Source(data), path, ())
        except UnicodeDecodeError:
            said = "names that are not UTF-8 text are shown with escapes"
            return _translated(Source(data, "backslashreplace"), path, (said,))
    except WireError as error:
        reason = "a text file, not an ONNX model" if _is_text(head) else str(error)
        raise ModelUnreadableError(where, reason) from None


def _is_text(head: bytes) -> bool:
    """Whether a file begins with text, as no model does; its last letter may be cut."""
    text = head.decode("utf-8", "replace")
    shown = text[:-1] if text.endswith("\ufffd") else text
    is_shown = all((c.isprintable() and c != "\ufffd") or c in "\t\n\r" for c in shown)
    return is_shown and len(shown) > 1


def _translated(source: Source, path: str | None, assumptions: tuple[str, ...]) -> Model:
    where = path or _MEMORY_NAME
    message = Message(source, 0, len(source.data), MODEL_FIELDS)
    if not message.has(_GRAPH):
        raise ModelUnreadableError(where, "not an ONNX model: it holds no graph")
    converter = Converter(source, message)
    graph = converter.main_graph()
    made = (constant for constant in graph.constants.values() if constant.origin == "Constant")
    if not (graph.nodes or graph.outputs or any(made)):
        raise InvalidGraphError(where, "the graph is empty: it has neither nodes nor outputs")
    assumptions = (*converter.assumptions, *assumptions)
    if path is not None:
        assumptions += _missing_files(Path(path).parent, converter.external_files)
    return Model(
        graph=graph,
        opsets=converter.opsets,
        ir_version=message.integer(_IR_VERSION),
        producer=f"{message.text(_PRODUCER)} {message.text(_PRODUCER_VERSION)}".strip(),
        path=path,
        file_bytes=len(source.data),
        external_files=converter.external_files,
        assumptions=assumptions,
    )


def _missing_files(folder: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    said = [
        f"external data missing; value checks skipped ({quoted(name)} is not beside the model, "
        "and nothing that is counted needs it)"
        for name in names
        if not os.path.isfile(folder / name)  # noqa: PTH113 - Path.is_file raises on long names
    ]
    return tuple(said)
