"""What an evaluation says of its traces, which do not say it themselves: whether the attempt was correct.

Reads lines that were added to a `results.jsonl` since the last time. Reports of evaluations are not made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from trainer.disk import plain_files

LONGEST_LINE = 1 << 24


class _Graded(BaseModel):
    trace: str | None = None
    correct: bool


def graded(file: Path, path: str, upto: int) -> Iterator[tuple[str, bool, int]]:
    """Paths of traces beside which `path` is that of the `file`, whether each was correct, and the byte behind its
    line. Lines before `upto`, and those that are no attempts or not whole, are passed over. Raises OSError."""
    folder = PurePosixPath(path).parent
    with open(plain_files.opened(file), "rb") as lines:
        lines.seek(upto)
        while line := lines.readline(LONGEST_LINE + 1):
            if not line.endswith(b"\n"):
                return
            upto += len(line)
            try:
                attempt = _Graded.model_validate_json(line.decode(errors="replace"))
            except ValidationError:
                continue
            if attempt.trace is not None:
                yield str(folder / attempt.trace), attempt.correct, upto
