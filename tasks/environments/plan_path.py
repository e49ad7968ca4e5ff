"""plan_path: a way through a grid (Stronger-MAS, appendix B.4 and D).

A level is a map with one `@` (where you are), one `G` (the goal), `#` (wall) and `.` (free).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

from tasks.environments.actions import UnreadableError, moves_in
from tasks.environments.grids import (
    Cell,
    beside,
    distances_to,
    is_open,
    manhattan,
    rows_of,
    the_one,
    with_symbols,
)
from tasks.environments.machine import LevelError, State, Step
from tasks.problems import PlanPathLevel

SYMBOLS = "#.@G"


@dataclass(frozen=True, kw_only=True)
class PlanPathState(State):
    kind: ClassVar[str] = "plan_path"
    ground: tuple[str, ...]
    """The map with walls and free cells alone."""
    start: Cell
    position: Cell
    goal: Cell

    @property
    def board(self) -> str:
        """`*` is the goal, reached."""
        return with_symbols(self.ground, {self.goal: "G", self.position: "*" if self.solved else "@"})

    @property
    def situation(self) -> str:
        here, goal = self.position, self.goal
        return (
            f"You (@) are at row {here[0] + 1}, column {here[1] + 1}; "
            f"the goal (G) is at row {goal[0] + 1}, column {goal[1] + 1}."
        )

    @property
    def solved(self) -> bool:
        return self.position == self.goal

    @property
    def _identity(self) -> str:
        return f"{self.start}\n{self.board}"

    def play(self, text: str) -> Step[PlanPathState]:
        """A list of moves, played until one is illegal or the goal is reached."""
        try:
            moves = moves_in(text)
        except UnreadableError as error:
            return Step(self, self, None, 0, str(error))
        position = self.position
        for number, move in enumerate(moves):
            if position == self.goal:
                return Step(self, replace(self, position=position), moves, number)
            there = beside(position, move)
            if not is_open(self.ground, there):
                wrong = f"move {number + 1} of {len(moves)}, {move}, leads into a wall or off the grid"
                return Step(self, replace(self, position=position), moves, number, wrong)
            position = there
        return Step(self, replace(self, position=position), moves, len(moves))


def state_of(level: PlanPathLevel) -> PlanPathState:
    """Raises `LevelError`, also where no path leads to the goal."""
    rows = rows_of(level.level, SYMBOLS, "plan_path")
    start, goal = the_one(rows, "@", "start"), the_one(rows, "G", "goal")
    ground = tuple(with_symbols(rows, {start: ".", goal: "."}).split("\n"))
    if start not in _distances(ground, goal):
        raise LevelError("no path leads from here to the goal. Fix: take walls away", start[0] + 1, start[1] + 1)
    return PlanPathState(turns=level.turns, ground=ground, start=start, position=start, goal=goal)


def described(level: PlanPathLevel) -> str:
    """The question: rules, form of an action, level."""
    return (
        "Find a way through a grid: @ is where you are, G the goal, # a wall, . a free cell. The moves U, D, L and R "
        "go one cell up, down, left and right. A move into a wall or off the grid is not made, and ends its list. "
        f"The goal must be reached with at most {level.turns} lists of moves.\n\n"
        'Write a list of moves as JSON behind ####, as the last line of your answer:\n#### ["U", "R"]\n\n'
        f"The grid:\n{level.level}"
    )


def distance(state: PlanPathState) -> int:
    """Moves to the goal on a shortest path."""
    return _distances(state.ground, state.goal)[state.position]


def manhattan_distance(state: PlanPathState) -> int:
    """d_t of B.4: rows and columns to the goal, whatever stands between."""
    return manhattan(state.position, state.goal)


def manhattan_at_start(state: PlanPathState) -> int:
    """d_0 of B.4, at least 1."""
    return max(1, manhattan(state.start, state.goal))


def on_shortest_path(step: Step[PlanPathState]) -> bool:
    """Whether every move of the action was made and lies on a shortest path; an action without moves is on none."""
    moves = step.action or ()
    return 0 < step.applied == len(moves) == distance(step.before) - distance(step.after)


@functools.lru_cache(maxsize=1024)
def _distances(ground: tuple[str, ...], goal: Cell) -> dict[Cell, int]:
    return distances_to(ground, goal)
