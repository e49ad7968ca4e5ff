"""The lines of a file from its first one, or from its last one backwards, without the rest of it.

It knows nothing of what the lines say. The file may grow, shrink or vanish meanwhile: what is read is what was there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trainer.disk import plain_files

WHOLE = 1 << 20
"""Bytes of a file that is read at once."""
CHUNK = 1 << 18
"""Bytes that are read at a time of a larger one."""
FARTHEST = 1 << 28
"""Bytes from its end that are looked at."""
LONGEST_LINE = 1 << 24
"""Bytes of a line that is read."""


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes `start` to `end` of the file, without the newline; `ends` says whether there is one."""

    start: int
    end: int
    ends: bool


class Lines:
    """An open plain file, as it was when it was opened. Raises OSError, naming the file, for anything else."""

    def __init__(self, path: Path) -> None:
        self._file = plain_files.opened(path)
        try:
            found = os.fstat(self._file)
            self.size, self.mtime_ns = found.st_size, found.st_mtime_ns
            self.whole: bytes | None = None
            """All of it, where it is small."""
            if self.size <= WHOLE:
                self.whole = os.pread(self._file, self.size, 0)
                self.size = len(self.whole)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._file)

    def first(self) -> tuple[bytes, bool]:
        """The first line, of a longer one `LONGEST_LINE` + 1 bytes, and whether a newline ends it."""
        wanted = CHUNK
        while True:
            data = self._at(0, min(wanted, LONGEST_LINE + 1))
            end = data.find(b"\n")
            if end >= 0:
                return data[:end], True
            if wanted > LONGEST_LINE or wanted >= self.size:
                return data, False
            wanted *= 8

    def backwards(self) -> Iterator[Line]:
        """Lines that are not empty, the last one first."""
        end = position = self.size
        ends = False
        while position > max(0, self.size - FARTHEST):
            begin = max(0, position - CHUNK)
            chunk = self._at(begin, position - begin)
            if len(chunk) < position - begin:
                return  # it has been cut meanwhile
            cut = len(chunk)
            while (newline := chunk.rfind(b"\n", 0, cut)) >= 0:
                start = begin + newline + 1
                if start < end:
                    yield Line(start, end, ends)
                end, cut, ends = start - 1, newline, True
            position = begin
        if position == 0 and end > 0:
            yield Line(0, end, ends)

    def read(self, line: Line, most: int) -> bytes:
        return self._at(line.start, min(line.end - line.start, most))

    def _at(self, start: int, count: int) -> bytes:
        if self.whole is not None:
            return self.whole[start : start + count]
        return os.pread(self._file, count, start)
