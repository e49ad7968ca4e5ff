"""A gate on an event loop: requests pass while it is open, and whoever closes it waits until all of them are out.

It bounds no waiting; those who use it do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Gate:
    """Many may pass while it is open; it closes when all who were inside are out."""

    def __init__(self) -> None:
        self._inside = 0
        self._changed = asyncio.Condition()
        self._shut = False

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            async with self._changed:
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut)
            self._shut = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._inside == 0)
            yield
        finally:
            self._shut = False
            async with self._changed:
                self._changed.notify_all()
