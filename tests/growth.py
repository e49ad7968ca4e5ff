"""Do time and memory grow in proportion to the input? Asked of readers of hostile text, in every room's tests.

Compares CPU times of this process, the best of several tries; never a time with a limit that a machine may be too slow
for.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

TRIES = 5
TOO_SMALL_S = 0.05
"""CPU time below which growth is not worth measuring: a quadratic reader of these sizes takes far more."""
TOO_SMALL_BYTES = 1 << 20
"""The same for memory."""


def cpu_s(work: Callable[[], object]) -> float:
    """Without the garbage collector, which walks through whatever the other tests have left."""
    gc.disable()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.enable()


def peak_bytes(work: Callable[[], object]) -> int:
    """Memory at its highest, above what there was before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_linear(name: str, work: Callable[[int], Callable[[], object]], size: int, factor: int = 4) -> None:
    """Fail unless `factor` times the size costs about `factor` times the work, and takes about `factor` times the
    memory; what is quadratic costs `factor` squared.

    `work(n)` prepares an input of size n and returns what reads it. A busy machine may spoil a try, not all of them.
    """
    margin = factor * 2.5
    small, large = work(size), work(factor * size)
    few, many = peak_bytes(small), peak_bytes(large)
    assert many <= max(margin * few, TOO_SMALL_BYTES), (
        f"{name}: {factor} times the size takes more than {margin:g} times the memory: {few} bytes, then {many} bytes"
    )
    tries = []
    for _ in range(TRIES):
        before, after = cpu_s(small), cpu_s(large)
        if after <= max(margin * before, TOO_SMALL_S):
            return
        tries.append(f"{before:.3f} s then {after:.3f} s")
    raise AssertionError(f"{name}: {factor} times the size takes more than {margin:g} times the work: {tries}")
