"""The clock of one run. It stands still while the run waits for its engine, whose replies have a limit of their own.

A reward must not depend on how fast an engine is, or on how many others ask it: what a model may say is limited in
tokens and calls. Not here: CPU seconds (`sandbox.jail`), and what ending a run takes.
"""

from __future__ import annotations

import asyncio
import math
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
    """Of a run that starts now and asks `engine`, an engine's name. It stands still while all that the run has under
    way are requests to the engine."""

    def __init__(self, limits: Limits, engine: str) -> None:
        self._limits, self._engine = limits, engine
        self._start = time.monotonic()
        self._asked: dict[object, float] = {}
        """When each request was made that is under way, oldest first."""
        self._working = 0
        """Code runs that are under way."""
        self._paused = False
        self._still_since: float | None = None
        self._still_s = 0.0
        """Seconds that it stood still before."""
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
        """Seconds of the run's own: those in which it did not only wait for the engine."""
        now = time.monotonic()
        return now - self._start - self._still_s - (0.0 if self._still_since is None else now - self._still_since)

    @property
    def left_s(self) -> float:
        """Seconds of its own that the run still has."""
        return self._limits.wall_s - self.own_s

    def pause(self) -> None:
        """Stand still until `resume`: the run waits for somebody who may take as long as he likes."""
        self._paused = True
        self._changed()

    def resume(self) -> None:
        self._paused = False
        self._changed()

    def charge(self, seconds: float) -> None:
        """Count seconds that something took for the run while its clock stood still."""
        self._still_s -= seconds
        self._changed()

    def check(self) -> None:
        """Raises what ends the run past a limit, whatever has become of the cancellation."""
        struck = self._timeout is not None and self._timeout.expired()
        if struck and self._waits_for_reply:
            raise no_reply(self._engine, self._limits.reply_s)
        if struck or self.own_s > self._limits.wall_s:
            raise LimitExceeded("wall_s", self._limits.wall_s, self.own_s)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a request to the engine is under way."""
        request = object()
        self._asked[request] = time.monotonic()
        self._changed()
        try:
            yield
        finally:
            del self._asked[request]
            self._changed()

    @contextmanager
    def working(self) -> Iterator[None]:
        """While code runs for the run: its own time, whoever else waits for the engine meanwhile."""
        self._working += 1
        self._changed()
        try:
            yield
        finally:
            self._working -= 1
            self._changed()

    @asynccontextmanager
    async def bounding(self) -> AsyncIterator[None]:
        """What is done within is cancelled at a limit, and ends with `LimitExceeded` or `EngineFailed`; also where an
        engine has swallowed the cancellation, or plain code has let nobody look at the clock. Once per run."""
        timeout = self._timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._changed()
                yield
        except TimeoutError:
            if not timeout.expired():  # somebody else's, such as an engine's
                raise
        finally:
            self._over = True
        self.check()

    def _changed(self) -> None:
        """Let it stand still or go on, and set the limit that strikes next: the oldest reply's, or the run's own."""
        now, still = time.monotonic(), self._paused or (bool(self._asked) and not self._working)
        if still and self._still_since is None:
            self._still_since = now
        elif not still and self._still_since is not None:
            self._still_s, self._still_since = self._still_s + now - self._still_since, None
        if self._timeout is None or self._over or self._timeout.expired():
            return
        replied_s = min((asked + self._limits.reply_s - now for asked in self._asked.values()), default=math.inf)
        own_s = math.inf if still else self._limits.wall_s - self.own_s
        self._waits_for_reply = replied_s <= own_s
        strikes_s = min(replied_s, own_s)
        self._timeout.reschedule(None if math.isinf(strikes_s) else asyncio.get_running_loop().time() + strikes_s)
