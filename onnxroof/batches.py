"""Many small jobs over any executor: in order, streaming, with a progress bar on a terminal."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from onnxroof.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor, Future

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 4
"""Chunks under way for each worker: enough that none waits for the next."""


def run_batches(
    work: Callable[[bytes, Sequence[Item]], list[Result]],
    setting: bytes,
    items: Iterable[Item],
    executor: Executor | None,
    chunk: int,
    *,
    workers: int | None = None,
    total: int | None = None,
) -> Iterator[Result]:
    """Results of `work(setting, items)` for all items, in their order.

    Args:
        work: What a worker does with a chunk; importable by name in its process.
        setting: What it needs besides.
        items: Taken as fast as they are worked on.
        executor: Where; None: `workers` processes, ended with the iteration.
        chunk: Items sent at a time.
        workers: Processes when there is no executor, one for every core by default.
        total: How many items there are, for the progress bar.
    """
    if executor is not None:
        yield from _stream(executor, work, setting, _chunks(items, chunk), total)
        return
    count = workers or os.cpu_count() or 1
    with ProcessPoolExecutor(count) as pool:
        yield from _stream(pool, work, setting, _chunks(items, chunk), total, count)


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while part := list(islice(source, size)):
        yield part


def _stream(
    executor: Executor,
    work: Callable[[bytes, Sequence[Item]], list[Result]],
    setting: bytes,
    chunks: Iterator[list[Item]],
    total: int | None,
    workers: int | None = None,
) -> Iterator[Result]:
    ahead = AHEAD * (workers or os.cpu_count() or 1)
    pending: deque[Future[list[Result]]] = deque()
    with Progress(total, "models") as progress:
        try:
            while True:
                for part in islice(chunks, ahead - len(pending)):
                    pending.append(executor.submit(work, setting, part))
                if not pending:
                    return
                results = pending.popleft().result()
                for result in results:
                    progress.advance()
                    yield result
        finally:
            for future in pending:
                future.cancel()
