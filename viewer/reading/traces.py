"""Reads the trace of one run, whatever state its file is in: all events that can be read, and what could not be.

A killed writer leaves a torn last line, a full disk a broken one, and a run that goes on has no end yet. None of this
is an error here: it is told beside the events, with the line and the reason. Of a very large file the beginning and the
end are read, so that no file takes more than some hundred megabytes and a few seconds. Not here: what events mean
(`workflow.trace`), and who refuses such a file (`metaagent trace`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from workflow.trace import Event, Trace

LONGEST_LINE = 16 << 20
"""Bytes of one event; a longer line is passed over and told."""
MOST_BYTES = 32 << 20
"""Bytes of a file that are read. Of a larger one the last `LAST_BYTES` are among them."""
LAST_BYTES = 8 << 20
MOST_EVENTS = 100_000
"""Events of a file that are read from its beginning."""
MOST_PROBLEMS = 50
"""Lines that are told one by one; more are counted."""
_CHUNK = 1 << 20
_REASON = 300
_WHERE = re.compile(r" at line 1(?= column \d)")
"""Each line is read for itself: it is the first of its text, not of the file."""

ProblemKind = Literal["torn", "broken", "long", "more", "cut", "no_end", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProblem:
    """What is wrong with a file, or with one of its lines."""

    kind: ProblemKind
    line: int = 0
    """Counted from 1; 0 for the file as a whole."""
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """A run as far as its file tells it."""

    name: str
    """Of the file."""
    trace: Trace
    problems: tuple[TraceProblem, ...] = ()
    """In the order of the lines, then those of the whole file."""
    bytes: int = 0
    """That were read."""
    gap: int | None = None
    """Index of the first event behind what was left out of a very large file; None where nothing was."""

    @property
    def complete(self) -> bool:
        """Whether the run's end is on record."""
        return self.trace.ended is not None

    @property
    def torn(self) -> bool:
        return any(problem.kind == "torn" for problem in self.problems)


def read_run(path: Path) -> ReadRun:
    """All good events of a file in their order, those after a bad line included; of a very large one those at its
    beginning and at its end. Raises OSError alone."""
    reading = _Reading()
    gap = None
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        read = reading.read(file, MOST_BYTES if size <= MOST_BYTES else MOST_BYTES - LAST_BYTES, MOST_EVENTS)
        if read < size:
            start = max(read, size - LAST_BYTES)
            file.seek(start - 1)
            start += len(file.readline(LAST_BYTES)) - 1  # to where a line begins
            if start > read:
                gap = len(reading.events)
            last = reading.read(file, size - start, None, behind_a_gap=gap is not None)
            if gap is not None:
                reading.problems.append(TraceProblem(kind="cut", reason=_cut(path.name, read, last, size)))
            read += last
    if reading.untold:
        reading.problems.append(TraceProblem(kind="more", reason=f"{reading.untold:,} more lines cannot be read"))
    trace = Trace.model_construct(events=reading.events)
    return replace(read_trace(path.name, trace, reading.problems, read), gap=gap)


def _cut(name: str, first: int, last: int, size: int) -> str:
    return (
        f"only the first {first:,} and the last {last:,} of {size:,} bytes are shown, and what is said of the run as a "
        f"whole is said of these. Fix: metaagent trace {name[:100]} tells all of it"
    )


def read_trace(name: str, trace: Trace, found: list[TraceProblem] | None = None, size: int = 0) -> ReadRun:
    """What `read_run` makes of events that are there already, such as those of a run that goes on."""
    problems = list(found or [])
    if not trace.events:
        problems.append(TraceProblem(kind="empty", reason="there are no events"))
    elif trace.ended is None:
        reason = "there is no end: the run goes on, or was killed"
        problems.append(TraceProblem(kind="no_end", reason=reason))
    return ReadRun(name=name, trace=trace, problems=tuple(problems), bytes=size)


class _Reading:
    """What has been read of a file so far."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.problems: list[TraceProblem] = []
        self.untold = 0
        self._lines = 0

    def read(self, file: BinaryIO, most: int, most_events: int | None, *, behind_a_gap: bool = False) -> int:
        """Read lines until there are so many bytes or events. Returns the bytes that were read."""
        begin, size, before = file.tell(), 0, len(self.events)
        while size < most and (most_events is None or len(self.events) - before < most_events):
            line = file.readline(LONGEST_LINE + 1)
            if not line or (size and size + len(line) > most):
                break
            start, size = begin + size, size + len(line)
            self._lines += 1
            whole = line.endswith(b"\n")
            if not whole and len(line) > LONGEST_LINE:
                while size < most and not whole and (rest := file.readline(_CHUNK)):
                    size, whole = size + len(rest), rest.endswith(b"\n")
            problem = _read(self._lines, line, whole, self.events)
            if problem is not None and behind_a_gap:  # whose lines were not counted
                problem = replace(problem, line=0, reason=f"the line at byte {start:,}: {problem.reason}")
            if problem is not None and len(self.problems) < MOST_PROBLEMS:
                self.problems.append(problem)
            elif problem is not None:
                self.untold += 1
        file.seek(begin + size)
        return size


def _read(number: int, line: bytes, whole: bool, events: list[Event]) -> TraceProblem | None:
    """Adds the event of a line, or says why there is none."""
    if len(line) > LONGEST_LINE:
        return TraceProblem(kind="long", line=number, reason=f"it has more than {LONGEST_LINE:,} bytes")
    text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
    if not text.strip():
        return None
    try:
        # One line at a time, and always with its end: what is wrong with it is told, and the next one is read.
        events += Trace.from_lines([text if whole else text + "\n"]).events
    except (ValueError, RecursionError) as error:
        reason = _WHERE.sub("", str(error).removeprefix("trace line 1: "))
        reason = reason if len(reason) <= _REASON else reason[: _REASON - 1] + "…"
        if not whole:
            return TraceProblem(kind="torn", line=number, reason=f"it was cut short ({reason})")
        return TraceProblem(kind="broken", line=number, reason=reason)
    return None
