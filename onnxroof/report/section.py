"""A section of a report: a title, sentences and a table, for the text and markdown renderers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """Everything as printable text.

    Attributes:
        title: What it is about.
        lines: Sentences above the table.
        headers: Of the table; none for a table without headers.
        rows: Its cells. The first column is a name, which may be shortened; the last one is
            wrapped where it does not fit.
        right: Whether each column is aligned to the right.
    """

    title: str
    lines: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: tuple[bool, ...] = ()
