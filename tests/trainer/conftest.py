import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from sandbox import ProcessSandbox, Sandbox
from tasks import MATH_WORKER


@pytest.fixture(scope="session")
def in_jail() -> Iterator[Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]]:
    """Runs `work(sandbox)` to its end; all tests of a session share one sandbox and its event loop."""

    async def run(work: Callable[[Sandbox], Awaitable[Any]], sandbox: Sandbox) -> Any:
        return await asyncio.wait_for(work(sandbox), timeout=60)

    with asyncio.Runner() as runner:

        async def start() -> ProcessSandbox:
            return ProcessSandbox(preload=("designer.check", MATH_WORKER))

        sandbox = runner.run(start())
        yield lambda work: runner.run(run(work, sandbox))
        runner.run(sandbox.close())
