"""The fewest moves and the fewest pushes that solve a Sokoban, from every position at once.

The search goes backwards from the solved positions, over (player, boxes), so that what it reaches can be solved.
Bounded: it says whether it has seen all there is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from tasks.environments.actions import STEPS
from tasks.environments.grids import Cell, beside, cells_of, is_open

Position = tuple[Cell, frozenset[Cell]]
"""The player and the boxes."""
Cost = Literal["moves", "pushes"]


@dataclass(frozen=True, slots=True)
class Costs:
    """What it takes from each position to a solved one: the fewest moves, or the fewest pushes."""

    of: dict[Position, int]
    complete: bool
    """All positions that can be solved are there."""


def costs(ground: tuple[str, ...], cost: Cost, limit: int) -> Costs:
    """The cheapest `limit` positions of a map with as many boxes as goals."""
    goals = frozenset(cells_of(ground, "."))
    floor = [cell for cell in cells_of(ground, " .") if cell not in goals]
    waiting = deque[tuple[Position, int]](((player, goals), 0) for player in floor)
    known: dict[Position, int] = {}
    while waiting:
        position, spent = waiting.popleft()
        if position in known:
            continue
        if len(known) >= limit:
            return Costs(known, complete=False)
        known[position] = spent
        for before, pushes in _before(ground, position):
            if before not in known:
                if cost == "moves" or pushes:
                    waiting.append((before, spent + 1))
                else:
                    waiting.appendleft((before, spent))
    return Costs(known, complete=True)


def _before(ground: tuple[str, ...], position: Position) -> list[tuple[Position, bool]]:
    """From where one move leads here, and whether it pushes. A solved position leads nowhere: the game is over."""
    player, boxes = position
    found: list[tuple[Position, bool]] = []
    for move, (down, right) in STEPS.items():
        origin = (player[0] - down, player[1] - right)
        if not is_open(ground, origin) or origin in boxes:
            continue
        found.append(((origin, boxes), False))
        pushed = beside(player, move)
        if pushed in boxes:
            found.append(((origin, boxes - {pushed} | {player}), True))
    return found
