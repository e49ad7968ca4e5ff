"""One process at a time writes into a folder: a lock that is gone with the process. Reading needs none.

Within a process nothing is locked. What is written is the caller's business.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from trainer.disk import plain_files

LOCK = "writer.lock"


class FolderBusy(ValueError):
    """Another process writes into the folder."""


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Be the one process that writes into `folder`, which is made if need be, while the context lasts.

    Raises `FolderBusy` at once if another one is, and OSError where the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = plain_files.opened(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # children do not inherit it
        except (BlockingIOError, PermissionError):
            raise FolderBusy(
                f"another process writes into {folder}. Fix: wait for it, or choose another folder"
            ) from None
        yield
    finally:
        os.close(lock)
