"""Rectangular maps of symbols: read with errors that say where, turned and mirrored, searched by breadth."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tasks.environments.actions import STEPS
from tasks.environments.machine import LevelError

Cell = tuple[int, int]
"""Row and column, from 0."""
LARGEST = 64
"""Rows and columns of a map."""


def rows_of(level: str, symbols: str, game: str) -> tuple[str, ...]:
    """The lines of a map. Raises `LevelError` where it has other symbols, or is no rectangle of at most `LARGEST`."""
    rows = tuple(level.split("\n"))
    if not rows[0] or len(rows) > LARGEST or len(rows[0]) > LARGEST:
        raise LevelError(f"a level of {game} has 1 to {LARGEST} rows and columns", 1, 1)
    for line, row in enumerate(rows, 1):
        for column, symbol in enumerate(row, 1):
            if symbol not in symbols:
                raise LevelError(f"{symbol!r} is no symbol of {game}. Fix: use {shown_symbols(symbols)}", line, column)
        if len(row) != len(rows[0]):
            place = min(len(row), len(rows[0])) + 1
            raise LevelError(
                f"{len(row)} columns, the first line has {len(rows[0])}. Fix: make them equal", line, place
            )
    return rows


def shown_symbols(symbols: str) -> str:
    """`# . @ G`; a blank is called so."""
    return " ".join("blank" if symbol == " " else symbol for symbol in symbols)


def cells_of(rows: Sequence[str], symbols: str) -> list[Cell]:
    """Where these symbols stand, in reading order."""
    return [(r, c) for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol in symbols]


def the_one(rows: Sequence[str], symbols: str, what: str) -> Cell:
    """Where the only one of these symbols stands. Raises `LevelError`."""
    found = cells_of(rows, symbols)
    if not found:
        raise LevelError(f"there is no {what} ({' or '.join(symbols)}). Fix: put one in", len(rows), len(rows[-1]))
    if len(found) > 1:
        raise LevelError(f"a second {what}. Fix: leave one", found[1][0] + 1, found[1][1] + 1)
    return found[0]


def with_symbols(rows: Sequence[str], symbols: dict[Cell, str]) -> str:
    """The map as text, with these symbols in place of its own."""
    return "\n".join("".join(symbols.get((r, c), symbol) for c, symbol in enumerate(row)) for r, row in enumerate(rows))


def is_open(rows: Sequence[str], cell: Cell) -> bool:
    """Inside the map, and no wall."""
    r, c = cell
    return 0 <= r < len(rows) and 0 <= c < len(rows[0]) and rows[r][c] != "#"


def beside(cell: Cell, move: str) -> Cell:
    """Where a move leads, walls or not."""
    return cell[0] + STEPS[move][0], cell[1] + STEPS[move][1]


def manhattan(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def distances_to(rows: Sequence[str], goal: Cell) -> dict[Cell, int]:
    """Moves from each cell to `goal` on a shortest path; cells that no path joins to it are left out."""
    found = {goal: 0}
    waiting = deque([goal])
    while waiting:
        cell = waiting.popleft()
        for move in STEPS:
            other = beside(cell, move)
            if other not in found and is_open(rows, other):
                found[other] = found[cell] + 1
                waiting.append(other)
    return found


def canonical_map(level: str) -> str:
    """The same text for a map in all its 8 orientations: the least of them."""
    rows = level.split("\n")
    turned = ["".join(column) for column in zip(*rows, strict=True)]
    forms = [form for each in (rows, turned) for form in (each, each[::-1])]
    return min("\n".join(form) for each in forms for form in (each, [row[::-1] for row in each]))
