"""Checkpoints that are written beside what goes on: training waits for a copy of its weights, not for the disk.

What is on disk at any moment, and what a kill leaves, is `trainer.disk.checkpoint`'s business.
"""

from __future__ import annotations

import asyncio
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
            await writer.wait()  # there is never more than one copy
            write = ...  # of what goes on changing
            writer.begin(step, write, state)

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

    def begin(self, step: int, write: Write, state: BaseModel) -> None:
        """Begin what `checkpoint.save` does. Raises what `check` does, and RuntimeError while another is under way:
        nothing new is begun then."""
        self.check()
        if self._under_way is not None:
            raise RuntimeError("a checkpoint is being written. Fix: wait() before the copy for the next one is made")
        self._under_way = asyncio.ensure_future(
            asyncio.to_thread(checkpoint.save, self.folder, step, write, state, self.keep)
        )

    async def wait(self) -> None:
        """Until nothing is under way, also where this is cancelled meanwhile. Raises `CheckpointError`, once, where a
        checkpoint could not be written."""
        if self._under_way is not None:
            await to_its_end(self._under_way)
        self.check()

    def check(self) -> None:
        """Raise what `wait` would, without waiting."""
        if self._under_way is not None and self._under_way.done():
            done, self._under_way = self._under_way, None
            done.result()


async def to_its_end(work: asyncio.Future[Any]) -> None:
    """Wait for work in a thread, which cannot be stopped: what it uses may be closed after this."""
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise
