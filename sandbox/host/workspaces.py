"""The files of workspaces, which are untrusted: how they are opened.

File names are plain, links are not followed, and nothing but regular files is opened. How big a workspace may become
is for the jail that it belongs to; workspaces themselves are the backends' (`JailedFolder`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from sandbox.protocol import WorkspaceError

_LEFT = {errno.EISDIR: "a folder", errno.ELOOP: "a link", errno.ENXIO: "a pipe", errno.EOPNOTSUPP: "a socket"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Says what code has left in a workspace, where that keeps its file `name` from being opened."""
    try:
        yield
    except (FileNotFoundError, WorkspaceError):
        raise
    except OSError as error:
        code = error.errno or 0
        what = f"code has left {_LEFT[code]} of this name; choose another one" if code in _LEFT else ""
        what = "the workspace is full; raise CodeLimits.disk_mb" if code in _FULL else what
        raise WorkspaceError(code, f"workspace file {name!r}: {what or os.strerror(code)}") from error


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
