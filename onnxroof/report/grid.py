"""Small tables of text: aligned for terminals, piped for markdown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tabulate import tabulate

from onnxroof.units import shorten_all

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_GAP = 2
_SHORTEST_NAME = 24
_HEADER = 9
"""Characters of a line of a header, unless a word is longer."""


def fit(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    names: int,
    spare: Sequence[int],
    right: Collection[int] = (),
) -> list[str]:
    """Lines of a table no wider than a terminal, if that can be.

    Long headers are wrapped; then spare columns go, the first one first, until names need not be
    cut shorter than is legible.

    Args:
        headers: One a column.
        rows: Cells.
        width: Columns of the terminal.
        names: The column that may be shortened.
        spare: Columns that may go.
        right: Columns aligned to the right.
    """
    headers = [_wrapped(header) for header in headers]
    widths = [
        max(len(part) for cell in column for part in cell.split("\n"))
        for column in zip(headers, *rows, strict=True)
    ]
    kept, left = list(range(len(widths))), list(spare)
    while True:
        room = width - sum(widths[at] + _GAP for at in kept if at != names)
        if room >= min(widths[names], _SHORTEST_NAME) or not left:
            break
        kept.remove(left.pop(0))
    short = shorten_all([row[names] for row in rows], max(room, _SHORTEST_NAME))
    cells = [
        [name if at == names else row[at] for at in kept]
        for row, name in zip(rows, short, strict=True)
    ]
    places = {place for place, at in enumerate(kept) if at in right}
    return text_grid([headers[at] for at in kept], cells, right=places)


def text_grid(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> list[str]:
    """Lines of a table; `right` are the columns aligned to the right."""
    return aligned(rows, headers, right=[at in right for at in range(len(headers))]).splitlines()


def aligned(
    rows: Sequence[Sequence[str]], headers: Sequence[str] = (), *, right: Sequence[bool]
) -> str:
    """Columns two spaces apart; headers, where given, with a rule below.

    Headers go in as rows, because tabulate sets them two characters wider than their text.
    """
    text = tabulate(
        [*_header_rows(headers, rows), *rows],
        tablefmt="plain",
        colalign=["right" if is_right else "left" for is_right in right],
        disable_numparse=True,
    )
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _header_rows(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Headers of one or two lines, the shorter ones at the bottom, and the rule."""
    if not headers:
        return []
    parts = [header.split("\n") for header in headers]
    height = max(map(len, parts))
    lines = [[*("" for _ in range(height - len(part))), *part] for part in parts]
    widths = [
        max(map(len, column)) for column in zip(*zip(*lines, strict=True), *rows, strict=True)
    ]
    return [*map(list, zip(*lines, strict=True)), ["─" * width for width in widths]]


def markdown_grid(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> str:
    """A table in markdown, its cells escaped."""
    from onnxroof.units import escaped

    return tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        [escaped(header) for header in headers], tablefmt="pipe", disable_numparse=True,
        colalign=_alignment(headers, right) if rows else None,
    )  # fmt: skip


def _wrapped(header: str) -> str:
    longest = max(map(len, header.split()), default=0)
    return "\n".join(textwrap.wrap(header, max(longest, _HEADER), break_on_hyphens=False))


def _alignment(headers: Sequence[str], right: Collection[int]) -> list[str]:
    return ["right" if at in right else "left" for at in range(len(headers))]
