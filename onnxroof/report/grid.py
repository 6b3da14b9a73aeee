"""Small tables of text: aligned for terminals, piped for markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def text_grid(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> list[str]:
    """Lines of a table; `right` are the columns aligned to the right."""
    text = tabulate(
        rows, headers, tablefmt="simple", disable_numparse=True,
        colalign=_alignment(headers, right) if rows else None,
    )  # fmt: skip
    return [line.rstrip() for line in text.splitlines()]


def markdown_grid(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> str:
    """A table in markdown, its cells escaped."""
    from onnxroof.report.markdown import escaped

    return tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        [escaped(header) for header in headers], tablefmt="pipe", disable_numparse=True,
        colalign=_alignment(headers, right) if rows else None,
    )  # fmt: skip


def _alignment(headers: Sequence[str], right: Collection[int]) -> list[str]:
    return ["right" if at in right else "left" for at in range(len(headers))]
