"""How work can go on inside reflections, ensembles, debates and graphs of agents: see `viewer.graphs.node_moves`.

What else nodes can be is there. Nothing here reads a Trace.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewer.graphs.node_moves import BROKEN, WELL, Asked, Found, Move, Part, Path, State


class Review(Part):
    """A reflection: a solver and a critic. State: (0 or 1 for whose turn it was, their state, reviews)."""

    def __init__(self, path: Path, solver: Part, critic: Part, most: int | None) -> None:
        super().__init__(path, (solver, critic))
        self._most = most
        self.nullable = False
        self.may_break = solver.may_break or critic.may_break

    def enter(self, turn: Asked, depth: int) -> Found:
        return self._into(
            0, turn, depth, 0, [Move(self.path, depth, "way", (), self.parts[0].path), self.visited(depth)]
        )

    def _into(self, who: int, turn: Asked, depth: int, reviews: int, moves: list[Move]) -> Found:
        if len(turn.path) <= depth or self.parts[who].segment != turn.path[depth]:
            return []
        return [((who, then, reviews), (*moves, *more)) for then, more in self.parts[who].enter(turn, depth + 1)]

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        who, inner, reviews = state
        found: Found = []
        if turn.path[depth : depth + 1] == (self.parts[who].segment,):
            found += [((who, then, reviews), moves) for then, moves in self.parts[who].go(inner, turn, depth + 1)]
        if not self.parts[who].over(inner) & WELL or turn.fresh is True:
            return found
        solver, critic = (part.path for part in self.parts)
        if who == 0 and (self._most is None or reviews < self._most):
            moves = [Move(self.path, depth, "way", solver, critic), Move(self.path, depth, "review")]
            found += self._into(1, turn, depth, reviews + 1, moves)
        elif who == 1 and self.parts[1].accepts(inner) is not True:
            found += self._into(0, turn, depth, reviews, [Move(self.path, depth, "way", critic, solver, "refine")])
        return found

    def over(self, state: State) -> int:
        who, inner, reviews = state
        ended = self.parts[who].over(inner)
        well = (self._most is None or reviews >= self._most, self.parts[1].accepts(inner) is not False)[who]
        return (ended & WELL if well else 0) | (BROKEN if ended & BROKEN or (ended and self.may_break) else 0)


class Beside(Part):
    """Members that work side by side in rounds, then perhaps a judge. State: (states by member, round, judge's)."""

    def __init__(
        self, path: Path, members: Iterable[Part], judge: Part | None, label: str, rounds: int | None, needed: bool
    ) -> None:
        self._members, self._judge, self._label = list(members), judge, label
        super().__init__(path, [*self._members, *([judge] if judge is not None else [])])
        self._rounds, self._needed = rounds, needed
        self.nullable = False
        self.may_break = any(part.may_break for part in self.parts)

    def enter(self, turn: Asked, depth: int) -> Found:
        return self._begin(turn, depth, 1)

    def _begin(self, turn: Asked, depth: int, number: int) -> Found:
        nobody = (None,) * len(self._members)
        moves = (Move(self.path, depth, "round"), *((self.visited(depth),) if number == 1 else ()))
        return [(state, (*moves, *more)) for state, more in self._member(nobody, turn, depth, number)]

    def _member(self, states: tuple[State, ...], turn: Asked, depth: int, number: int) -> Found:
        """By a turn of a member in this round."""
        found: Found = []
        for at, part in enumerate(self._members):
            if len(turn.path) <= depth or part.segment != turn.path[depth]:
                continue
            before = states[at]
            if before is not None:
                nexts = part.go(before, turn, depth + 1)
            else:
                way = (Move(self.path, depth, "way", (), part.path),) if number == 1 else ()
                nexts = [(then, (*way, *more)) for then, more in part.enter(turn, depth + 1)]
            found += [(((*states[:at], then, *states[at + 1 :]), number, None), moves) for then, moves in nexts]
        return found

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        states, number, judge = state
        asks_judge = self._judge is not None and turn.path[depth : depth + 1] == (self._judge.segment,)
        if judge is not None:
            nexts = self._judge.go(judge, turn, depth + 1) if asks_judge and self._judge is not None else []
            return [((states, number, then), moves) for then, moves in nexts]
        found = self._member(states, turn, depth, number)
        if turn.fresh is True or not self._all_over(states):
            return found
        if self._rounds is None or number < self._rounds:
            found += self._begin(turn, depth, number + 1)
        if asks_judge and self._judge is not None and (self._rounds is None or number == self._rounds):
            ways = [Move(self.path, depth, "way", part.path, self._judge.path, self._label) for part in self._members]
            nexts = self._judge.enter(turn, depth + 1)
            found += [((states, number, then), (*ways, *more)) for then, more in nexts]
        return found

    def _all_over(self, states: Iterable[State]) -> bool:
        pairs = list(zip(self._members, states, strict=True))
        return all(
            part.nullable or part.may_break if state is None else part.over(state) or part.may_break
            for part, state in pairs
        )

    def over(self, state: State) -> int:
        states, number, judge = state
        if judge is not None and self._judge is not None:
            return self._judge.over(judge)
        if not self._all_over(states):
            return 0
        pairs = list(zip(self._members, states, strict=True))
        lost = all(part.may_break if each is None else bool(part.over(each) & BROKEN) for part, each in pairs)
        judged = self._judge is None or not self._needed or self._judge.nullable
        well = judged and (self._rounds is None or number == self._rounds)
        return (WELL if well else 0) | (BROKEN if lost or self.may_break else 0)


class Graph(Part):
    """An `AgentGraph`. State: (part, its state, steps)."""

    def __init__(
        self, path: Path, parts: Iterable[Part], edges: Iterable[tuple[int, int, str]], ends: set[int], most: int | None
    ) -> None:
        """`edges` are between parts, from -1 at the beginning; an empty label is always taken where no other was."""
        super().__init__(path, parts)
        self._edges, self._ends, self._most = list(edges), ends, most
        self._fixed = {source for source, _, label in self._edges if not label}
        self.nullable = False
        self.may_break = any(label for _, _, label in self._edges) or any(part.may_break for part in self.parts)

    def _from(self, source: int, turn: Asked, depth: int, steps: int) -> Found:
        found: Found = []
        origin = self.parts[source].path if source >= 0 else ()
        entry = (self.visited(depth),) if source < 0 else ()
        for at, target, label in self._edges:
            if at == source and turn.path[depth : depth + 1] == (self.parts[target].segment,):
                moves = (Move(self.path, depth, "way", origin, self.parts[target].path, label), *entry)
                nexts = self.parts[target].enter(turn, depth + 1)
                found += [((target, then, steps), (*moves, *more)) for then, more in nexts]
        return found

    def enter(self, turn: Asked, depth: int) -> Found:
        return self._from(-1, turn, depth, 1)

    def go(self, state: State, turn: Asked, depth: int) -> Found:
        at, inner, steps = state
        found: Found = []
        if turn.path[depth : depth + 1] == (self.parts[at].segment,):
            found += [((at, then, steps), moves) for then, moves in self.parts[at].go(inner, turn, depth + 1)]
        goes_on = self.parts[at].over(inner) & WELL and at not in self._ends and turn.fresh is not True
        if goes_on and (self._most is None or steps < self._most):
            found += self._from(at, turn, depth, steps + 1)
        return found

    def over(self, state: State) -> int:
        at, inner, steps = state
        ended = self.parts[at].over(inner)
        stops = at in self._ends or at not in self._fixed or self._most is None or steps >= self._most
        return (ended & WELL if stops else 0) | (BROKEN if ended & BROKEN or self.may_break else 0)
