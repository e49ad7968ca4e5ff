"""One line of a trace: what kind of event it is, when that was, and what is wrong where it is none.

Not here: where lines come from (`viewer.reading.line_ends`), and what events say of a run.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from workflow.trace import Event, Trace

KINDS = frozenset(get_args(get_type_hints(each)["type"])[0] for each in get_args(get_args(Event)[0]))
PREFIX = 120
"""Bytes in which kind and time stand, if a line begins as we write it. Others may put spaces between."""
_BEGINS = re.compile(rb'\s*\{\s*"t"\s*:\s*([-+.0-9eE]{1,40})\s*,\s*"type"\s*:\s*"([a-z_]{1,40})"\s*[,}]')


@dataclass(frozen=True, slots=True)
class Seen:
    """Kind and time of an event."""

    type: str
    t: float = math.nan
    """Seconds; NaN where they are no number."""


_SEEN: TypeAdapter[Seen] = TypeAdapter(Seen)
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def begins(line: bytes) -> Seen | None:
    """By the beginning of a line; None where it does not begin as we write events."""
    found = _BEGINS.match(line[:PREFIX])
    if found is None or found[2].decode() not in KINDS:
        return None
    try:
        return Seen(found[2].decode(), float(found[1]))
    except ValueError:  # such as 1e+-
        return None


def seen(line: bytes) -> Seen | None:
    """By a whole line, in whatever order its fields stand; None where it is not JSON, or of no kind of ours. That the
    rest of it is an event is not said."""
    if found := begins(line):
        return found
    try:
        found = _SEEN.validate_json(line)
    except ValidationError:
        return None
    return found if found.type in KINDS else None


def kind_of(line: bytes) -> str | None:
    """The kind of event that a line says it is; None where it says none."""
    found = seen(line)
    return found.type if found else None


def event_of(line: bytes) -> Event:
    """Raises ValueError, which says why it is none."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        if b"\0" in line:
            raise ValueError("it holds zero bytes, as after a crash of the machine or in a binary file") from None
        try:  # as the page of a run reads it, also where its bytes are no text
            (event,) = Trace.from_lines([text_of(line) + "\n"]).events
        except ValueError as error:
            raise ValueError(str(error).removeprefix("trace line 1: ")) from None
        return event


def why_no_event(line: bytes) -> str:
    """What is wrong with a line, in words; empty where it is an event, or blank."""
    if not line.strip():
        return ""
    try:
        event_of(line)
    except ValueError as error:
        return str(error)
    return ""


def text_of(line: bytes) -> str:
    return line.decode("utf-8-sig", errors="replace")
