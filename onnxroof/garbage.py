"""Garbage collection, put off while something short makes many records that all stay."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collecting_later() -> Iterator[None]:
    """Put garbage collection off until a model is analyzed; also a decorator.

    An analysis makes thousands of small records and no cycles worth finding. Looking for some,
    again and again over all that the process holds, takes a tenth of its time, more in a process
    that holds much else. Left as it was found.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
