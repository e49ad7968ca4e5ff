"""The code that a program asks for through `subprocess.run`, run by a sandbox: a `Session`'s code runner.

Not here: what that code may do (`sandbox.jail`), nor what a program may ask for (`sandbox.language`).
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from math import ceil

from sandbox.protocol import Sandbox, Workspace
from workflow.limits import CodeLimits
from workflow.requests import CodeReply, CodeRun


class ProgramCode:
    """Satisfies `engine.protocol.CodeRunner` for one program, whose code shares a workspace; `stack` closes it."""

    def __init__(self, sandbox: Sandbox, stack: AsyncExitStack) -> None:
        self._sandbox, self._stack = sandbox, stack
        self._opening = asyncio.Lock()
        self._folder: Workspace | None = None

    async def __call__(self, request: CodeRun) -> CodeReply:
        if request.timeout_s is not None and request.timeout_s <= 0:
            return CodeReply(-9, "", "", "cpu_s")  # over before it begins, on any machine: no clock's doing
        async with self._opening:
            if self._folder is None:
                self._folder = await self._stack.enter_async_context(self._sandbox.workspace())
        limits = _within(request.timeout_s, CodeLimits())
        result = await self._sandbox.run_code(request.code, stdin=request.stdin, limits=limits, workspace=self._folder)
        status = result.exit_status if result.exit_status is not None else -(result.signal or 9)
        return CodeReply(status, result.stdout, result.stderr, result.limit)


def _within(timeout_s: float | None, limits: CodeLimits) -> CodeLimits:
    """A program's timeout is meant for what computes for too long, and so it is in seconds of the processor, whatever
    else the machine does; what waits gets three times as many by the clock, and one more."""
    if timeout_s is None or not timeout_s < limits.cpu_s:  # nan is not
        return limits
    return limits.model_copy(update={"cpu_s": ceil(timeout_s), "wall_s": 3 * timeout_s + 1})
