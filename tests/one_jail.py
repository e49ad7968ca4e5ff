"""One sandbox for all tests of a process: each costs a second of Python that imports. For tests that watch, limit or
break a sandbox it is not: they start their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandbox import ProcessSandbox
from tasks import MATH_WORKER

Result = TypeVar("Result")
_shared: list[tuple[asyncio.Runner, ProcessSandbox]] = []
"""None before the first test that needs it."""


def in_jail(work: Callable[[ProcessSandbox], Awaitable[Result]], timeout_s: float = 100) -> Result:
    """The outcome of `work(sandbox)`, on the sandbox's own event loop."""

    async def start() -> ProcessSandbox:
        return ProcessSandbox(preload=("designer.check", MATH_WORKER))

    async def run() -> Result:
        return await asyncio.wait_for(work(sandbox), timeout_s)

    if not _shared:
        runner = asyncio.Runner()
        _shared.append((runner, runner.run(start())))
    [(runner, sandbox)] = _shared
    return runner.run(run())


def close() -> None:
    """At the end of all tests."""
    while _shared:
        runner, sandbox = _shared.pop()
        runner.run(sandbox.close())
        runner.close()
