"""The same work on many things, in a few threads: for what lets go of Python's lock, as tensors, digests and files do.

Starts no processes and keeps no threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

One = TypeVar("One")
Other = TypeVar("Other")

MOST = 8
"""Threads. What each holds in memory counts as often."""


def mapped(work: Callable[[One], Other], items: Iterable[One], threads: int | None = None) -> list[Other]:
    """`work` of each item, in their order. `threads` is one per processor, `MOST` at most, unless given.

    Raises what the first failed item raised; those that have not begun by then are left out.
    """
    todo = list(items)
    threads = min(len(todo), MOST, _processors()) if threads is None else min(len(todo), threads)
    if threads < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in todo]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
