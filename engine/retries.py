"""What infrastructure failed is done again: a few times, ever later. Knows nothing of what is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from workflow.failures import EngineFailed, SandboxUnavailable

Result = TypeVar("Result")
RETRY_PAUSE_S = 0.5
"""Before the first retry; doubled for each further one."""


async def retried(attempt: Callable[[], Awaitable[Result]], retries: int) -> Result:
    """What `attempt` returns; it is made again, `retries` times at most, where infrastructure failed it."""
    for number in range(retries):
        try:
            return await attempt()
        except (EngineFailed, SandboxUnavailable):
            await asyncio.sleep(RETRY_PAUSE_S * 2**number)
    return await attempt()
