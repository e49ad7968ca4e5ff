"""The teacher of the cold start: an engine that plays tools and planners, and errs at set rates.

An action is two moves, or one cell of a grid behind what is in its row, column and box. A mistake is two moves at
random, or a digit at random, so that what is right is one of the things that the pupil does, and the more likely one.
A planner that is shown proposals takes one of them at times without a look; else it takes one that is right, if there
is any, or works out its own. It knows the games by `tasks.environments` alone.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tasks.environments import (
    Edit,
    PlanPathState,
    State,
    SudokuState,
    act,
    fillings,
    plan_path,
    problem_of,
    reset,
)
from tasks.problems import PlanPathLevel, SudokuLevel
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed

MOVES = "UDLR"
AT_ONCE = 2
"""Moves of an action."""
_BOARD = re.compile(r"Turn \d of \d\.\n\n(.*?)\n\n", re.DOTALL)
_FILLED = re.compile(r"Filled in so far, as \[row, column, digit\]: (\[.*\])\.")
_PROPOSED = re.compile(r"^Proposed: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    tool: float
    """A proposal is a mistake."""
    planner: float
    """An action of its own is one."""
    adopts: float
    """A proposal is taken without a look."""


class Teacher:
    """Satisfies `engine.protocol.Engine`."""

    name = "teacher"

    def __init__(self, chances: Chances) -> None:
        self._chances = chances

    async def complete(self, request: CompletionRequest) -> Completion:
        asked = (request.messages or [])[-1]["content"]
        board = _BOARD.search(asked)
        if board is None:
            raise EngineFailed(self.name, f"agent {request.agent} shows no position. Fix: ask another engine")
        dice = random.Random(request.sampling.seed)
        filled = _FILLED.search(asked)
        state = _state(board[1], filled[1] if filled else "[]")
        return Completion(text=self.reply(state, _PROPOSED.findall(asked), request.agent == "Planner", dice))

    async def close(self) -> None:
        pass

    def reply(self, state: State, proposed: Sequence[str], plans: bool, dice: random.Random) -> str:
        if proposed and dice.random() < self._chances.adopts:
            return dice.choice(proposed)
        good = [text for text in proposed if _is_right(state, text)]
        if good:
            return dice.choice(good)
        errs = dice.random() < (self._chances.planner if plans else self._chances.tool)
        if isinstance(state, SudokuState):
            return _cell(state, dice.choice((1, 2, 3)) if errs else 0)
        assert isinstance(state, PlanPathState)
        return json.dumps([dice.choice(MOVES) for _ in range(AT_ONCE)] if errs else _way(state, dice))


def _state(board: str, filled: str) -> State:
    if "@" in board:
        return reset(problem_of(PlanPathLevel(level=board)))
    rows = [line.split() for line in board.splitlines()]
    for row, column, _ in json.loads(filled):
        rows[row - 1][column - 1] = "."
    begun = reset(problem_of(SudokuLevel(level="\n".join(map(" ".join, rows)))))
    return begun.play(filled).after if filled != "[]" else begun


def _is_right(state: State, text: str) -> bool:
    """Whether all of an action brings one nearer."""
    step = act(state, "", text)
    if isinstance(state, PlanPathState):
        return plan_path.on_shortest_path(step)  # pyright: ignore[reportArgumentType]
    assert isinstance(state, SudokuState)
    assert isinstance(step.after, SudokuState)
    nearer = len(_to_do(step.after)) < len(_to_do(state)) or _own(step.after) < _own(state)
    return step.legal and nearer


def _own(state: SudokuState) -> int:
    """Cells that are wrong."""
    return sum(bool(state.cells[r][c]) for r, c in _to_do(state))


@cache
def _solution(givens: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    [whole] = fillings(givens)
    return whole


def _way(state: PlanPathState, dice: random.Random) -> list[str]:
    moves: list[str] = []
    while not state.solved and len(moves) < AT_ONCE:
        ways = [move for move in MOVES if _is_right(state, json.dumps([move]))]
        moves.append(dice.choice(ways))
        after = state.play(json.dumps(moves[-1:])).after
        assert isinstance(after, PlanPathState)
        state = after
    return moves


def _cell(state: SudokuState, off: int) -> str:
    """The first cell that is blank or wrong: what stands around it, then what goes into it, or a digit that is `off` by
    so much. Where the right one is not legal, since another cell of its own is wrong, it is cleared."""
    row, column = _to_do(state)[0]
    cells, corner = state.cells, (row // 2 * 2, column // 2 * 2)
    around = [
        cells[row],
        [each[column] for each in cells],
        [cells[corner[0] + n // 2][corner[1] + n % 2] for n in range(4)],
    ]
    seen = " / ".join(" ".join(str(cell or ".") for cell in cells) for cells in around)
    right = (_solution(state.givens)[row][column] + off - 1) % 4 + 1
    if not off and state.forbids(Edit(row + 1, column + 1, right)):
        right = 0
    return f"{seen}: {right}\n#### {json.dumps([[row + 1, column + 1, right]])}"


def _to_do(state: SudokuState) -> list[tuple[int, int]]:
    """Cells that are wrong, then those that are blank."""
    whole = _solution(state.givens)
    off = [(r, c) for r, row in enumerate(state.cells) for c, cell in enumerate(row) if cell != whole[r][c]]
    return sorted(off, key=lambda place: not state.cells[place[0]][place[1]])
