"""The Trace of one run on disk: one JSON line per event, there as soon as the event happens, so that a killed run keeps
it.

Not here: what is in an event (`workflow.trace`), and files that somebody else may have put there
(`trainer.disk.plain_files`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from workflow.trace import Event, event_to_json


class TraceFile:
    """A sink that appends each event to a file at once; holds no file open, as thousands of runs may be under way. An
    OSError names the file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            with writing(path):
                path.unlink(missing_ok=True)  # of an attempt that failed

    def __call__(self, event: Event) -> None:
        if self._path is not None:
            with writing(self._path), self._path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(event_to_json(event) + "\n")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError within, such as a full disk, names the path and says what to do."""
    try:
        yield
    except OSError as error:
        told = f"{error.strerror} (Fix: make room or allow writing there, then resume)"
        raise OSError(error.errno, told, str(path)) from error
