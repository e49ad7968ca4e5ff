"""Measures how long the event loop stands still, and says in what.

Every run of a process shares one event loop: work on a hostile text that holds it holds all of them, and no timer or
kill gets through. `async with StallWatch()` notes each stall over `STALL_S`, logs it, and keeps the longest. It
prevents nothing: readers of hostile text are linear, bounded, or jailed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from types import TracebackType

STALL_S = 0.5
"""A stall worth telling."""
BEAT_S = 0.1
FRAMES = 40
"""So many of the innermost are told."""

_log = logging.getLogger("metaagent")


@dataclass(frozen=True)
class Stall:
    """One time in which nothing else could run."""

    seconds: float
    stack: str
    """What the loop's thread was in, the innermost call first, half a second into it or as soon as another thread could
    look: a regular expression holds the interpreter to its end. Empty where none could."""


class StallWatch:
    """`longest_s` is the longest stall so far, however short; `stalls` are those over `STALL_S`."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.stalls: list[Stall] = []

    async def __aenter__(self) -> StallWatch:
        self._beat_at, self._seen = time.monotonic(), (0.0, "")
        self._ended = threading.Event()
        # Not `faulthandler.dump_traceback_later`: it reads frames while they change, which can end the process.
        self._looking = threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True)
        self._looking.start()
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        self._ended.set()
        await asyncio.to_thread(self._looking.join, 1)

    async def _beat(self) -> None:
        while True:
            self._beat_at, queued = time.monotonic(), _queued_s()
            await asyncio.sleep(BEAT_S)
            late = time.monotonic() - self._beat_at - BEAT_S - (_queued_s() - queued)
            self.longest_s = max(self.longest_s, late)
            if late > STALL_S:
                self._tell(late)

    def _look(self, thread: int) -> None:
        """In a thread of its own: what the loop's is in, once for every beat that is late."""
        while not self._ended.wait(BEAT_S):
            beat_at = self._beat_at
            if self._seen[0] != beat_at and time.monotonic() - beat_at > BEAT_S + STALL_S:
                frames = itertools.islice(traceback.walk_stack(sys._current_frames().get(thread)), FRAMES)
                lines = [
                    f'  File "{frame.f_code.co_filename}", line {line} in {frame.f_code.co_name}'
                    for frame, line in frames
                ]
                self._seen = (beat_at, "\n".join(lines))

    def _tell(self, seconds: float) -> None:
        stack = self._seen[1] if self._seen[0] == self._beat_at else ""
        self.stalls.append(Stall(seconds, stack))
        _log.warning("nothing else could run for %.2f s; the process was in:\n%s", seconds, stack or "  (unknown)")


def _queued_s() -> float:
    """How long this thread has waited for a core so far, which is other processes' doing; 0 where nobody counts it."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0
