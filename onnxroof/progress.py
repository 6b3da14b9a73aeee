"""A progress bar for terminals; silent everywhere else."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

WIDTH = 30
REDRAW_SECONDS = 0.1


class Progress:
    """How much of some work is done, on standard error when that is a terminal.

    Args:
        total: How much there is; None when nobody knows.
        what: What is counted: "models".
        stream: Where to draw.
    """

    def __init__(self, total: int | None, what: str, stream: TextIO | None = None) -> None:
        self.total = total
        self.what = what
        self.done = 0
        self.stream = stream or sys.stderr
        self.is_shown = self.stream.isatty()
        self._drawn_at = 0.0

    def advance(self, by: int = 1) -> None:
        """Note that more is done."""
        self.done += by
        now = time.monotonic()
        if self.is_shown and (now - self._drawn_at > REDRAW_SECONDS or self.done == self.total):
            self._drawn_at = now
            self.stream.write(f"\r{self._line()}\x1b[K")
            self.stream.flush()

    def _line(self) -> str:
        if not self.total:
            return f"{self.done:,} {self.what}"
        filled = WIDTH * min(self.done, self.total) // self.total
        return (
            f"[{'#' * filled}{'.' * (WIDTH - filled)}] {self.done:,} of {self.total:,} {self.what}"
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wipe the bar: what follows starts on a clean line."""
        if self.is_shown and self._drawn_at:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
