"""Checkpoints that are written beside what goes on: training waits for a copy of its weights, not for the disk.

What is on disk at any moment, and what a kill leaves, is `trainer.disk.checkpoint`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel

from trainer.disk import checkpoint
from trainer.disk.checkpoint import KEEP, CheckpointError, Write


class CheckpointWriter:
    """Writes into `folder`, one checkpoint at a time, each in a thread.

        async with CheckpointWriter(folder) as writer:
            ...
            await writer.start(step, snapshot, state)

    At the end of the context it waits for what is under way. Errors are told by the next call, or there.
    """

    def __init__(self, folder: Path, keep: int = KEEP) -> None:
        self.folder, self.keep = folder, keep
        self._under_way: asyncio.Future[Path] | None = None

    async def __aenter__(self) -> CheckpointWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Where something else has failed, what fails here is told as a note to it."""
        try:
            await self.wait()
        except CheckpointError as failed:
            if error is None:
                raise
            error.add_note(str(failed))

    async def start(self, step: int, snapshot: Callable[[], Write], state: BaseModel) -> None:
        """Wait until the one before is written; then call `snapshot`, which is to copy what goes on changing, and begin
        to write what it returns (see `checkpoint.save`). Returns when the copy is made.

        Both run in threads; there is never more than one copy. Raises what `snapshot` raises, and what `wait` does:
        nothing new is begun then.
        """
        await self.wait()
        copied = asyncio.ensure_future(asyncio.to_thread(snapshot))
        await _over(copied)
        self._under_way = asyncio.ensure_future(
            asyncio.to_thread(checkpoint.save, self.folder, step, copied.result(), state, self.keep)
        )

    async def wait(self) -> None:
        """Until nothing is under way, also where this is cancelled meanwhile. Raises `CheckpointError`, once, where a
        checkpoint could not be written."""
        if self._under_way is not None:
            await _over(self._under_way)
        self.check()

    def check(self) -> None:
        """Raise what `wait` would, without waiting."""
        if self._under_way is not None and self._under_way.done():
            done, self._under_way = self._under_way, None
            done.result()


async def _over(work: asyncio.Future[Any]) -> None:
    """Wait for work in a thread, which cannot be stopped: what it uses may be closed after this."""
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise
