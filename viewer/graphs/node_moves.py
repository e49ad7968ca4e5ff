"""How work can go on inside the nodes of a program: from where a node is to what an agent was asked next.

A node's state says where its work is; it is any hashable value. `enter` begins an activation with an agent's turn, `go`
goes on with one, and both give every state in which the node may be then, with the moves that led there: several where
a Trace leaves it open. Conditions are not known, so whatever they may decide is possible. What a run did is worked out
of this by `viewer.graphs.run_moves`; nothing here reads a Trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from viewer.graphs.run_order import TASK, bare

WELL, BROKEN = 1, 2
"""How an activation may be over: with a result, or with an exception. Both can be possible."""

Path = tuple[str, ...]
State = Any
"""Hashable."""


class Move(NamedTuple):
    """What work did to get to an agent's turn, inside one node."""

    node: Path
    depth: int
    """Of the node in the path under which it ran."""
    kind: str
    """`way`, or what is counted: `visit` (of the node), `pass`, `round`, `review`."""
    source: Path = ()
    """Part of the node; empty for the way in."""
    target: Path = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """An agent's turn."""

    index: int
    """Of its event in the trace."""
    path: Path
    begins: bool
    """Whether it begins an activation."""
    fresh: bool | None
    """Whether the agent was shown nothing that any other agent said; None where that tells nothing."""
    failed: bool
    accepts: bool | None
    """Whether it says that what it reviewed is right; None where that is not certain."""
    verdict: bool
    """Whether it holds a verdict at all."""


Found = list[tuple[State, tuple[Move, ...]]]


class Part:
    """A node of the program. This one works unseen: it asks nobody that is known."""

    nullable = True
    """Whether it may work without asking any agent."""
    may_break = True
    """Whether it may raise without any failed turn, as a program's own functions may."""

    def __init__(self, path: Path, parts: Iterable[Part] = ()) -> None:
        self.path = path
        self.segment = path[-1] if path else ""
        self.parts = list(parts)

    def enter(self, turn: Asked, depth: int) -> Found:
        """With a turn under this node, whose own path has `depth` names."""
        return []

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        return []

    def over(self, state: State) -> int:
        """How the activation may be over in this state; 0 if it cannot be."""
        return WELL | BROKEN

    def accepts(self, state: State) -> bool | None:
        """Of a critic that is done."""
        return None

    def visited(self, depth: int) -> Move:
        return Move(self.path, depth, "visit")


class Agent(Part):
    """State: (failed, accepts, verdict) of its activation so far."""

    nullable = may_break = False

    def enter(self, turn: Asked, depth: int) -> Found:
        return [((turn.failed, turn.accepts, turn.verdict), ())] if turn.begins and len(turn.path) == depth else []

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        failed, accepts, verdict = state
        if failed or turn.begins or len(turn.path) != depth:
            return []
        # What it hands on may hold earlier turns, too.
        accepts = turn.accepts if not verdict or accepts == turn.accepts else None
        return [((turn.failed, accepts, verdict or turn.verdict), ())]

    def over(self, state: State) -> int:
        return BROKEN if state[0] else WELL

    def accepts(self, state: State) -> bool | None:
        return state[1]


class Chain(Part):
    """Parts in order, some of them under a condition; in a loop, `most` times. State: (part, its state, passes)."""

    def __init__(self, path: Path, parts: Iterable[Part], labels: Iterable[str], loop: bool, most: int | None) -> None:
        super().__init__(path, parts)
        self._labels, self._loop, self._most = list(labels), loop, most
        self._skips = [part.nullable or bool(label) for part, label in zip(self.parts, self._labels, strict=True)]
        self.nullable = all(self._skips)
        self.may_break = loop or any(self._labels) or any(part.may_break for part in self.parts)

    def _into(self, turn: Asked, depth: int, start: int, source: int | None, passes: int) -> Found:
        found: Found = []
        again = source is not None and start <= source
        if len(turn.path) <= depth:
            return found
        for at in range(start, len(self.parts)):
            part, label = self.parts[at], self._labels[at]
            if part.segment == turn.path[depth]:
                target = self.parts[0].path if again else part.path
                origin = () if source is None else self.parts[-1].path if again else self.parts[source].path
                told = ", ".join(word for word in ("again" if again else "", label) if word)
                moves = [Move(self.path, depth, "way", origin, target, told)]
                moves += [self.visited(depth)] if source is None else []
                counts = self._loop and not self.nullable  # what may ask nobody goes round unseen
                moves += [Move(self.path, depth, "pass")] if counts and (again or source is None) else []
                found += [((at, state, passes), (*moves, *more)) for state, more in part.enter(turn, depth + 1)]
            if not self._skips[at]:
                break
        return found

    def enter(self, turn: Asked, depth: int) -> Found:
        return self._into(turn, depth, 0, None, 1)

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        at, inner, passes = state
        part = self.parts[at]
        found: Found = []
        if len(turn.path) > depth and part.segment == turn.path[depth]:
            found += [((at, then, passes), moves) for then, moves in part.go(inner, turn, depth + 1)]
        if part.over(inner) & WELL and turn.fresh is not True:
            found += self._into(turn, depth, at + 1, at, passes)
            if self._loop and all(self._skips[at + 1 :]) and (self._most is None or passes < self._most):
                found += self._into(turn, depth, 0, at, passes + 1)
        return found

    def over(self, state: State) -> int:
        at, inner, _ = state
        ended = self.parts[at].over(inner)
        well = ended & WELL and all(self._skips[at + 1 :])
        return (WELL if well else 0) | (BROKEN if ended & BROKEN or (ended and self.may_break) else 0)


class Choice(Part):
    """A router. State: (route, its state)."""

    def __init__(self, path: Path, parts: Iterable[Part], labels: Iterable[str]) -> None:
        super().__init__(path, parts)
        self._labels = list(labels)
        self.nullable = any(part.nullable for part in self.parts)

    def enter(self, turn: Asked, depth: int) -> Found:
        found: Found = []
        for at, (part, label) in enumerate(zip(self.parts, self._labels, strict=True)):
            if turn.path[depth : depth + 1] == (part.segment,):
                moves = (Move(self.path, depth, "way", (), part.path, label), self.visited(depth))
                found += [((at, state), (*moves, *more)) for state, more in part.enter(turn, depth + 1)]
        return found

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        at, inner = state
        if turn.path[depth : depth + 1] != (self.parts[at].segment,):
            return []
        return [((at, then), moves) for then, moves in self.parts[at].go(inner, turn, depth + 1)]

    def over(self, state: State) -> int:
        at, inner = state
        return self.parts[at].over(inner)


class Own(Part):
    """A node whose own code decides, or the program itself: any part at any time, again or side by side.

    State: pairs of what runs and its state, sorted. `anew` says whether a turn may begin a part once more.
    """

    def __init__(
        self, path: Path, parts: Iterable[Part], anew: frozenset[bool | None] = frozenset((True, False, None))
    ):
        super().__init__(path, parts)
        self._anew = anew

    def enter(self, turn: Asked, depth: int) -> Found:
        return self.go((), turn, depth)

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        begun: dict[tuple[str, ...], State] = dict(state)
        at = depth
        while at < len(turn.path) - 1 and bare(turn.path[at]) == TASK and not self._parts_at(turn.path[at]):
            at += 1
        found: Found = []
        for place in self._parts_at(turn.path[at]) if at < len(turn.path) else ():
            part, key = self.parts[place], (*turn.path[depth : at + 1], str(place))
            nexts: Found = []
            before = begun.get(key)
            if before is not None:
                nexts += part.go(before, turn, at + 1)
            if before is None or (part.over(before) and turn.fresh in self._anew):
                nexts += part.enter(turn, at + 1)
            found += [(tuple(sorted({**begun, key: then}.items(), key=_key)), moves) for then, moves in nexts]
        return found

    def _parts_at(self, segment: str) -> list[int]:
        return [at for at, part in enumerate(self.parts) if part.segment in (segment, bare(segment))]


def _key(pair: tuple[tuple[str, ...], State]) -> tuple[str, ...]:
    return pair[0]
