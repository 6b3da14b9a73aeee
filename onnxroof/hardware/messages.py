"""Validation errors in words for whoever edits a profile: what is wrong and what to write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.errors import ProfileProblem, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_EXPONENT = re.compile(r"[-+]?(?:\d{1,15}\.?\d{0,15}|\.\d{1,15})[eE][-+]?\d{1,2}")
_NUMBER_AND_UNIT = re.compile(r"[-+]?\.?\d[\d.,_]*\s*[^\d\s].*")

_PATTERNS = {
    "name": "lower-case letters, digits, dots, dashes and underscores only",
    "runtime": "lower-case letters, digits, dots, dashes and underscores only",
    "url": "an address is meant, beginning with http:// or https://",
    "read": "a date is meant, written as 2026-01-31",
    "memory": "name a memory level in lower-case letters, e.g. l1, l2, dram",
    "thread_variants": "a number of threads is meant as the key, e.g. 1",
    "sources": "name a source in lower-case letters, digits, dots, dashes and underscores",
}


def describe(
    kind: str,
    location: Sequence[str | int],
    value: object,
    context: Mapping[str, object],
    known_keys: Sequence[str],
) -> ProfileProblem:
    """One validation error as a problem a person can act on.

    Args:
        kind: The error type of pydantic, e.g. "extra_forbidden".
        location: Keys and indices that lead to the value; "[key]" means the last key itself.
        value: What stands there.
        context: Limits and alternatives that belong to the error type.
        known_keys: Every key a profile can hold.
    """
    is_key = bool(location) and location[-1] == "[key]"
    keys = [str(part) for part in (location[:-1] if is_key else location)]
    error = _Error(kind, keys, value, context, known_keys, is_key)
    wording = _WORDING.get(kind, _unforeseen)
    return ProfileProblem(".".join(printable(key) for key in keys), wording(error))


def printable(key: str) -> str:
    """A key from a file without control characters, cut to a sane length."""
    return quoted(key[:80])[1:-1]


def near_match(name: str, known: Sequence[str]) -> str:
    """A "did you mean" for a misspelt name, or nothing."""
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


@dataclass(frozen=True, slots=True)
class _Error:
    """One validation error: its type, where it is, what stands there, what was expected."""

    kind: str
    keys: Sequence[str]
    value: object
    context: Mapping[str, object]
    known_keys: Sequence[str]
    is_key: bool

    @property
    def last(self) -> str:
        return self.keys[-1] if self.keys else ""

    @property
    def parent(self) -> str:
        return self.keys[-2] if len(self.keys) > 1 else ""


def _unforeseen(error: _Error) -> str:
    return f"not valid here ({error.kind})"


def _unknown_key(error: _Error) -> str:
    return "unknown key" + near_match(error.last, error.known_keys)


def _bad_pattern(error: _Error) -> str:
    about = error.parent if error.is_key else error.last
    return _PATTERNS.get(about, f"does not match {error.context.get('pattern')}")


def _not_a_number(error: _Error) -> str:
    value, whole = error.value, error.kind == "int_type"
    if isinstance(value, bool):
        return f"a number is meant, not {str(value).lower()}"
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        plain = f"{float(value):.15f}".rstrip("0").rstrip(".")
        return f"write plain decimals in the unit of the key, no exponent: {value} is {plain}"
    if isinstance(value, str) and _NUMBER_AND_UNIT.fullmatch(value):
        return f"a plain number is meant, not {quoted(value)}: the unit stands in the key"
    if isinstance(value, str):
        return f"a plain decimal number is meant, not {quoted(value)}"
    if isinstance(value, float) and whole:
        return f"a whole number is meant, not {value}"
    return f"a number is meant, not {_kind_of(value)}"


def _not_text(error: _Error) -> str:
    value = error.value
    if isinstance(value, (bool, int, float)):
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return f'text is meant; put quotes around it: "{shown}"'
    return f"text is meant, not {_kind_of(value)}"


def _kind_of(value: object) -> str:
    if value is None:
        return "an empty value"
    return "a list" if isinstance(value, list) else "a mapping"


def _out_of_range(error: _Error) -> str:
    value, context = error.value, error.context
    if "gt" in context:
        return f"must be above {context['gt']}, is {value}"
    if "ge" in context:
        return f"must be at least {context['ge']}, is {value}"
    return f"must be at most {context.get('le')}, is {value}"


def _not_an_alternative(error: _Error) -> str:
    expected = str(error.context.get("expected", "")).replace("'", "")
    if not error.is_key:
        return f"must be {expected}"
    return f"not a type of {error.parent}, which takes {expected}{_other_table(error)}"


def _other_table(error: _Error) -> str:
    """Where a type belongs that was put into the table of the other unit."""
    stem, _, unit = error.parent.rpartition("_")
    if unit == "tflops" and error.last.startswith("int"):
        return f"; put it under {stem}_tops"
    if unit == "tops" and error.last.startswith(("fp", "bf", "tf")):
        return f"; put it under {stem}_tflops"
    return ""


_WORDING: dict[str, Callable[[_Error], str]] = {
    "missing": lambda _: "required key is missing",
    "extra_forbidden": _unknown_key,
    "float_type": _not_a_number,
    "int_type": _not_a_number,
    "greater_than": _out_of_range,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "literal_error": _not_an_alternative,
    "string_type": _not_text,
    "string_pattern_mismatch": _bad_pattern,
    "dict_type": lambda _: "a mapping (key: value) is meant",
    "model_type": lambda _: "a mapping (key: value) is meant",
    "list_type": lambda _: "a list is meant",
    "too_short": lambda _: "must not be empty",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda _: "the text is too long",
    "finite_number": lambda _: "must be finite",
}
