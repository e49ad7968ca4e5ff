"""The Trace of one run on disk: one JSON line per event, there as soon as the event happens, so that a killed run keeps
it.

Not here: what is in an event (`workflow.trace`), and files that somebody else may have put there
(`trainer.disk.plain_files`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from workflow.trace import Event, event_to_json

MOST_OPEN = 4096
"""Files that a process holds open for its traces; at most a quarter of those that it may have open at all."""


class TraceFile:
    """A sink that appends each event to a file at once. Thousands may be in use: those that were used last are open.

    An OSError names the file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            with writing(path):
                _FILES.close(path)
                path.unlink(missing_ok=True)  # of an attempt that failed

    def __call__(self, event: Event) -> None:
        if self._path is not None:
            with writing(self._path):
                _FILES.append(self._path, event_to_json(event).encode() + b"\n")

    def __del__(self) -> None:
        if self._path is not None:
            _FILES.close(self._path)


class OpenFiles:
    """Files to append to, of which the `most` that were used last are open."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: OrderedDict[Path, int] = OrderedDict()
        """Descriptors; what was used last is the last."""
        self._lock = threading.RLock()  # the end of a TraceFile may come amid anything

    def append(self, path: Path, data: bytes) -> None:
        """When this returns, the system has all of it. Raises OSError; a part may be there then."""
        with self._lock:
            descriptor = self._open.pop(path, None)
            if descriptor is None:
                descriptor = self._opened(path)
            self._open[path] = descriptor
            while data:
                data = data[os.write(descriptor, data) :]

    def close(self, path: Path) -> None:
        """Harmless where it is not open."""
        with self._lock:
            descriptor = self._open.pop(path, None)
            if descriptor is not None:
                os.close(descriptor)

    def _opened(self, path: Path) -> int:
        while True:
            while len(self._open) >= self.most:
                self.close(next(iter(self._open)))
            try:
                return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
                self.close(next(iter(self._open)))  # others have too many


def _most_open() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if allowed == resource.RLIM_INFINITY else max(1, min(MOST_OPEN, allowed // 4))


_FILES = OpenFiles(_most_open())


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError within, such as a full disk, names the path and says what to do."""
    try:
        yield
    except OSError as error:
        told = f"{error.strerror} (Fix: make room or allow writing there, then resume)"
        raise OSError(error.errno, told, str(path)) from error
