"""Files of ours that somebody else may have put there: what is read is a plain file of a bounded size, and what is
written replaces a name and never follows it.

A link, a device or a pipe in the place of a file is an error here, since reading one may never end and writing one
changes another file. Not here: what is in the files, and against whom a folder is locked (`trainer.disk.folder_lock`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

MAX_TEXT = 64 << 20
"""Bytes of a file that is read whole."""


def opened(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a plain file. Raises OSError, naming `path`, for anything else in its place."""
    found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return found


def read(path: Path, most: int = MAX_TEXT) -> bytes:
    """All of a plain file. Raises OSError."""
    with open(opened(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {most:,}", str(path))
        return file.read(most)


def appended(path: Path) -> BinaryIO:
    """A plain file to write behind, which is made if need be. Raises OSError."""
    return open(opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """The new file, to be written, under a name beside `path` that nobody knows; synced to disk, it takes its place
    when the context ends without an exception. Raises OSError."""
    fd, beside = tempfile.mkstemp(prefix=f".tmp-{path.name}-", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            os.fchmod(fd, 0o644)
            yield file
            file.flush()
            os.fsync(fd)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def replace(path: Path, data: bytes) -> None:
    """Put a file with `data` in the place of `path`, whole or not at all. Raises OSError."""
    with replacing(path) as file:
        file.write(data)


def inside(folder: Path, name: str) -> Path:
    """The file of `folder` that a manifest calls `name`, with `/`. Raises OSError for a name that leads elsewhere, by
    its own parts or by a link."""
    parts = PurePosixPath(name).parts
    if not parts or "/".join(parts) != name or name.startswith("/") or ".." in parts or "\0" in name:
        raise OSError(errno.EINVAL, "it is no name of a file in this folder", name)
    path = folder
    for part in parts[:-1]:
        path = path / part
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise OSError(errno.ENOTDIR, "a part of it is no folder", name)
    return path / parts[-1]
