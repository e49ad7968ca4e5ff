"""Files that commands write where they are told to: opened without waiting, and never over what is somebody else's.

What is written is the commands' business; folders of evaluations and training runs are the trainer's.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from pathlib import Path
from typing import NamedTuple, TextIO

from metaagent.terminal import usage_error


class Kind(NamedTuple):
    """What a command writes, and how a file begins or what it holds where it is such a thing already."""

    name: str
    start: bytes = b""
    holds: tuple[bytes, ...] = ()

    def is_in(self, file: int) -> bool:
        head = os.read(file, _HEAD)
        return head.startswith(self.start) and (not self.holds or any(each in head for each in self.holds))


_HEAD = 1 << 16
TRACE = Kind("trace", start=b'{"t":')
TREE = Kind("tree", start=b'{"type": "tree"')
PAGE = Kind("page", start=b"<!doctype html>", holds=(b"data-home=",))
PROGRAM = Kind("program", holds=(b"from workflow", b"import workflow"))


def open_output(path: Path, kind: Kind) -> TextIO:
    """Open a file to write it anew; usage error, and nothing changed, where it cannot be or holds something else.

    Devices and pipes that somebody reads will do.
    """
    try:
        fd = _opened(path, kind)
    except OSError as error:
        reason = "it is a pipe that nobody reads" if error.errno == errno.ENXIO else error.strerror
        usage_error(f"cannot write the {kind.name} to {path}: {reason}")
    return open(fd, "w", encoding="utf-8", errors="backslashreplace", newline="\n")


def check_output(path: Path, kind: Kind) -> None:
    """The same, for what is to be written later: changes nothing."""
    try:
        if not path.parent.is_dir():
            usage_error(f"cannot write {path}: there is no folder {path.parent}")
        if path.is_file() and path.stat().st_size and not _holds(path, kind):
            usage_error(_foreign(path, kind))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            usage_error(f"cannot write {path}: it may not be written")
    except OSError as error:
        usage_error(f"cannot write {path}: {error.strerror}")


def check_apart(**outputs: Path | None) -> None:
    """Usage error where two options, given by their names, name one file: the later one would write over the other."""
    named = [(option, path) for option, path in outputs.items() if path is not None]
    for (one, path), (other, same) in itertools.combinations(named, 2):
        if path.resolve() == same.resolve() and (path.is_file() or not path.exists()):
            usage_error(f"--{one} and --{other} are both {path}. Fix: a file for each")


def _opened(path: Path, kind: Kind) -> int:
    # Without O_NONBLOCK a pipe would wait for its reader.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            if found.st_size and not _holds(path, kind, found):
                usage_error(_foreign(path, kind))
            os.ftruncate(fd, 0)
        os.set_blocking(fd, True)
        return fd
    except BaseException:
        os.close(fd)
        raise


def _holds(path: Path, kind: Kind, same_as: os.stat_result | None = None) -> bool:
    """Whether a file is such a thing; not one that has taken the place of `same_as` meanwhile."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return (same_as is None or os.path.samestat(os.fstat(fd), same_as)) and kind.is_in(fd)
    finally:
        os.close(fd)


def _foreign(path: Path, kind: Kind) -> str:
    return f"cannot write {path}: it holds something that is no {kind.name}. Fix: choose another name, or remove it"
