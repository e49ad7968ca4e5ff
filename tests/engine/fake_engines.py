"""Engines made for tests: canned replies, barriers, failures. Each keeps what it was asked."""

from __future__ import annotations

import asyncio
from typing import Any

from workflow.completion import Completion, CompletionRequest, Usage


class CannedEngine:
    """Replies by a function of the request, or by agent. A reply that is an exception is raised."""

    name = "canned"

    def __init__(self, reply: Any = "ok", delay: float = 0) -> None:
        self._reply, self._delay = reply, delay
        self.requests: list[CompletionRequest] = []
        self.cancelled: list[str] = []
        self.closed = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        try:
            await self._wait(request)
        except asyncio.CancelledError:
            self.cancelled.append(request.agent)
            raise
        reply = self._reply
        if isinstance(reply, dict):
            reply = reply[request.agent]
        elif callable(reply):
            reply = reply(request)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(text=reply, usage=Usage(prompt_tokens=10, completion_tokens=5))

    async def _wait(self, request: CompletionRequest) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)

    async def close(self) -> None:
        self.closed += 1


class BarrierEngine(CannedEngine):
    """Replies to nobody until `together` calls wait at once; fails after a while if they never do."""

    def __init__(self, together: int, reply: Any = "ok") -> None:
        super().__init__(reply)
        self._together = together
        self._waiting: list[asyncio.Future[None]] = []

    async def _wait(self, request: CompletionRequest) -> None:
        arrived = asyncio.get_running_loop().create_future()
        self._waiting.append(arrived)
        if len(self._waiting) == self._together:
            for each in self._waiting:
                each.set_result(None)
            self._waiting = []
        await asyncio.wait_for(arrived, timeout=5)


class HangingEngine(CannedEngine):
    """Never replies to the agents named; the others get their reply at once."""

    def __init__(self, *agents: str, reply: Any = "ok") -> None:
        super().__init__(reply)
        self._hangs = agents

    async def _wait(self, request: CompletionRequest) -> None:
        if request.agent in self._hangs:
            await asyncio.Event().wait()
