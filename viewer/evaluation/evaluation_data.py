"""An evaluation's folder (`evaluation.json`, `results.jsonl`, `traces/`), read as it is: also while it grows, and where
lines are broken.

Attempts are read one after the other, and of each a short row is kept; the figures are those that `metaagent eval`
prints (`trainer.evaluate.EvalSums`), over all attempts of the folder. What of it is shown is the business of
`viewer.evaluation.evaluation_page`. Nothing here writes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from trainer.disk import plain_files
from trainer.evaluate import RESULTS, SETTINGS, Attempt, EvalReport, EvalSums
from viewer.evaluation.attempt_rows import LONGEST_LINE, Row, attempt_of, name_of, row_of
from viewer.reading import stamp
from workflow.failures import FailureKind

MOST_SETTINGS = 1 << 22
MOST_NAMED = 20
"""Broken lines whose reason is kept; the others are counted."""
MOST_EXAMPLES = 3
"""Of each kind of failure."""


@dataclass(frozen=True, slots=True)
class Broken:
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Example:
    """A failed attempt."""

    line: int
    problem: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a folder holds at one time."""

    folder: Path
    made_by: dict[str, Any]
    """As `evaluation.json` says; empty where it says nothing."""
    rows: list[Row]
    """In the order of their lines. Of attempts that are there twice the last one, as `metaagent eval` takes it."""
    report: EvalReport
    examples: dict[FailureKind, list[Example]]
    broken: list[Broken]
    """The first `MOST_NAMED`."""
    broken_count: int
    repeated: int
    """Attempts that a later line made anew."""
    torn: bool
    """The last line has no end: its writer was killed, or still writes it."""
    unread: str
    """Why `evaluation.json` says nothing; empty where it does."""

    def of_problem(self, problem: str) -> list[Row]:
        return self._by_problem.get(problem, [])

    def of_trace(self, trace: str) -> Row | None:
        return self._by_trace.get(trace)

    @cached_property
    def _by_problem(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.problem, []).append(row)
        return found

    @cached_property
    def _by_trace(self) -> dict[str, Row]:
        return {row.trace: row for row in self.rows if row.trace}


@dataclass(slots=True)
class _Progress:
    """How far a file has been read, and what was in it."""

    inode: int = 0
    offset: int = 0
    last: bytes = b""
    """The end of what has been read."""
    line: int = 0
    rows: list[Row] = field(default_factory=list)
    lines: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of each attempt at a problem."""
    sums: EvalSums = field(default_factory=EvalSums)
    examples: dict[FailureKind, dict[str, Example]] = field(default_factory=dict)
    """By kind, and by the message without its numbers."""
    broken: list[Broken] = field(default_factory=list)
    broken_count: int = 0
    torn: bool = False

    def goes_on(self, file: BinaryIO) -> bool:
        """Whether the file still holds what has been read of it."""
        file.seek(self.offset - len(self.last))
        return file.read(len(self.last)) == self.last


class EvaluationReader:
    """Reads a folder, and later what has come since. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._progress = _Progress()
        self._overruled: set[int] = set()
        """Lines of attempts that a later line made anew."""
        self._version = ""
        self._read: Evaluation | None = None

    @property
    def results(self) -> Path:
        return self.folder / RESULTS

    def version(self) -> str:
        """Another text once `read` would give something else. Raises OSError where there is no such folder."""
        os.stat(self.folder)
        return f"{_stamp(self.results)} {_stamp(self.folder / SETTINGS)}"

    def read(self) -> Evaluation:
        """Raises OSError for a folder that is not there, and for one whose attempts cannot be read."""
        version = self.version()
        if self._read is None or version != self._version:
            self._follow()
            self._read, self._version = self._snapshot(), version
        return self._read

    def attempt(self, row: Row) -> Attempt:
        """All of an attempt. Raises OSError, and ValueError where its line has become another one."""
        with open(plain_files.opened(self.results), "rb") as file:
            file.seek(row.offset)
            attempt = attempt_of(file.readline(LONGEST_LINE + 1))
        if isinstance(attempt, str) or (name_of(attempt.problem), attempt.attempt) != (row.problem, row.attempt):
            raise ValueError(f"{self.results}, line {row.line}, is not what it was. Fix: reload")
        return attempt

    def _follow(self) -> None:
        if not os.path.lexists(self.results):
            self._progress, self._overruled = _Progress(), set()
            return
        with open(plain_files.opened(self.results), "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._progress.inode or not self._progress.goes_on(file):
                self._progress, self._overruled = _Progress(inode=found.st_ino), set()
            if self._take(file):  # attempts that were summed up are made anew in later lines: sum up without them
                self._progress = _Progress(inode=found.st_ino)
                self._take(file)

    def _take(self, file: BinaryIO) -> bool:
        """Read on to the end; whether attempts were among what was read before."""
        at, again = self._progress, False
        file.seek(at.offset)
        at.torn = False
        for line in _lines(file):
            if not line.endswith(b"\n") and len(line) <= LONGEST_LINE:
                at.torn = bool(line.strip())
                break
            number, offset = at.line + 1, at.offset
            at.line, at.offset = number, file.tell()
            at.last = line[-64:] if line.endswith(b"\n") else b""
            if number in self._overruled or not line.strip():
                continue
            attempt = attempt_of(line)
            if isinstance(attempt, str):
                at.broken_count += 1
                if len(at.broken) < MOST_NAMED:
                    at.broken.append(Broken(number, attempt))
                continue
            if (before := at.lines.get((attempt.problem, attempt.attempt))) is not None:
                self._overruled.add(before)
                again = True
            at.lines[attempt.problem, attempt.attempt] = number
            at.rows.append(row_of(attempt, number, offset))
            at.sums.add(attempt)
            if attempt.failure is not None:
                kind = at.examples.setdefault(attempt.failure, {})
                if len(kind) < MOST_EXAMPLES:
                    told = re.sub(r"\d+", "0", attempt.message[:200])
                    kind.setdefault(told, Example(number, name_of(attempt.problem), attempt.message[:2000]))
        return again

    def _snapshot(self) -> Evaluation:
        at = self._progress
        made_by, unread = _made_by(self.folder / SETTINGS)
        return Evaluation(
            folder=self.folder,
            made_by=made_by,
            rows=at.rows[:],
            report=at.sums.report(),
            examples={kind: [*examples.values()] for kind, examples in at.examples.items()},
            broken=at.broken[:],
            broken_count=at.broken_count,
            repeated=len(self._overruled),
            torn=at.torn,
            unread=unread,
        )


def _stamp(path: Path) -> str:
    try:
        return stamp(path.lstat())
    except OSError:
        return "-"


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines; of one that is too long its begin, with `file` behind it all the same."""
    while line := file.readline(LONGEST_LINE + 1):
        rest = line
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE + 1)
        yield line


def _made_by(path: Path) -> tuple[dict[str, Any], str]:
    """What `evaluation.json` says, or nothing and why."""
    try:
        found = json.loads(plain_files.read(path, MOST_SETTINGS))
    except FileNotFoundError:
        return {}, f"{path.name}, which says how the attempts were made, is missing"
    except OSError as error:
        return {}, f"{path.name} cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return {}, f"{path.name} does not say how the attempts were made: {str(error)[:200]}"
    return (found, "") if isinstance(found, dict) else ({}, f"{path.name} does not say how the attempts were made")
