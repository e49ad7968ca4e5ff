import asyncio
import sys
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


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Torch, where a test has imported it, gets one thread: more only cost time on models this small."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
