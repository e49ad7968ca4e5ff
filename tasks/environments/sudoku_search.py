"""All ways to fill in a Sudoku, by the cell with the fewest candidates first; and whole grids drawn at random.

Bounded: a search that takes too long says so, and does not go on.
"""

from __future__ import annotations

import functools
import random

from tasks.environments.sudoku import Grid, peers

MOST_PLACED = 50_000
"""Digits that a search places before it gives up."""


class SearchTooLong(Exception):
    """A search placed as many digits as it may."""


def fillings(grid: Grid, most: int = 2, dice: random.Random | None = None) -> list[Grid]:
    """The first `most` ways to fill in a grid; digits are tried in their order, or in that of the dice.

    The givens must not contradict each other. Raises `SearchTooLong`.
    """
    side = len(grid)
    cells = [digit for row in grid for digit in row]
    others = _peers(side)
    free = [_candidates(cells, others[place], side) for place in range(side * side)]
    found: list[Grid] = []
    room = MOST_PLACED

    def search() -> None:
        nonlocal room
        best, fewest = -1, side + 1
        for place, digit in enumerate(cells):
            if not digit and (count := free[place].bit_count()) < fewest:
                best, fewest = place, count
                if count < 2:
                    break
        if best < 0:
            found.append(tuple(tuple(cells[r * side : (r + 1) * side]) for r in range(side)))
            return
        digits = [digit for digit in range(1, side + 1) if free[best] >> digit & 1]
        if dice is not None:
            dice.shuffle(digits)
        for digit in digits:
            room -= 1
            if room < 0:
                raise SearchTooLong
            changed = [place for place in others[best] if not cells[place] and free[place] >> digit & 1]
            cells[best] = digit
            for place in changed:
                free[place] ^= 1 << digit
            search()
            cells[best] = 0
            for place in changed:
                free[place] ^= 1 << digit
            if len(found) >= most:
                return

    search()
    return found


def _candidates(cells: list[int], others: tuple[int, ...], side: int) -> int:
    """The digits that stand in none of the other cells, a bit for each."""
    free = (1 << side + 1) - 2
    for place in others:
        if cells[place]:
            free &= ~(1 << cells[place])
    return free


@functools.cache
def _peers(side: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(y * side + x for y, x in peers(side, r, c)) for r in range(side) for c in range(side))
