"""In what order the parts of a run worked, out of its Trace: which node came after which, and which side by side.

The path of an event names the nodes it happened in, from the outermost, as `workflow.scheduler` makes it:
`flow/vote/Solver[1]`, with an index where nodes run side by side. What a node does is in order; parts of one node with
different indices are not, whenever they happened to be served. Pure; draws nothing (`viewer.graphs.run_graph`).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from workflow.place import unescaped
from workflow.trace import AgentTurn, CodeRan, EnvironmentStepped, Event, Trace

DEEPEST = 12
"""Nodes inside one another that are told apart; what is deeper counts as one name."""
TASK = "task"
"""What a program starts by itself, as with `asyncio.gather`, runs under this name and an index."""
_AT_ONCE_S = 2e-6
"""Durations in a Trace are rounded to microseconds."""
_IDLE_S = 0.25
"""Seconds without work that mean something: a jail needs a few milliseconds from one request to the next."""
_BESIDE = 16
"""Acts that are looked at for what began together."""
MOST_WAYS_IN = 100
"""Places that are noted one by one as what came before."""
_INDEXED = re.compile(r"(.*)\[(\d+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that the run did at a place: one turn of an agent, code that was run, an action in a game."""

    index: int
    """Of its event in the trace."""
    path: tuple[str, ...]
    kind: str
    """`agent`, `code` or `game`."""
    start: float
    end: float
    begins: bool
    """Whether it begins an activation: false for an agent's turn after its tools."""

    @property
    def place(self) -> Place:
        return self.path, self.kind


Place = tuple[tuple[str, ...], str]
"""A path and what happens there: what becomes one box of a graph."""


def number(value: float) -> float:
    """`value`, or 0 for what is no number of seconds: a file may say anything."""
    return float(value) if math.isfinite(value) and abs(value) < 1e12 else 0.0


def span(event: Event) -> tuple[float, float]:
    """Seconds at which an event began and ended."""
    end = number(event.t)
    took = max(0.0, number(getattr(event, "duration_s", 0.0)))
    return end - took, end


class Paths:
    """Splits paths into the names of nodes. In older traces these may hold a slash: known ones are kept whole."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._known = {name for name in names if "/" in name}
        self._split: dict[str, tuple[str, ...]] = {}

    def split(self, path: str) -> tuple[str, ...]:
        if path not in self._split:
            parts = path.split("/") if path else []
            if self._known:
                parts = self._joined(parts)
            if len(parts) > DEEPEST:
                parts = [*parts[: DEEPEST - 1], "/".join(parts[DEEPEST - 1 :])]
            self._split[path] = tuple(map(unescaped, parts))
        return self._split[path]

    def _joined(self, parts: list[str]) -> list[str]:
        found: list[str] = []
        at = 0
        while at < len(parts):
            longest = at + 1
            for stop in range(min(len(parts), at + 8), at + 1, -1):
                if bare("/".join(parts[at:stop])) in self._known:
                    longest = stop
                    break
            found.append("/".join(parts[at:longest]))
            at = longest
        return found


def bare(segment: str) -> str:
    """The name of a node without its index."""
    match = _INDEXED.fullmatch(segment)
    return match[1] if match else segment


def index_of(segment: str) -> int | None:
    match = _INDEXED.fullmatch(segment)
    return int(match[2][:9]) if match else None


def acts_of(trace: Trace, paths: Paths) -> list[Act]:
    """What the run did, by the time at which it began. Code that an agent's own tools run belongs to the agent."""
    agents = {event.path for event in trace.events if isinstance(event, AgentTurn)}
    acts: list[Act] = []
    for index, event in enumerate(trace.events):
        if isinstance(event, AgentTurn):
            kind, begins = "agent", event.turn == 0
        elif isinstance(event, CodeRan):
            kind, begins = "code", True
        elif isinstance(event, EnvironmentStepped):
            kind, begins = "game", True
        else:
            continue
        if kind == "agent" or event.path not in agents:
            acts.append(Act(index, paths.split(event.path), kind, *span(event), begins))
    return sorted(acts, key=lambda act: act.start)


class Arrival(NamedTuple):
    """Work came to an act, alone or side by side with others, of which `leader` began first."""

    act: Act
    leader: Act


@dataclass(slots=True)
class Order:
    """What came directly after what."""

    follows: Counter[tuple[Place, Place]] = field(default_factory=Counter)
    """How often the second place worked directly after the first."""
    entered: dict[tuple[str, ...], dict[Place, None]] = field(default_factory=dict)
    """By node: the places that worked directly before it, all times together."""
    arrivals: dict[tuple[Place, Place], list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    """By what `follows` counts: the acts at which work came to the second place."""
    began: list[tuple[Place, Arrival]] = field(default_factory=list)
    """What worked first."""
    last: list[Place] = field(default_factory=list)
    places: dict[Place, None] = field(default_factory=dict)
    """All at which something was done: in order, those side by side by their indices."""
    joins: dict[tuple[tuple[str, ...], tuple[Place, ...], tuple[Place, ...]], Place] = field(default_factory=dict)
    """Where several wait for several: places of a node at which nothing is done."""

    def lead(self, sources: Sequence[Place], targets: Mapping[Place, Arrival], node: tuple[str, ...]) -> None:
        """In a node, work goes from all sources to all targets, by way of a join where both are several."""
        if min(len(sources), len(targets)) > 1:
            key = node, tuple(sources), tuple(targets)
            join = self.joins.setdefault(key, (node, f"join {len(self.joins)}"))
            self.follows.update([(source, join) for source in sources] + [(join, target) for target in targets])
            return
        for target, arrival in targets.items():
            self.came(sources, target, arrival)

    def came(self, sources: Iterable[Place], target: Place, arrival: Arrival) -> None:
        for source in sources:
            self.follows[source, target] += 1
            self.arrivals[source, target].append(arrival)


def order_of(acts: Sequence[Act]) -> Order:
    """The order of acts that are sorted by when they began."""
    order = Order()
    first, order.last = _walk((), acts, order, [])
    order.began = list(_together(first).items())
    return order


def _together(begins: Mapping[Place, Act]) -> dict[Place, Arrival]:
    leader = min(begins.values(), key=lambda act: (act.start, act.index), default=None)
    return {place: Arrival(act, leader or act) for place, act in begins.items()}


def _walk(
    node: tuple[str, ...], acts: Sequence[Act], order: Order, before: Sequence[Place]
) -> tuple[dict[Place, Act], list[Place]]:
    """The places at which the work of a node begins, with the acts, and where it ends, after those `before`; notes all
    that is in between."""
    order.entered.setdefault(node, {}).update(dict.fromkeys(before[:MOST_WAYS_IN]))
    first: dict[Place, Act] = {}
    last = before
    for step in _steps(acts, len(node)):
        begins: dict[Place, Act] = {}
        ends: dict[Place, None] = {}
        for segment, its_acts in sorted(step.items(), key=lambda part: index_of(part[0]) or 0):
            entry, exit_ = _walk((*node, segment), its_acts, order, last) if segment else _own(its_acts, order)
            begins |= entry
            ends.update(dict.fromkeys(exit_))
        if first:  # what leads to the first step is for whoever runs this node to say
            order.lead(last, _together(begins), node)
        first, last = first or begins, list(ends)
    return first, list(last) if first else []


def _own(acts: Sequence[Act], order: Order) -> tuple[dict[Place, Act], list[Place]]:
    """Acts of a node itself, in their order. Turns of one activation count as one visit."""
    visits = [act for place, act in enumerate(acts) if act.begins or not place]
    for before, act in pairwise(visits):
        order.came([before.place], act.place, Arrival(act, act))
    order.places.update(dict.fromkeys(act.place for act in visits))
    return {act.place: act for act in visits[:1]}, [act.place for act in visits[-1:]]


def _steps(acts: Sequence[Act], depth: int) -> list[dict[str, list[Act]]]:
    """What a node does one after the other: by part, "" for itself. A step of several parts is side by side."""
    steps: list[_Step] = []
    for place, act in enumerate(acts):
        segment = _part(act, depth)
        if not steps or not steps[-1].takes(segment, acts, place, depth):
            steps.append(_Step(parallel=index_of(segment) is not None))
        steps[-1].add(segment, act)
    return [step.acts for step in steps]


def _part(act: Act, depth: int) -> str:
    return act.path[depth] if len(act.path) > depth else ""


@dataclass(slots=True)
class _Step:
    """Parts of a node that worked side by side, or one part alone."""

    parallel: bool
    acts: dict[str, list[Act]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    indices: dict[int | None, str] = field(default_factory=dict)
    end: float = -math.inf
    overlapped: bool = False
    """Whether parts did work at the same time: an engine may well have served them one after the other."""

    def takes(self, segment: str, acts: Sequence[Act], place: int, depth: int) -> bool:
        """Whether the next act is still a part of this step."""
        index = index_of(segment)
        if not self.parallel or index is None:
            return index is None and not self.parallel and segment in self.acts
        if self.indices.get(index, segment) != segment:
            return False  # another node under this index: what ran side by side before is over
        act = acts[place]
        if act.begins and act.kind == "agent" and len(act.path) == depth + 1 and segment in self.acts:
            return False  # an agent works once where nodes run side by side: they run once more
        start = act.start
        if start < self.end - _AT_ONCE_S:
            return True  # others are still under way
        beside = [act for act in acts[place : place + _BESIDE] if act.start <= start + _IDLE_S]
        return not self.overlapped or not any(self._waited(_part(act, depth), act) for act in beside)

    def _waited(self, segment: str, act: Act) -> bool:
        """Whether a part was idle while others worked, and went on when they were done: it waited for them."""
        before = self.ended.get(segment)
        return act.begins and before is not None and before < min(self.end, act.start) - _IDLE_S

    def add(self, segment: str, act: Act) -> None:
        self.indices.setdefault(index_of(segment), segment)
        self.overlapped = self.overlapped or (segment not in self.acts and act.start < self.end - _AT_ONCE_S)
        self.ended[segment] = max(self.ended.get(segment, -math.inf), act.end)
        self.end = max(self.end, act.end)
        self.acts.setdefault(segment, []).append(act)
