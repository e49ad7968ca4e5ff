"""How difficult generated levels are, a set of knobs for each game. A wish that no level can meet is a ValueError that
names the knob."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from tasks.environments.sudoku import SIDES

Size = tuple[int, int]
"""Rows and columns."""
_FEWEST_GIVENS = {4: 4, 9: 17}
"""That leave one solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPathKnobs:
    size: Size = (10, 10)
    density: float = 0.22
    """Share of cells that are walls."""
    least_distance: int = 1
    """Moves of a shortest path, at least."""
    most_distance: int | None = None
    detour: float = 1.0
    """Moves of a shortest path over the Manhattan distance, at least."""

    def __post_init__(self) -> None:
        _check_size(self.size, 2, 40)
        if not 0 <= self.density < 1:
            _impossible("density", self.density, "a share from 0 to below 1 is needed")
        free = self.free
        if free < 2:
            _impossible("density", self.density, f"of {_shown(self.size)} fewer than 2 cells stay free. Fix: lower it")
        if self.least_distance < 1:
            _impossible("least_distance", self.least_distance, "at least 1 is needed")
        if self.least_distance >= free:
            _impossible(
                "least_distance",
                self.least_distance,
                f"a path in {free} free cells has at most {free - 1} moves. Fix: make it less, or the size larger",
            )
        if self.most_distance is not None and self.most_distance < self.least_distance:
            _impossible("most_distance", self.most_distance, f"the least is {self.least_distance}. Fix: make it more")
        if not 1 <= self.detour <= free:
            _impossible("detour", self.detour, f"a ratio from 1 to {free} is needed")
        if self.detour > 1 and not self.walls:
            _impossible("detour", self.detour, "without walls there are none. Fix: make density higher")

    @property
    def walls(self) -> int:
        return round(self.density * self.size[0] * self.size[1])

    @property
    def free(self) -> int:
        return self.size[0] * self.size[1] - self.walls


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanKnobs:
    size: Size = (6, 6)
    """With the border of walls."""
    boxes: int = 1
    density: float = 0.2
    """Share of the cells inside the border that are walls."""
    least_pushes: int = 1
    least_moves: int = 1
    """Pushes included."""

    def __post_init__(self) -> None:
        _check_size(self.size, 3, 20)
        if not 0 <= self.density < 1:
            _impossible("density", self.density, "a share from 0 to below 1 is needed")
        if self.boxes < 1:
            _impossible("boxes", self.boxes, "at least 1 is needed")
        if self.floor < self.boxes + 2:
            _impossible(
                "boxes",
                self.boxes,
                f"they need {self.boxes + 2} free cells, and {_shown(self.size)} with density {self.density:g} has "
                f"{self.floor}. Fix: make the size larger, or density lower",
            )
        positions = math.comb(self.floor, self.boxes) * (self.floor - self.boxes)
        for name in ("least_pushes", "least_moves"):
            least = getattr(self, name)
            if not 1 <= least < positions:
                _impossible(name, least, f"such levels have {positions:,} positions. Fix: take 1 to {positions - 1:,}")

    @property
    def walls(self) -> int:
        """Inside the border."""
        return round(self.density * self._inside)

    @property
    def floor(self) -> int:
        return self._inside - self.walls

    @property
    def _inside(self) -> int:
        return (self.size[0] - 2) * (self.size[1] - 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SudokuKnobs:
    size: int = 4
    """Digits, and cells in a row."""
    blanks: int | None = None
    """Cells to be filled in; None is half of all."""

    def __post_init__(self) -> None:
        if self.size not in SIDES:
            _impossible("size", self.size, f"a Sudoku's is one of {', '.join(map(str, SIDES))}")
        blanks = self.size**2 // 2 if self.blanks is None else self.blanks
        object.__setattr__(self, "blanks", blanks)
        most = self.size**2 - _FEWEST_GIVENS.get(self.size, self.size - 1)
        if not 1 <= blanks <= most:
            _impossible(
                "blanks",
                blanks,
                f"from 1 to {most} leave one solution in size {self.size}. Fix: take one of these",
            )


Knobs = PlanPathKnobs | SokobanKnobs | SudokuKnobs
KNOBS: dict[str, type[Knobs]] = {"plan_path": PlanPathKnobs, "sokoban": SokobanKnobs, "sudoku": SudokuKnobs}
"""By the name of the game."""


def _check_size(size: Size, least: int, most: int) -> None:
    if not all(least <= side <= most for side in size):
        _impossible("size", _shown(size), f"rows and columns from {least} to {most} are needed")


def _shown(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _impossible(knob: str, value: object, why: str) -> NoReturn:
    raise ValueError(f"{knob}={value}: {why}")
