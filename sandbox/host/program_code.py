"""The code that a program asks for through `subprocess.run`, run by a sandbox: a `Session`'s code runner.

Not here: what that code may do (`sandbox.jail`), nor what a program may ask for (`sandbox.language`).
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

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
        async with self._opening:
            if self._folder is None:
                self._folder = await self._stack.enter_async_context(self._sandbox.workspace())
        limits = CodeLimits()
        if request.timeout_s is not None and request.timeout_s < limits.wall_s:  # nan is not
            limits = limits.model_copy(update={"wall_s": max(request.timeout_s, 0.01)})
        result = await self._sandbox.run_code(request.code, stdin=request.stdin, limits=limits, workspace=self._folder)
        status = result.exit_status if result.exit_status is not None else -(result.signal or 9)
        return CodeReply(status, result.stdout, result.stderr, result.limit)
