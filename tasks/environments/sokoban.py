"""sokoban: boxes are pushed onto goals, never pulled (Stronger-MAS, appendix B.5).

A level is a map of `#` (wall), blank (floor), `.` (goal), `$` (box), `@` (you), `*` (box on a goal) and `+` (you on a
goal). What lies outside the map is wall.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tasks.environments.actions import UnreadableError, moves_in
from tasks.environments.grids import Cell, beside, cells_of, is_open, manhattan, rows_of, the_one, with_symbols
from tasks.environments.machine import LevelError, State, Step
from tasks.problems import SokobanLevel

SYMBOLS = "# .$@*+"


@dataclass(frozen=True, kw_only=True)
class SokobanState(State):
    kind: ClassVar[str] = "sokoban"
    ground: tuple[str, ...]
    """The map with walls, floor and goals alone."""
    player: Cell
    boxes: frozenset[Cell]

    @property
    def goals(self) -> frozenset[Cell]:
        return frozenset(cells_of(self.ground, "."))

    @property
    def board(self) -> str:
        goals = self.goals
        symbols = {box: "*" if box in goals else "$" for box in self.boxes}
        return with_symbols(self.ground, symbols | {self.player: "+" if self.player in goals else "@"})

    @property
    def situation(self) -> str:
        return f"Boxes on goals: {boxes_on_goals(self)} of {len(self.boxes)}."

    @property
    def solved(self) -> bool:
        return self.boxes <= self.goals

    def play(self, text: str) -> Step[SokobanState]:
        """A list of moves, played until one is illegal or all boxes are on goals."""
        try:
            moves = moves_in(text)
        except UnreadableError as error:
            return Step(self, self, None, 0, str(error))
        now = self
        for number, move in enumerate(moves):
            if now.solved:
                return Step(self, now, moves, number)
            there = beside(now.player, move)
            behind = beside(there, move)
            wrong = ""
            if not is_open(self.ground, there):
                wrong = "leads into a wall"
            elif there in now.boxes and (behind in now.boxes or not is_open(self.ground, behind)):
                wrong = "pushes a box against a wall or another box"
            if wrong:
                return Step(self, now, moves, number, f"move {number + 1} of {len(moves)}, {move}, {wrong}")
            boxes = now.boxes - {there} | {behind} if there in now.boxes else now.boxes
            now = replace(now, player=there, boxes=boxes)
        return Step(self, now, moves, len(moves))


def state_of(level: SokobanLevel) -> SokobanState:
    """Raises `LevelError`. Whether the level can be solved is asked of `tasks.environments.sokoban_search`."""
    rows = rows_of(level.level, SYMBOLS, "sokoban")
    player = the_one(rows, "@+", "player")
    boxes, goals = cells_of(rows, "$*"), cells_of(rows, ".*+")
    if not boxes:
        raise LevelError("there is no box ($). Fix: put one in", len(rows), len(rows[-1]))
    if len(boxes) != len(goals):
        more, place = ("boxes", boxes[-1]) if len(boxes) > len(goals) else ("goals", goals[-1])
        raise LevelError(
            f"boxes: {len(boxes)}, goals: {len(goals)}. Fix: take {more} away, or add the others",
            place[0] + 1,
            place[1] + 1,
        )
    ground = with_symbols(rows, {cell: "." if cell in goals else " " for cell in (player, *boxes)})
    return SokobanState(turns=level.turns, ground=tuple(ground.split("\n")), player=player, boxes=frozenset(boxes))


def described(level: SokobanLevel) -> str:
    """The question: rules, form of an action, level."""
    return (
        "Push every box onto a goal. # is a wall, a blank is floor, . a goal, $ a box, @ is you; * is a box on a goal, "
        "+ is you on a goal. The moves U, D, L and R go one cell up, down, left and right, and push the box that "
        "stands there one cell further. A move into a wall, or that would push a box against a wall or another box, is "
        f"not made, and ends its list. All boxes must be on goals after at most {level.turns} lists of moves.\n\n"
        'Write a list of moves as JSON behind ####, as the last line of your answer:\n#### ["U", "R"]\n\n'
        f"The map:\n{level.level}"
    )


def boxes_on_goals(state: SokobanState) -> int:
    """b_t of B.5."""
    return len(state.boxes & state.goals)


def cornered(state: SokobanState) -> int:
    """Boxes off goals that stand in a corner of walls, where nothing can push them out (static deadlocks)."""
    return sum(
        any(_is_corner(state, box, pair) for pair in ("UL", "UR", "DL", "DR")) for box in state.boxes - state.goals
    )


def _is_corner(state: SokobanState, box: Cell, sides: str) -> bool:
    return not any(is_open(state.ground, beside(box, side)) for side in sides)


def potential(state: SokobanState) -> int:
    """psi_t of B.5: minus the sum over boxes of the Manhattan distance to the nearest goal."""
    goals = state.goals
    return -sum(min(manhattan(box, goal) for goal in goals) for box in state.boxes)
