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
    try:
        yield
    finally:
        _unseen.leave()
        gc.enable()


class _Unseen:
    """How many records count as old without having been looked at, and when to look."""

    def __init__(self) -> None:
        self._records = 0
        self._most_blocks: int | None = None

    def leave(self) -> None:
        """Count new records as old, so that the next collection does not begin with them.

        What the caller made before moves with them, and cycles among it would stay for ever; so
        the process is collected whole once it has grown by a quarter, which is the interpreter's
        own measure. Analyses that were dropped are gone without that, and are no growth. Where
        the caller keeps objects frozen nothing is moved.
        """
        young = gc.get_count()[0]
        if young < _FEW_RECORDS or gc.get_freeze_count():
            return
        gc.freeze()
        gc.unfreeze()
        if self._most_blocks is None:
            self._most_blocks = _a_quarter_more()
        self._records += young
        if self._records < _MANY_RECORDS:
            return
        self._records = 0
        # 0 where the interpreter was told to use another allocator: nothing is known then
        if not 0 < sys.getallocatedblocks() < self._most_blocks:
            gc.collect()
            self._most_blocks = _a_quarter_more()


def _a_quarter_more() -> int:
    """The blocks up to which the process need not be looked through again."""
    held = sys.getallocatedblocks()
    return held + max(_MANY_RECORDS, held // 4)


_unseen = _Unseen()
