"""Garbage collection, put off while something short makes many records that all stay."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FEW_RECORDS = 1_000
"""So many new ones are left to the interpreter: a search loop keeps none of what it makes."""

_MANY_RECORDS = 200_000
"""After so many that nobody looked at it is seen whether the process holds more than before."""

_MANY_BLOCKS = 2_000_000
"""So much more, some 150 megabytes, and it is looked through whoever made them."""


@contextmanager
def collecting_later() -> Iterator[None]:
    """Put garbage collection off until a model is analyzed; also a decorator.

    An analysis makes thousands of small records and no cycles worth finding. Looking for some,
    again and again over all that the process holds, takes a fifth of its time, more in a process
    that holds much else. Left as it was found, but that the records count as old.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    before = gc.get_count()
    try:
        yield
    finally:
        _unseen.leave(before)
        gc.enable()


def _made(counts: tuple[int, int, int]) -> int:
    """Records made since all were last counted as old, less those that are gone again."""
    new, looked_at, looked_at_twice = counts
    first, second, _ = gc.get_threshold()
    return new + first * (looked_at + second * looked_at_twice)


class _Unseen:
    """How many records count as old without having been looked at, and when to look."""

    def __init__(self) -> None:
        self._records = 0
        self._of_few = 0
        self._callers = 0
        self._held: int | None = None

    def leave(self, before: tuple[int, int, int]) -> None:
        """Count new records as old, so that the next collection does not begin with them.

        What the caller made before moves with them, and cycles among it would stay for ever; so
        the process is collected whole once the caller has made many and the process has grown by
        a quarter, which is the interpreter's own measure. What an analysis makes has no cycles:
        there may be four times as much of it before it is looked through all the same. Analyses
        that were dropped are gone without that, and are no growth. Where the caller keeps objects
        frozen nothing is moved.

        Args:
            before: The interpreter's counts when the analysis began.
        """
        young = gc.get_count()[0]
        if young < _FEW_RECORDS or gc.get_freeze_count():
            self._of_few += max(young - before[0], 0)
            return
        gc.freeze()
        gc.unfreeze()
        if self._held is None:
            self._held = sys.getallocatedblocks()
        self._records += young
        self._callers += max(_made(before) - self._of_few, 0)
        self._of_few = 0
        if max(self._records, self._callers) < _MANY_RECORDS:
            return
        self._records = 0
        held = sys.getallocatedblocks()
        grown = held - self._held
        if self._callers >= _MANY_RECORDS:
            # 0 where the interpreter was told to use another allocator: nothing is known then
            is_due = not held or grown >= max(_MANY_RECORDS, self._held // 4)
        else:
            is_due = grown >= max(_MANY_BLOCKS, 3 * self._held)
        if is_due:
            gc.collect()
            self._callers = 0
            self._held = sys.getallocatedblocks()


_unseen = _Unseen()
