"""New files that are hashed while they are written, and whole folders brought to disk, several files at a time.

Not here: what is in them, and files that somebody else may have put in their place (`trainer.disk.plain_files`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.threads import MOST, mapped


@dataclass(frozen=True, slots=True)
class Written:
    """A file as it was written."""

    path: Path
    size: int
    """Bytes."""
    sha256: str


class HashedFile:
    """A new file that is written from its beginning to its end. `hashing` opens one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb", buffering=0)
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        """All of it. Raises OSError."""
        rest = memoryview(data)
        self._digest.update(rest)
        self._size += len(rest)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self, *, sync: bool) -> None:
        with self._file:
            if sync:
                os.fsync(self._file.fileno())

    def written(self) -> Written:
        return Written(self.path, self._size, self._digest.hexdigest())


@contextlib.contextmanager
def hashing(path: Path) -> Iterator[HashedFile]:
    """A new file to write, which is on disk when the context ends without an exception. Raises OSError, also where
    there is one already."""
    file = HashedFile(path)
    try:
        yield file
    except BaseException:
        file.close(sync=False)
        raise
    file.close(sync=True)


def write(path: Path, data: bytes | memoryview) -> Written:
    """A new file with `data`, on disk. Raises OSError."""
    with hashing(path) as file:
        file.write(data)
    return file.written()


def read_back(paths: Iterable[Path]) -> list[Written]:
    """The same of files that somebody else wrote; every byte is read. Raises OSError."""
    return mapped(_read_back, paths)


def _read_back(path: Path) -> Written:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Written(path, file.tell(), digest.hexdigest())


def files_below(folder: Path) -> Iterator[Path]:
    """Everything but folders."""
    return (path for path in folder.rglob("*") if not path.is_dir())


def synced(folder: Path) -> None:
    """Have on disk all files below, then the folders that name them, from the innermost out."""
    mapped(sync_one, files_below(folder), MOST)
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        sync_one(path)
    sync_one(folder)


def sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
