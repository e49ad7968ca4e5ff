"""Reads the trace of one run, whatever state its file is in: all events that can be read, and what could not be.

A killed writer leaves a torn last line, a full disk a broken one, and a run that goes on has no end yet. None of this
is an error here: it is told beside the events, with the line and the reason. Not here: what events mean
(`workflow.trace`), and who refuses such a file (`metaagent trace`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from workflow.trace import Event, Trace

LONGEST_LINE = 64 << 20
"""Bytes of one event; a longer line is passed over and told."""
MOST_BYTES = 512 << 20
"""Bytes of a file that are read."""
MOST_EVENTS = 200_000
"""Events of a file that are read."""
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

    @property
    def complete(self) -> bool:
        """Whether the run's end is on record."""
        return self.trace.ended is not None

    @property
    def torn(self) -> bool:
        return any(problem.kind == "torn" for problem in self.problems)


def read_run(path: Path) -> ReadRun:
    """All good events of a file in their order, those after a bad line included. Raises OSError alone."""
    events: list[Event] = []
    found: list[TraceProblem] = []
    left_out, size = 0, 0
    with path.open("rb") as file:
        for number, line, whole in _lines(file):
            size += len(line)
            if size > MOST_BYTES or len(events) >= MOST_EVENTS:
                what = f"{MOST_BYTES:,} bytes" if size > MOST_BYTES else f"{MOST_EVENTS:,} events"
                found.append(TraceProblem(kind="cut", line=number, reason=f"only the first {what} are shown"))
                break
            problem = _read(number, line, whole, events)
            if problem is not None and len(found) < MOST_PROBLEMS:
                found.append(problem)
            elif problem is not None:
                left_out += 1
    if left_out:
        found.append(TraceProblem(kind="more", reason=f"{left_out:,} more lines cannot be read"))
    return read_trace(path.name, Trace.model_construct(events=events), found, size)


def read_trace(name: str, trace: Trace, found: list[TraceProblem] | None = None, size: int = 0) -> ReadRun:
    """What `read_run` makes of events that are there already, such as those of a run that goes on."""
    problems = list(found or [])
    if not trace.events:
        problems.append(TraceProblem(kind="empty", reason="there are no events"))
    elif trace.ended is None:
        reason = "there is no end: the run goes on, or was killed"
        problems.append(TraceProblem(kind="no_end", reason=reason))
    return ReadRun(name=name, trace=trace, problems=tuple(problems), bytes=size)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes, bool]]:
    """Number, bytes and whether the line has its end. Of a line that is too long only its beginning."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        whole = line.endswith(b"\n")
        if not whole and len(line) > LONGEST_LINE:
            while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            whole = bool(rest)
        yield number, line, whole


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
