"""Measures how long the event loop stands still, and says in what.

Every run of a process shares one event loop: work on a hostile text that holds it holds all of them, and no timer or
kill gets through. `async with StallWatch()` notes each stall over `STALL_S`, logs it, and keeps the longest. It
prevents nothing: readers of hostile text are linear, bounded, or jailed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import tempfile
import time
from dataclasses import dataclass
from types import TracebackType

STALL_S = 0.5
"""A stall worth telling."""
BEAT_S = 0.1

_log = logging.getLogger("metaagent")


@dataclass(frozen=True)
class Stall:
    """One time in which nothing else could run."""

    seconds: float
    stack: str
    """What the process was doing half a second into it, the innermost call first; empty where nobody could look."""


class StallWatch:
    """`longest_s` is the longest stall so far, however short; `stalls` are those over `STALL_S`."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.stalls: list[Stall] = []

    async def __aenter__(self) -> StallWatch:
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115  (closed at the end)
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        faulthandler.cancel_dump_traceback_later()
        self._stacks.close()

    async def _beat(self) -> None:
        while True:
            # Written by a thread of C's, which needs no interpreter lock: a regular expression holds it to its end.
            faulthandler.dump_traceback_later(BEAT_S + STALL_S, file=self._stacks)
            before, queued = time.monotonic(), _queued_s()
            await asyncio.sleep(BEAT_S)
            late = time.monotonic() - before - BEAT_S - (_queued_s() - queued)
            self.longest_s = max(self.longest_s, late)
            if late > STALL_S:
                self._tell(late)

    def _tell(self, seconds: float) -> None:
        self._stacks.seek(0)
        stack = self._stacks.read(4000).decode(errors="replace")
        self._stacks.seek(0)
        self._stacks.truncate()
        main = stack.rpartition("most recent call first):\n")[2] or stack
        self.stalls.append(Stall(seconds, main))
        _log.warning("nothing else could run for %.2f s; the process was in:\n%s", seconds, main.rstrip())


def _queued_s() -> float:
    """How long this thread has waited for a core so far, which is other processes' doing; 0 where nobody counts it."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0
