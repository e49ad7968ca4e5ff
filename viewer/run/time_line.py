"""When the parts of a run worked: a bar for each agent turn, tool call and code run, in a lane for each agent.

Bars that would lie on one another get lanes of their own; bars too short to be seen apart are one. Pure: seconds in,
shares of the width out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from viewer.graphs import span
from viewer.html import seconds
from workflow.trace import AgentTurn, CodeRan, EnvironmentStepped, Event, ToolCalled, ToolReturned, Trace

MOST_LANES = 40
MOST_BARS = 300
"""Of a lane."""
_AT_ONCE_S = 2e-6
"""Durations in a Trace are rounded to microseconds."""
_LONG_S = 120
"""Seconds from which times are written in minutes."""
_SHORTEST = 0.15
"""Per cent of the width that a bar takes at least."""


@dataclass(slots=True)
class Bar:
    kind: str
    """`turn`, `tool`, `code`, `game`, or `mixed`."""
    start: float
    end: float
    told: str
    index: int
    failed: bool = False
    count: int = 1
    left: float = 0.0
    """Per cent of the width, as `width`."""
    width: float = 0.0
    goto: str | None = None

    @property
    def title(self) -> str:
        more = f" and {self.count - 1:,} more" if self.count > 1 else ""
        return f"{self.told}{more}: {seconds(self.start)} to {seconds(self.end)}"


@dataclass(slots=True)
class Lane:
    name: str
    """Empty for a further lane of the same agent."""
    bars: list[Bar] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TimeLine:
    lanes: list[Lane]
    total: float
    """Seconds."""
    ticks: list[tuple[float, str]]
    """Per cent of the width, and the time there."""
    notes: list[str]


def time_line(
    trace: Trace, names: Callable[[str], str], goto: Callable[[int], str | None] = lambda index: f"e{index}"
) -> TimeLine:
    """`names` gives the lane's name for a path. Without any time on record there are no lanes."""
    rows: dict[str, list[Bar]] = {}
    for path, bar in _bars(trace.events):
        rows.setdefault(path, []).append(bar)
    ended = trace.ended
    ends = [bar.end for bars in rows.values() for bar in bars] + ([span(ended)[1]] if ended is not None else [])
    total = max(ends, default=0.0)
    if total <= 0:
        return TimeLine([], 0.0, [], [])
    lanes: list[Lane] = []
    notes: list[str] = []
    in_order = sorted(rows.items(), key=lambda row: (round(row[1][0].start, 2), row[0]))
    for number, (path, bars) in enumerate(in_order):
        if len(lanes) >= MOST_LANES:
            notes.append(f"{len(rows) - number:,} more are not drawn.")
            break
        tracks, crowded = _tracks(sorted(bars, key=lambda bar: bar.start), MOST_LANES - len(lanes))
        for place, track in enumerate(tracks):
            lanes.append(Lane(names(path) if not place else "", _drawn(track, total, goto)))
        if crowded:
            notes.append(f"{crowded:,} at {names(path)} are not drawn, since too much worked at once.")
    return TimeLine(lanes, total, _ticks(total), notes)


def _bars(events: Iterable[Event]) -> Iterable[tuple[str, Bar]]:
    """Path and bar. A tool is at work from its call to its result."""
    called: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for index, event in enumerate(events):
        start, end = span(event)
        if isinstance(event, AgentTurn):
            yield event.path, Bar("turn", start, end, "reply", index, event.completion is None)
        elif isinstance(event, ToolCalled):
            called.setdefault((event.path, event.name), []).append((index, end))
        elif isinstance(event, ToolReturned):
            waiting = called.get((event.path, event.name))
            at, began = waiting.pop(0) if waiting else (index, end)
            yield event.path, Bar("tool", began, end, "tool", at, event.is_error)
        elif isinstance(event, CodeRan):
            yield event.path, Bar("code", start, end, "code", index, bool(event.limit) or event.exit_status != 0)
        elif isinstance(event, EnvironmentStepped):
            yield event.path, Bar("game", end, end, "action", index, not event.legal)
    for (path, _), waiting in called.items():
        for at, began in waiting:
            yield path, Bar("tool", began, began, "tool without a result", at, True)


def _tracks(bars: Iterable[Bar], most: int) -> tuple[list[list[Bar]], int]:
    """Bars without overlap, and how many are left out: each goes into the first track that is free, such as code that a
    tool runs beside the tool."""
    tracks: list[list[Bar]] = []
    left_out = 0
    for bar in bars:
        free = next((track for track in tracks if track[-1].end <= bar.start + _AT_ONCE_S), None)
        if free is not None:
            free.append(bar)
        elif len(tracks) < most:
            tracks.append([bar])
        else:
            left_out += 1
    return tracks, left_out


def _drawn(track: list[Bar], total: float, goto: Callable[[int], str | None]) -> list[Bar]:
    """Shares of the width. What cannot be told apart is one bar."""
    bars: list[Bar] = []
    nearest = total * max(_SHORTEST, 100 / MOST_BARS if len(track) > MOST_BARS else 0) / 100
    for bar in track:
        last = bars[-1] if bars else None
        if last is not None and bar.end - last.start <= nearest:
            last.end, last.count, last.failed = bar.end, last.count + bar.count, last.failed or bar.failed
            last.kind = bar.kind if bar.kind == last.kind else "mixed"
        else:
            bars.append(bar)
    for bar in bars:
        bar.left = round(min(100 - _SHORTEST, max(0.0, 100 * bar.start / total)), 3)
        bar.width = round(max(_SHORTEST, min(100 - bar.left, 100 * (bar.end - bar.start) / total)), 3)
        bar.goto = goto(bar.index)
    return bars


def _ticks(total: float) -> list[tuple[float, str]]:
    """Times that differ as they are written: so many decimals as that takes."""
    shares = [25.0 * part for part in range(5)]
    at = [total * share / 100 for share in shares]
    told = [seconds(each) for each in at]
    if len({*told}) < len(told) and total < _LONG_S:
        digits = next((digits for digits in range(1, 7) if len({f"{each:.{digits}f}" for each in at}) == len(at)), None)
        if digits is None:
            return [(0.0, "0 s"), (100.0, f"{total:.1g} s")]
        told = [f"{each:.{digits}f} s" for each in at]
    return list(zip(shares, told, strict=True))
