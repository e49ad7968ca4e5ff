"""What a list says of one trace: read from the head and the tail of its file, however large that is.

The first line tells what was asked, the last ones how the run ended and what it was worth. What lies between is looked
through, event by event, in files of at most `LOOKED_THROUGH` bytes; of larger ones it is left to the page of the run.
Which files there are, and where summaries are kept, is `viewer.runs.trace_index`'s business.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from viewer.reading.event_lines import PREFIX, begins, event_of, seen, text_of, why_no_event
from viewer.reading.line_ends import LONGEST_LINE, WHOLE, Line, Lines
from viewer.reading.run_outcome import is_correct, kind_of_failure
from workflow.trace import AgentTurn, Answered, Rewarded, RunEnded, RunStarted

State = Literal["ended", "unfinished", "broken"]
"""`unfinished`: it is being written, or who wrote it was stopped. `broken`: a line of it is no event, or it cannot be
read."""
LOOKED_THROUGH = WHOLE
"""Bytes of a file all of whose lines are looked at; of a larger one the first and the last ones."""
QUESTION, ANSWER, MESSAGE, NAME, WRONG = 600, 400, 600, 200, 300
"""Characters that are shown of each."""
SEARCHED_QUESTION, SEARCHED_ANSWER, SEARCHED_MESSAGE, SEARCHED_NAMES = 50_000, 10_000, 10_000, 5_000
"""Characters in which words are looked for."""
UNREADABLE = "it cannot be read"
AFTER_THE_END = frozenset({"run_ended", "candidate", "turn_rewarded", "valued", "reward"})
"""Events with which a trace of a run that has ended may end."""
_STARTED, _ENDED = TypeAdapter(RunStarted), TypeAdapter(RunEnded)
_ANSWERED, _REWARDED = TypeAdapter(Answered), TypeAdapter(Rewarded)
Event = TypeVar("Event")


@dataclass(slots=True, kw_only=True)
class TraceSummary:
    """One trace file. What the file does not say is None, or empty. `size` is in bytes, `mtime_ns` in nanoseconds."""

    size: int = 0
    mtime_ns: int = 0
    state: State = "unfinished"
    wrong: str = ""
    """What is broken or missing, in words that stand alone."""
    run_id: str = ""
    question: str = ""
    asked: str = ""
    """Digest of the whole question: equal where two runs were asked the same."""
    program: str = ""
    """Digest of the program; empty where there was none. What structure it has is not in a trace."""
    engine: str = ""
    seed: str = ""
    failure: str | None = None
    """Kind, or `STOPPED`."""
    message: str = ""
    """Of the failure."""
    timed_out: bool = False
    """Its wall clock ended it: training leaves it out."""
    answer: str | None = None
    reward: float | None = None
    correct: bool | None = None
    """None where the trace has no reward with a term `correct`, as in evaluations."""
    tokens: int | None = None
    """Of prompts and completions."""
    seconds: float | None = None
    """Until the end, or until the last event that is there."""
    whole_question: str = field(default="", compare=False)
    """To search in, as are the next two: they are not shown."""
    whole_message: str = field(default="", compare=False)
    """Of the failure, where `message` is not all of it."""
    said: str = field(default="", compare=False)
    """The whole answer, and the names of the agents that were asked; of a large file, of the one that answered."""


def summarise(path: Path) -> TraceSummary | None:
    """The summary of a file; None for one that is no trace, such as metrics. Raises OSError where it is gone, is no
    plain file, or cannot be read."""
    with Lines(path) as lines:
        found = TraceSummary(size=lines.size, mtime_ns=lines.mtime_ns)
        if not _begin(found, lines):
            return None
        if found.state != "broken":
            _end(found, lines)
        if lines.whole is not None:
            _look_through(found, lines.whole)
        return found


def beginning(path: Path) -> RunStarted | None:
    """The first event of a trace, whole; None where there is none. Raises OSError."""
    with Lines(path) as lines:
        line, _ = lines.first()
    try:
        return None if len(line) > LONGEST_LINE else _STARTED.validate_json(text_of(line))
    except ValidationError:
        return None


def unreadable(size: int, mtime_ns: int, why: str) -> TraceSummary:
    return TraceSummary(size=size, mtime_ns=mtime_ns, state="broken", wrong=excerpt(f"{UNREADABLE}: {why}", WRONG))


def digest(text: str) -> str:
    """A short name for a question or a program."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()


def excerpt(text: str, most: int) -> str:
    """The beginning of a text, and of a long one its end as well."""
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]} … {text[len(text) - (most - head - 3) :]}"


# The head


def _begin(found: TraceSummary, lines: Lines) -> bool:
    """Take what the first line says. False for a file that is no trace."""
    if lines.size == 0:
        _broken(found, "it is empty: nothing was recorded, or nothing yet")
        return True
    line, ends = lines.first()
    if len(line) > LONGEST_LINE:
        return _begin_long(found, line)
    try:
        started = _STARTED.validate_json(text_of(line))
    except ValidationError:
        return _wrong_start(found, line, ends)
    found.run_id, found.engine = excerpt(started.run_id, NAME), excerpt(started.engine, NAME)
    found.question, found.asked = excerpt(started.question, QUESTION), digest(started.question)
    found.whole_question = started.question[:SEARCHED_QUESTION]
    found.program = digest(started.program) if started.program else ""
    found.seed = excerpt(str(started.seed), NAME)
    return True


def _begin_long(found: TraceSummary, line: bytes) -> bool:
    """Of a first line that is too long to be read whole: the part of the question that was read."""
    try:
        known = from_json(text_of(line).encode(), allow_partial="trailing-strings")
    except ValueError as error:
        _broken(found, f"line 1: it is no JSON ({error})")
        return True
    if not isinstance(known, dict) or known.get("type") != "run_started":
        return False
    found.run_id = excerpt(str(known.get("run_id", "")), NAME)
    found.question = excerpt(str(known.get("question", "")), QUESTION)
    return True


def _wrong_start(found: TraceSummary, line: bytes, ends: bool) -> bool:
    try:
        known: Any = from_json(text_of(line))
    except ValueError:
        cut = not ends and line[:1] == b"{"
        _broken(found, "line 1: it is cut short" if cut else f"line 1: {why_no_event(line)}")
        return True
    kind = known.get("type") if isinstance(known, dict) else None
    wrong = why_no_event(line)
    if wrong and kind != "run_started":
        return False  # JSON lines of something else
    _broken(found, f"line 1: {wrong or f'it is of {kind}, and a trace begins with run_started'}")
    return True


# The tail


def _end(found: TraceSummary, lines: Lines) -> None:
    """Take what the last lines say: the answer, the end and the reward, behind which nothing else comes."""
    cut_short = ""
    ended = False
    for number, line in enumerate(lines.backwards()):
        torn = number == 0 and not line.ends
        known = begins(lines.read(line, PREFIX))
        if torn or known is None:
            why = _why_not(lines, line)
            if why and torn and line.start:
                cut_short = "its last line is cut short"
                continue
            if why:
                return _broken(found, f"{_place(lines, line)}: {why}")
            known = known or seen(lines.read(line, LONGEST_LINE))
        kind = known.type if known else ""
        if found.seconds is None and known:
            found.seconds = _finite(known.t)
        if kind == "reward" and not ended and found.reward is None:
            if reward := _event(_REWARDED, found, lines, line):
                _take_reward(found, reward)
        elif kind == "run_ended" and not ended:
            ended = True
            if end := _event(_ENDED, found, lines, line):
                _take_end(found, end)
        elif kind == "answer":
            if answer := _event(_ANSWERED, found, lines, line):
                found.answer = excerpt(answer.text, ANSWER)
                found.said = f"{answer.text[:SEARCHED_ANSWER]} {(answer.from_agent or '')[:NAME]}"
            break
        elif ended or kind not in AFTER_THE_END:
            break
        if found.state == "broken":
            return None
    found.state = "ended" if ended else "unfinished"
    found.wrong = cut_short or ("" if ended else "its run has not ended")
    return None


def _take_end(found: TraceSummary, end: RunEnded) -> None:
    found.seconds = _finite(end.t)
    found.tokens = min(end.usage.total_tokens, 2**62)
    if end.failure is not None:
        found.failure, found.message = kind_of_failure(end.failure), excerpt(end.failure.message, MESSAGE)
        if len(end.failure.message) > MESSAGE:
            found.whole_message = end.failure.message[:SEARCHED_MESSAGE]
        found.timed_out |= end.failure.fields.get("limit_kind") == "wall_s"


def _take_reward(found: TraceSummary, reward: Rewarded) -> None:
    found.reward = reward.total
    found.timed_out |= reward.timed_out
    found.correct = is_correct(reward)


def _event(adapter: TypeAdapter[Event], found: TraceSummary, lines: Lines, line: Line) -> Event | None:
    """A line as this event; None where it is none, and then the summary says so."""
    if line.end - line.start > LONGEST_LINE:
        _broken(found, f"{_place(lines, line)}: it has {line.end - line.start:,} bytes, too many for an event here")
        return None
    text = lines.read(line, LONGEST_LINE)
    try:
        return adapter.validate_json(text_of(text))
    except ValidationError:
        _broken(found, f"{_place(lines, line)}: {why_no_event(text)}")
        return None


def _why_not(lines: Lines, line: Line) -> str:
    if line.end - line.start > LONGEST_LINE:
        return f"it has {line.end - line.start:,} bytes and does not begin as an event does"
    return why_no_event(lines.read(line, LONGEST_LINE))


def _place(lines: Lines, line: Line) -> str:
    if lines.whole is not None:
        return f"line {lines.whole.count(10, 0, line.start) + 1}"  # of newlines before it
    return f"the line at byte {line.start:,}"


# Between


def _look_through(found: TraceSummary, whole: bytes) -> None:
    """Look at every line: for one that is no event, and for the agents that were asked."""
    *lines, last = whole.split(b"\n")
    names: dict[str, None] = {}
    for number, line in enumerate([*lines, last], 1):
        if not line.strip():
            continue
        try:
            event = event_of(line)
        except ValueError as error:
            if number <= len(lines) and found.state != "broken":
                _broken(found, f"line {number}: {error}")
            continue
        if isinstance(event, AgentTurn):
            names[event.agent[:NAME]] = None
    found.said = f"{found.said} {' '.join(names)[:SEARCHED_NAMES]}"


def _broken(found: TraceSummary, why: str) -> None:
    found.state, found.wrong = "broken", excerpt(why, WRONG)


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
