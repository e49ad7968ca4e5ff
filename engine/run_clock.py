"""The clock of one run. It stands still while the run waits for its engine, whose replies have a limit of their own.

A reward must not depend on how fast an engine is, or on how many others ask it: what a model may say is limited in
tokens and calls. Not here: CPU seconds (`sandbox.jail`), and what ending a run takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from workflow.failures import EngineFailed, LimitExceeded
from workflow.limits import Limits


def no_reply(engine: str, reply_s: float) -> EngineFailed:
    """What an engine has done that lets someone wait longer than `Limits.reply_s`."""
    return EngineFailed(
        engine,
        f"no reply within reply_s={reply_s:g}. Fix: see whether it still works; ask for fewer replies at once, or "
        "raise Limits.reply_s",
    )


class RunClock:
    """Of a run that starts now and asks `engine`, an engine's name."""

    def __init__(self, limits: Limits, engine: str) -> None:
        self._limits, self._engine = limits, engine
        self._start = time.monotonic()
        self._waited_s = 0.0
        self._asked: dict[object, float] = {}
        """When each request was made that is under way, oldest first."""
        self._since = 0.0
        """When the run last began to wait."""
        self._timeout: asyncio.Timeout | None = None
        self._over = False
        self._waits_for_reply = False
        """Whether the limit that strikes next is that of a reply."""

    @property
    def elapsed(self) -> float:
        """Seconds since the run started, all included."""
        return time.monotonic() - self._start

    @property
    def own_s(self) -> float:
        """Seconds of the run's own: those in which it did not wait for the engine."""
        waiting = time.monotonic() - self._since if self._asked else 0.0
        return self.elapsed - self._waited_s - waiting

    def check(self) -> None:
        """Raises what ends the run past a limit, whatever has become of the cancellation."""
        struck = self._timeout is not None and self._timeout.expired()
        if struck and self._waits_for_reply:
            raise no_reply(self._engine, self._limits.reply_s)
        if struck or self.own_s > self._limits.wall_s:
            raise LimitExceeded("wall_s", self._limits.wall_s, self.own_s)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a request to the engine is under way, others beside it or not."""
        now, request = time.monotonic(), object()
        if not self._asked:
            self._since = now
        self._asked[request] = now
        self._set()
        try:
            yield
        finally:
            del self._asked[request]
            if not self._asked:
                self._waited_s += time.monotonic() - self._since
            self._set()

    @asynccontextmanager
    async def bounding(self) -> AsyncIterator[None]:
        """What is done within ends at a limit, with `LimitExceeded` or `EngineFailed`, also where an engine does not
        mind being cancelled, or plain code lets nobody look at the clock. Once per run."""
        timeout = self._timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._set()
                yield
        except TimeoutError:
            if not timeout.expired():  # somebody else's, such as an engine's
                raise
        finally:
            self._over = True
        self.check()

    def _set(self) -> None:
        """The next limit to strike: that of the oldest reply, or the run's own."""
        if self._timeout is None or self._over or self._timeout.expired():
            return
        oldest = next(iter(self._asked.values()), None)
        self._waits_for_reply = oldest is not None
        left_s = (
            self._limits.wall_s - self.own_s if oldest is None else oldest + self._limits.reply_s - time.monotonic()
        )
        self._timeout.reschedule(asyncio.get_running_loop().time() + left_s)
