"""A gate on an event loop: many pass while it is open, and whoever closes it waits until all of them are out.

It bounds no waiting; those who use it do. It is not for threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Gate:
    """Opening it, and going out, wait for nothing, so that a task which is cancelled cannot leave it half shut."""

    def __init__(self) -> None:
        self._inside = 0
        self._opened = asyncio.Event()
        self._opened.set()
        self._empty = asyncio.Event()

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Inside until the block ends. Waits while the gate is shut."""
        while not self._opened.is_set():
            await self._opened.wait()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()

    async def close(self) -> None:
        """Shut it, and wait until nobody is inside; one who is cancelled meanwhile leaves it open. Where somebody else
        has shut it, waits for its opening first."""
        while not self._opened.is_set():
            await self._opened.wait()
        self._opened.clear()
        try:
            while self._inside:
                self._empty.clear()
                await self._empty.wait()
        except BaseException:
            self.open()
            raise

    def open(self) -> None:
        """For whoever shut it."""
        self._opened.set()

    @contextlib.asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Shut, with nobody inside, until the block ends."""
        await self.close()
        try:
            yield
        finally:
            self.open()
