"""sudoku: a grid of side n with each digit once in every row, column and box (Stronger-MAS, appendix B.3).

A level is n lines of n cells between blanks; `.` is a blank cell. n is 4, 9 or 16, and boxes are sqrt(n) wide.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tasks.environments.actions import UnreadableError, check_length, json_in, shown
from tasks.environments.grids import Cell
from tasks.environments.machine import Edit, LevelError, State, Step
from tasks.problems import SudokuLevel

SIDES = (4, 9, 16)
_CELL = re.compile(r"[^ ]+")
_DIGIT = re.compile(r"[1-9][0-9]?")
Grid = tuple[tuple[int, ...], ...]
"""Rows of digits; 0 is a blank cell."""


@dataclass(frozen=True, kw_only=True)
class SudokuState(State):
    kind: ClassVar[str] = "sudoku"
    givens: Grid
    """The level: what nobody may change."""
    cells: Grid
    """The grid now."""
    filled: frozenset[Cell] = frozenset()
    """Cells that have ever been filled in, whether or not they were cleared since."""

    @property
    def side(self) -> int:
        return len(self.cells)

    @property
    def board(self) -> str:
        return grid_text(self.cells)

    @property
    def situation(self) -> str:
        own = [[r + 1, c + 1, v] for r, c, v in _digits(self.cells) if not self.givens[r][c]]
        said = f"Blank cells: {blanks(self.cells)}."
        return f"{said} Filled in so far, as [row, column, digit]: {own}." if own else said

    @property
    def solved(self) -> bool:
        """All cells are filled, no digit stands twice in a row, column or box, and every given is as it was."""
        whole = set(range(1, self.side + 1))
        as_given = all(self.cells[r][c] == digit for r, c, digit in _digits(self.givens))
        return as_given and all({self.cells[r][c] for r, c in unit} == whole for unit in units(self.side))

    @property
    def _identity(self) -> str:
        return f"{self.givens}\n{self.cells}\n{sorted(self.filled)}"

    def play(self, text: str) -> Step[SudokuState]:
        """A list of edits, or a grid, played until one is illegal or all is solved.

        A grid is the edits that lead to it: own digits that differ are cleared, then cells filled in reading order.
        """
        try:
            value = json_in(text)
            edits = self._leading_to(value) if _is_square(value, self.side) else _edits(value, self.side)
        except UnreadableError as error:
            return Step(self, self, None, 0, str(error))
        now = self
        for number, edit in enumerate(edits):
            if now.solved:
                return Step(self, now, edits, number)
            if wrong := now.forbids(edit):
                return Step(self, now, edits, number, f"edit {number + 1} of {len(edits)}, {list(edit)}, {wrong}")
            now = now._with(edit)
        return Step(self, now, edits, len(edits))

    def forbids(self, edit: Edit) -> str:
        """Which rule an edit breaks; empty where it is legal."""
        r, c, digit = edit.row - 1, edit.column - 1, edit.value
        if self.givens[r][c]:
            return "" if self.givens[r][c] == digit else "changes a given"
        if digit and any(self.cells[y][x] == digit for y, x in peers(self.side, r, c)):
            return "repeats a digit in its row, column or box"
        return ""

    def _with(self, edit: Edit) -> SudokuState:
        r, c = edit.row - 1, edit.column - 1
        row = (*self.cells[r][:c], edit.value, *self.cells[r][c + 1 :])
        filled = self.filled | {(r, c)} if edit.value and not self.givens[r][c] else self.filled
        return replace(self, cells=(*self.cells[:r], row, *self.cells[r + 1 :]), filled=filled)

    def _leading_to(self, grid: list[list[Any]]) -> tuple[Edit, ...]:
        """The edits that make a grid of this one."""
        wanted = [[_number(digit, "digit", 0, self.side) for digit in row] for row in grid]
        differing = [(r, c) for r, c in _cells(self.side) if wanted[r][c] != self.cells[r][c]]
        cleared = [Edit(r + 1, c + 1, 0) for r, c in differing if self.cells[r][c] and not self.givens[r][c]]
        return (
            *cleared,
            *(Edit(r + 1, c + 1, wanted[r][c]) for r, c in differing if wanted[r][c] or self.givens[r][c]),
        )


def state_of(level: SudokuLevel) -> SudokuState:
    """Raises `LevelError`, also where givens contradict each other."""
    givens = _read(level.level)
    for r, c, digit in _digits(givens):
        twin = next(((y, x) for y, x in peers(len(givens), r, c) if givens[y][x] == digit), None)
        if twin is not None and twin < (r, c):
            raise _contradiction(level.level, givens, r, c, twin)
    return SudokuState(turns=level.turns, givens=givens, cells=givens)


def described(level: SudokuLevel) -> str:
    """The question: rules, form of an action, level."""
    side = len(level.level.splitlines())
    wide = math.isqrt(side)
    return (
        f"Solve the {side} x {side} Sudoku: every row, every column and every {wide} x {wide} box holds each digit "
        f"from 1 to {side} once. A dot is a blank cell; the given digits stay as they are. An edit that changes a "
        "given or repeats a digit is not made, and ends its list. "
        f"The grid must be whole after at most {level.turns} lists of edits.\n\n"
        "Write the whole grid, or a list of edits [row, column, digit], counted from 1, as JSON behind ####, as the "
        "last line of your answer; 0 leaves a cell blank:\n#### [[1, 2, 3], [4, 1, 2]]\n\n"
        f"The grid:\n{level.level}"
    )


def newly_filled(step: Step[SudokuState]) -> int:
    """Cells that this action filled in for the first time in the game: to clear a cell and fill it again is no gain."""
    return len(step.after.filled - step.before.filled)


def newly_written(step: Step[SudokuState]) -> int:
    """Cells that hold another digit than before: none where all edits clear cells, or leave them as they were."""
    return sum(
        bool(step.after.cells[r][c]) and step.after.cells[r][c] != step.before.cells[r][c]
        for r, c in _cells(step.before.side)
    )


def blanks(grid: Grid) -> int:
    return sum(not digit for row in grid for digit in row)


def grid_text(grid: Grid) -> str:
    """A grid in the form of levels."""
    width = len(str(len(grid)))
    return "\n".join(" ".join(f"{digit or '.':>{width}}" for digit in row) for row in grid)


@functools.cache
def units(side: int) -> list[list[Cell]]:
    """All rows, columns and boxes."""
    wide = math.isqrt(side)
    rows = [[(r, c) for c in range(side)] for r in range(side)]
    columns = [[(r, c) for r in range(side)] for c in range(side)]
    boxes = [
        [(r, c) for r in range(top, top + wide) for c in range(left, left + wide)]
        for top in range(0, side, wide)
        for left in range(0, side, wide)
    ]
    return rows + columns + boxes


@functools.cache
def peers(side: int, r: int, c: int) -> list[Cell]:
    """The other cells of the row, column and box of a cell."""
    wide = math.isqrt(side)
    return [
        (y, x)
        for y, x in _cells(side)
        if (y, x) != (r, c) and (y == r or x == c or (y // wide, x // wide) == (r // wide, c // wide))
    ]


def canonical_grid(level: str) -> str:
    """The same text for a level whatever its digits are called: they are named in the order in which they appear."""
    names: dict[int, int] = {0: 0}
    return grid_text(tuple(tuple(names.setdefault(digit, len(names)) for digit in row) for row in _read(level)))


def _read(level: str) -> Grid:
    lines = level.split("\n")
    side = len(lines)
    if side not in SIDES:
        raise LevelError(f"a sudoku has {', '.join(map(str, SIDES))} lines, this has {side}", side, 1)
    grid: list[tuple[int, ...]] = []
    for number, line in enumerate(lines, 1):
        row: list[int] = []
        for cell in _CELL.finditer(line):
            said = cell[0]
            if said != "." and not (_DIGIT.fullmatch(said) and int(said) <= side):
                what = f"{said[:20]!r} is no cell. Fix: write . or a digit from 1 to {side}"
                raise LevelError(what, number, cell.start() + 1)
            row.append(0 if said == "." else int(said))
        if len(row) != side:
            what = f"{len(row)} cells in a row of {side}. Fix: write {side}, with blanks between them"
            raise LevelError(what, number, len(line.rstrip()) + 1)
        grid.append(tuple(row))
    return tuple(grid)


def _contradiction(level: str, grid: Grid, r: int, c: int, twin: Cell) -> LevelError:
    places = [[cell.start() + 1 for cell in _CELL.finditer(line)] for line in level.split("\n")]
    there = f"line {twin[0] + 1}, column {places[twin[0]][twin[1]]}"
    what = f"{grid[r][c]} stands at {there}, too, in one row, column or box. Fix: change one"
    return LevelError(what, r + 1, places[r][c])


def _cells(side: int) -> Iterator[Cell]:
    return ((r, c) for r in range(side) for c in range(side))


def _digits(grid: Grid) -> Iterator[tuple[int, int, int]]:
    """Row, column and digit of the cells that are not blank, in reading order."""
    return ((r, c, digit) for r, row in enumerate(grid) for c, digit in enumerate(row) if digit)


def _is_square(value: Any, side: int) -> bool:
    return isinstance(value, list) and len(value) == side and all(isinstance(r, list) and len(r) == side for r in value)


def _edits(value: Any, side: int) -> tuple[Edit, ...]:
    if not isinstance(value, list):
        raise UnreadableError(f"a list of [row, column, digit] or a grid is needed, not {shown(value)}")
    check_length(value)
    edits: list[Edit] = []
    for each in value:
        if not isinstance(each, list) or len(each) != 3:
            raise UnreadableError(f"{shown(each)} is no [row, column, digit], and the whole no grid of side {side}")
        row, column, digit = each
        edits.append(
            Edit(_number(row, "row", 1, side), _number(column, "column", 1, side), _number(digit, "digit", 0, side))
        )
    return tuple(edits)


def _number(value: Any, what: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UnreadableError(f"{what} {shown(value)}: a whole number from {least} to {most} is needed")
    return value
