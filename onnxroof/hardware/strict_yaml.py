"""A strict subset of YAML, read from text nobody vouches for.

Refused, each with its line: duplicate keys, aliases (so nothing can expand), tags, more than one
document, deep nesting, too many values. Read as text rather than guessed at: exponents, octal,
sexagesimal and hexadecimal numbers, yes/no, dates; only `true`, `false`, `null` and plain
decimals have a type. The tree is built from parser events, without recursion deeper than
`MAX_DEPTH`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Union

import yaml

from onnxroof.errors import ProfileProblem
from onnxroof.hardware.messages import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Value: TypeAlias = Union[str, int, float, bool, "list[Value]", "dict[str, Value]", None]

MAX_BYTES = 1 << 20
MAX_DEPTH = 12
MAX_VALUES = 5_000

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30})")
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its top mapping, the line of each dotted path, and what is wrong.

    `root` is None when the text could not be read as a mapping at all.
    """

    root: dict[str, Value] | None
    lines: Mapping[str, int]
    problems: tuple[ProfileProblem, ...]


class _RefusedError(Exception):
    """Reading stops here."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.problem = ProfileProblem(path, message)


def parse(data: bytes, loader: type | None = None, *, what: str = "hardware profile") -> Document:
    """Read one document.

    Args:
        data: The bytes of the file.
        loader: The PyYAML loader class whose parser to use; the C one where it is built in,
            otherwise the one in Python.
        what: What the file should be, for messages.

    Returns:
        The document; problems are collected, not raised.
    """
    if len(data) > MAX_BYTES:
        return _failed(f"larger than {MAX_BYTES >> 20} MiB: not a {what}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _failed(f"not UTF-8 text (byte {error.start}): not a YAML file")
    builder = _Builder(what)
    try:
        root = builder.document(iter(yaml.parse(text, Loader=loader or _default_loader())))
    except _RefusedError as refused:
        return Document(None, builder.lines, (*builder.problems, refused.problem))
    except yaml.YAMLError as error:
        problem = ProfileProblem("", _syntax_message(error))
        return Document(None, builder.lines, (*builder.problems, problem))
    return Document(root, builder.lines, tuple(builder.problems))


def _failed(message: str) -> Document:
    return Document(None, {}, (ProfileProblem("", message),))


def _default_loader() -> type:
    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _syntax_message(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    return f"not valid YAML: {reason}{where}"


class _Builder:
    """Turns parser events into plain dictionaries, lists and scalars."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.lines: dict[str, int] = {}
        self.problems: list[ProfileProblem] = []
        self._values = 0

    def document(self, events: Iterator[yaml.Event]) -> dict[str, Value]:
        root: dict[str, Value] | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _RefusedError("", f"more than one document; a file holds one {self.what}")
                root = self._root(next(events), events)
        if root is None:
            raise _RefusedError("", "the file is empty")
        return root

    def _root(self, event: yaml.Event, events: Iterator[yaml.Event]) -> dict[str, Value]:
        value = self._value(event, events, ())
        if isinstance(value, dict):
            return value
        if value is None:
            raise _RefusedError("", "the file is empty")
        kind = "a list" if isinstance(value, list) else "plain text"
        raise _RefusedError(
            "", f"a {self.what} is a mapping of keys to values, this file holds {kind}"
        )

    def _value(
        self, event: yaml.Event, events: Iterator[yaml.Event], path: tuple[str, ...]
    ) -> Value:
        where = _dotted(path)
        line = _line(event)
        self.lines.setdefault(where, line)
        self._check(event, path, where, line)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Value] = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._value(item, events, (*path, str(len(items)))))
            return items
        return self._mapping(events, path)

    def _check(self, event: yaml.Event, path: tuple[str, ...], where: str, line: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _RefusedError("", f"more than {MAX_VALUES} values: not a {self.what}")
        if isinstance(event, yaml.AliasEvent):
            message = f"aliases (*{printable(event.anchor or '')}) are refused; write the value out"
            raise _RefusedError(where, f"{message} (line {line})")
        if len(path) > MAX_DEPTH:
            raise _RefusedError(
                _dotted(path[:3]) + "…", f"nested deeper than {MAX_DEPTH} levels (line {line})"
            )
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            raise _RefusedError(where, f"tags ({printable(tag)}) are refused (line {line})")

    def _mapping(self, events: Iterator[yaml.Event], path: tuple[str, ...]) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            line = _line(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise _RefusedError(_dotted(path), f"keys are plain words (line {line})")
            inner = (*path, key.value)
            value = self._value(next(events), events, inner)
            if key.value in mapping:
                where = _dotted(inner)
                message = f"the key stands twice (lines {self.lines[where]} and {line})"
                self.problems.append(ProfileProblem(where, message))
                continue
            mapping[key.value] = value
        return mapping


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark is not None else 0


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(map(printable, path))


def _scalar(event: yaml.ScalarEvent) -> Value:
    """The value of a scalar: only plain (unquoted) text can be more than text."""
    text: str = event.value
    if event.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text
