"""One look through a folder for files of JSON lines, in it and below.

Links are not followed, and folders whose names begin with a dot are left out. Nothing is opened but folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

AT_ONCE = 5_000


class Walk:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = 0
        self.unread_folders = 0
        self.nameless = 0
        """Files whose names are no text in UTF-8: no route leads to them."""
        self.passed_over = 0
        """Links to folders and to files of JSON lines, and folders whose names begin with a dot."""

    def batches(self) -> Iterator[list[tuple[str, int, int]]]:
        """Path relative to the folder, size in bytes and time of the last change in nanoseconds, so many at once.
        Raises OSError where the folder itself cannot be read."""
        found: list[tuple[str, int, int]] = []
        waiting = [""]
        while waiting:
            place = waiting.pop()
            try:
                entries = os.scandir(self._folder / place)
            except OSError as error:
                self._unread(place, error)
                continue
            with entries:
                while True:
                    try:
                        entry = next(entries, None)
                        if entry is None:
                            break
                        known = self._known(entry, place, waiting)
                    except OSError as error:
                        self._unread(place, error)
                        break
                    if known is not None:
                        found.append(known)
                    if len(found) == AT_ONCE:
                        yield found
                        found = []
        if found:
            yield found

    def _known(self, entry: os.DirEntry[str], place: str, waiting: list[str]) -> tuple[str, int, int] | None:
        path = f"{place}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith("."):
                waiting.append(f"{path}/")
            else:
                self.passed_over += 1
            return None
        if entry.is_symlink():
            self.passed_over += entry.name.endswith(".jsonl") or os.path.isdir(entry.path)
            return None
        if not entry.name.endswith(".jsonl") or not entry.is_file(follow_symlinks=False):
            return None
        try:
            path.encode()
            there = entry.stat(follow_symlinks=False)
        except UnicodeEncodeError:
            self.nameless += 1
            return None
        except FileNotFoundError:
            return None  # gone meanwhile
        self.files += 1
        return path, there.st_size, there.st_mtime_ns

    def _unread(self, place: str, error: OSError) -> None:
        if not place:
            raise error
        if not isinstance(error, FileNotFoundError):
            self.unread_folders += 1
