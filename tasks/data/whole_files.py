"""Files that appear whole or not at all, however their writer ends.

Not here: what is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tasks.data.rows import DatasetError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, `path` with `.part` behind it; synced to disk, it takes the name `path` when the context ends
    without an exception, and is removed otherwise. One that a killed writer left is written anew.

    Raises `DatasetError` where another process writes it at this time, OSError where it cannot be written.
    """
    part = path.with_name(path.name + ".part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    with open(fd, "wb") as file:
        _own(fd, part)
        try:
            os.ftruncate(fd, 0)
            yield file
            file.flush()
            os.fsync(fd)
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise


def _own(fd: int, part: Path) -> None:
    """Lock the file; it must still be the one under that name, since its last writer may have given it another."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise DatasetError(f"{part} is no plain file. Fix: remove it")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(part)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    raise DatasetError(f"{part}: another process is writing it. Fix: wait for its end")
