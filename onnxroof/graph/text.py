"""Texts of a file that are not UTF-8, as older exporters write them: made readable, not refused.

Protobuf hands such a text over as bytes. They are looked for only when a name turns out to be
bytes, so files that are in order, almost all, pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx
    from google.protobuf.message import Message

    from onnxroof.graph.types import Node


class NotTextError(Exception):
    """A name is bytes; `with_text` repairs the message."""


def check_names(nodes: Sequence[Node], *names: Iterable[str]) -> None:
    """Raise NotTextError where a name, operator or domain is bytes; costs no more than a join."""
    try:
        for listed in names:
            "".join(listed)
        "".join([node.name for node in nodes])
        "".join({node.op_type for node in nodes} | {node.domain for node in nodes})
    except TypeError:
        raise NotTextError from None


def with_text(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    r"""A copy with readable texts, other bytes as escapes (\xe9); None when nothing changed."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    return copy if _repair(copy) else None


def _repair(message: Message) -> bool:
    changed = False
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in [value] if hasattr(value, "ListFields") else value:
                changed |= _repair(item)
        elif isinstance(value, bytes):
            if field.type == field.TYPE_STRING:
                setattr(message, field.name, _readable(value))
                changed = True
        elif field.type == field.TYPE_STRING and not isinstance(value, str):
            for position, text in enumerate(value):
                if isinstance(text, bytes):
                    value[position] = _readable(text)
                    changed = True
    return changed


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
