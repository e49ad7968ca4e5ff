"""What an evaluation says of its traces, which do not say it themselves: whether the attempt was correct.

Reads lines that were added to a `results.jsonl` since the last time, or all of them where it is another file now.
Reports of evaluations are not made here.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from types import TracebackType

from pydantic import BaseModel, ValidationError

from trainer.disk import plain_files

LONGEST_LINE = 1 << 24
_CHUNK = 1 << 20


class _Graded(BaseModel):
    trace: str | None = None
    correct: bool


class GradedAttempts:
    """An open `file`, whose path is `path` beside those of the traces. `upto` and `digest` are what they were when it
    was last read; `goes_on` says whether it still begins so. Raises OSError."""

    def __init__(self, file: Path, path: str, upto: int = 0, digest: str = "") -> None:
        self._file = os.fdopen(plain_files.opened(file), "rb")
        self._folder = PurePosixPath(path).parent
        self._begin()
        while self.upto < upto and (some := self._file.read(min(upto - self.upto, _CHUNK))):
            self._take(some)
        self.goes_on = self.digest == digest
        if not self.goes_on:
            self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        self.upto, self._digest = 0, hashlib.blake2b(digest_size=12)

    def _take(self, data: bytes) -> None:
        self.upto += len(data)
        self._digest.update(data)

    @property
    def digest(self) -> str:
        """Of the first `upto` bytes, which were read."""
        return self._digest.hexdigest()

    def some(self, most: int) -> list[tuple[str, bool]]:
        """Paths of the next traces, and whether each was correct; none at the end. Lines that are no attempts or not
        whole are passed over."""
        found: list[tuple[str, bool]] = []
        while len(found) < most and (line := self._file.readline(LONGEST_LINE + 1)).endswith(b"\n"):
            self._take(line)
            try:
                attempt = _Graded.model_validate_json(line.decode(errors="replace"))
            except ValidationError:
                continue
            if attempt.trace is not None:
                found.append((str(self._folder / attempt.trace), attempt.correct))
        return found

    def __enter__(self) -> GradedAttempts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
