"""The same model file with its nodes in another order.

Works on the protobuf wire: the node entries of the main graph change places, every other byte is
copied as it is, so weights are untouched however large, external data files stay referenced and
metadata survives. The graph message keeps its length, since only the order of its fields changes.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from onnxroof.errors import ModelUnreadableError, UsageError
from onnxroof.graph.wire import WireError, message_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnxroof.graph.types import Node

_GRAPH, _NODE = 7, 1
_INPUT, _OUTPUT, _ATTRIBUTE = 1, 2, 5
_SUBGRAPH, _SUBGRAPHS = 6, 11

Span = tuple[int, int]


def reorder_model(
    source_path: str | os.PathLike[str], out_path: str | os.PathLike[str], order: Sequence[Node]
) -> None:
    """Write the model with its nodes in the given order.

    Args:
        source_path: The model file.
        out_path: Where to write; may be the source itself. The file appears complete or not at
            all.
        order: The loaded graph's nodes in their new order. Nodes of the file that are not among
            them (constants, calls of functions) go where they are first needed.

    Raises:
        ModelUnreadableError: The source cannot be read or is not an ONNX model.
        UsageError: The model refers to external data and the target is in another folder.
    """
    source, target = Path(source_path), Path(out_path)
    try:
        with (
            source.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            view = memoryview(data)
            try:
                chunks = _reordered(view, order)
                if data.find(b"location") >= 0 and _leaves_data_behind(source, target):
                    raise UsageError(
                        f"{source}: its external data is found relative to its folder; "
                        f"write the reordered model next to it, not to {target.parent}"
                    )
                _write(target, view, chunks, source)
            finally:
                view.release()
    except WireError as error:
        raise ModelUnreadableError(str(source), str(error)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelUnreadableError(str(source), f"cannot be rewritten: {reason}") from None


def _leaves_data_behind(source: Path, target: Path) -> bool:
    """Whether the file names external data and the target lies in another folder."""
    from onnxroof.graph.load import load_model

    if source.resolve().parent == target.resolve().parent:
        return False
    return bool(load_model(source).external_files)


def _write(target: Path, view: memoryview, chunks: Iterable[Span], source: Path) -> None:
    """Write next to the target, then put in place, so that nothing is half-written."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".onnxroof-")
    try:
        with os.fdopen(handle, "wb") as file:
            for begin, end in chunks:
                file.write(view[begin:end])
        shutil.copymode(source, name)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _reordered(view: memoryview, order: Sequence[Node]) -> list[Span]:
    """Spans of the file in their new order."""
    chunks: list[Span] = []
    kept_from = 0
    for number, start, begin, end in message_fields(view, 0, len(view)):
        if number == _GRAPH:
            chunks.append((kept_from, begin))
            chunks.extend(_reordered_graph(view, (begin, end), order))
            kept_from = end
        del start
    chunks.append((kept_from, len(view)))
    return chunks


def _reordered_graph(view: memoryview, graph: Span, order: Sequence[Node]) -> list[Span]:
    """Node entries in the new order, then everything else of the graph as it stood."""
    nodes: list[Span] = []
    contents: list[Span] = []
    others: list[Span] = []
    for number, start, begin, end in message_fields(view, *graph):
        if number == _NODE:
            nodes.append((start, end))
            contents.append((begin, end))
        elif others and others[-1][1] == start:
            others[-1] = (others[-1][0], end)
        else:
            others.append((start, end))
    edges = [_edges(view, span) for span in contents]
    return [*(nodes[at] for at in _file_order(edges, order)), *others]


def _edges(view: memoryview, node: Span) -> tuple[set[str], list[str]]:
    """(tensors the node or its bodies may read, tensors it makes)."""
    reads: set[str] = set()
    makes: list[str] = []
    for number, _, begin, end in message_fields(view, *node):
        if number == _INPUT:
            reads.add(_text(view, begin, end))
        elif number == _OUTPUT:
            makes.append(_text(view, begin, end))
        elif number == _ATTRIBUTE:
            for inner, _, first, last in message_fields(view, begin, end):
                if inner in (_SUBGRAPH, _SUBGRAPHS):
                    reads |= _body_reads(view, (first, last))
    return reads, makes


def _body_reads(view: memoryview, graph: Span) -> set[str]:
    """Every name the nodes of a body read; those that are the body's own do no harm."""
    reads: set[str] = set()
    for number, _, begin, end in message_fields(view, *graph):
        if number == _NODE:
            reads |= _edges(view, (begin, end))[0]
        elif number == 12:  # an output may be a captured tensor itself
            name = next((s for f, _, *s in message_fields(view, begin, end) if f == 1), None)
            if name is not None:
                reads.add(_text(view, *name))
    return reads


def _text(view: memoryview, begin: int, end: int) -> str:
    return bytes(view[begin:end]).decode("utf-8", "surrogateescape")


def _file_order(edges: Sequence[tuple[set[str], list[str]]], order: Sequence[Node]) -> list[int]:
    """Positions of the file's nodes: as asked, each after all whose results it reads."""
    maker = {name: at for at, (_, makes) in enumerate(edges) for name in makes if name}
    wanted: list[int] = []
    for node in order:
        wanted.extend(maker[name] for name in node.outputs if name in maker)
    wanted.extend(range(len(edges)))
    placed: set[int] = set()
    entered: set[int] = set()
    result: list[int] = []
    for first in wanted:
        stack = [first]
        while stack:
            at = stack[-1]
            missing = [] if at in entered else _makers(edges[at][0], maker)
            entered.add(at)
            missing = [other for other in missing if other not in entered]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if at not in placed:
                placed.add(at)
                result.append(at)
    return result


def _makers(reads: set[str], maker: dict[str, int]) -> list[int]:
    """Nodes that make what is read, the first in the file last."""
    return sorted({maker[name] for name in reads if name in maker}, reverse=True)
