"""Workspaces as the host sees them: folders that code runs share, whose files are untrusted.

File names are plain, links are not followed, and nothing but regular files is opened. How big a workspace may become
is for the jail that it belongs to.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.jailed import Spawner


class JailedFolder(ABC):
    """A workspace of some spawner; it lives as long as what serves it. Satisfies `sandbox.protocol.Workspace`."""

    def __init__(self, spawner: Spawner, number: int) -> None:
        self.spawner, self.number = spawner, number

    @abstractmethod
    async def write(self, name: str, data: bytes) -> None: ...

    @abstractmethod
    async def read(self, name: str) -> bytes: ...

    @abstractmethod
    def close(self) -> None: ...


class LocalFolder(JailedFolder):
    """A workspace on this machine, held by its descriptor."""

    def __init__(self, spawner: Spawner, number: int, fd: int) -> None:
        super().__init__(spawner, number)
        self._fd = fd

    async def write(self, name: str, data: bytes) -> None:
        with os.fdopen(open_to_write(self._fd, name), "wb") as file:
            file.write(data)

    async def read(self, name: str) -> bytes:
        with os.fdopen(open_to_read(self._fd, name), "rb") as file:
            return file.read()

    def close(self) -> None:
        os.close(self._fd)


def open_to_write(folder: int, name: str) -> int:
    """A descriptor of the emptied or new file `name`, which every user may write."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(plain(name), flags, 0o666, dir_fd=folder)
    try:
        os.fchmod(fd, 0o666)
        return fd
    except BaseException:
        os.close(fd)
        raise


def open_to_read(folder: int, name: str) -> int:
    """A descriptor of the regular file `name`; FileNotFoundError if there is none."""
    fd = os.open(plain(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(f"{name!r} in the workspace is not a regular file")
        return fd
    except BaseException:
        os.close(fd)
        raise


def plain(name: str) -> str:
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"workspace file name {name!r} must be a plain name without folders")
    return name
