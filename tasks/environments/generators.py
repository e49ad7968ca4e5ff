"""Levels drawn at random, each proven solvable before it is given out.

Which split a level belongs to follows from a hash of its canonical form (a map in any of its 8 orientations, a Sudoku
whatever its digits are called), so that splits are disjoint whatever the seeds. No two levels of a set have the same
one.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable

from tasks.environments.grids import Cell, canonical_map, distances_to, manhattan, with_symbols
from tasks.environments.knobs import Knobs, PlanPathKnobs, SokobanKnobs, SudokuKnobs
from tasks.environments.playing import described, state_of
from tasks.environments.sokoban import SokobanState
from tasks.environments.sokoban_search import costs
from tasks.environments.sudoku import SudokuState, canonical_grid, grid_text
from tasks.environments.sudoku_search import SearchTooLong, fillings
from tasks.problems import TURNS, Environment, PlanPathLevel, Problem, SokobanLevel, SudokuLevel
from tasks.splits import Split, split_of_identity

MOST_POSITIONS = 20_000
"""Of a Sokoban's map that are looked at for a level."""
_MISSES: dict[str, int] = {"plan_path": 2000, "sokoban": 500, "sudoku": 300}
"""Draws in a row that may give nothing before a wish is called too narrow."""


def generate(
    knobs: Knobs,
    count: int,
    *,
    split: Split = "train",
    seed: int = 0,
    turns: int = TURNS,
    watch: Callable[[int], None] = lambda done: None,
) -> list[Problem]:
    """`count` different levels of one game and split, in the order in which the seed draws them.

    `watch` is told how many there are after each. Raises ValueError where the knobs leave too few to draw from, after a
    bounded number of draws.
    """
    kind, draw = _DRAW[type(knobs)]
    dice = random.Random(f"{kind} {seed}")
    drawn: dict[str, Problem] = {}
    misses = 0
    while len(drawn) < count:
        environment = draw(dice, knobs, turns)
        identity = None if environment is None else identity_of(environment)
        if environment is None or identity is None or identity in drawn or split_of_identity(identity) != split:
            misses += 1
            if misses > _MISSES[kind]:
                raise ValueError(
                    f"only {len(drawn)} levels of {kind}, split {split}, were found, {count} are wanted: the last "
                    f"{misses:,} draws gave no new one with {_shown(knobs)}. Fix: ask for fewer, or for {_EASIER[kind]}"
                )
            continue
        misses = 0
        drawn[identity] = problem_of(environment)
        watch(len(drawn))
    return list(drawn.values())


def problem_of(environment: Environment, name: str = "") -> Problem:
    """The problem of playing a level; without a name it is called by its kind and a hash of the level."""
    digest = hashlib.blake2b(environment.level.encode(), digest_size=6).hexdigest()
    return Problem(
        id=name or f"{environment.kind}-{digest}",
        question=described(environment),
        domain="game",
        environment=environment,
    )


def identity_of(environment: Environment) -> str:
    """The same text for levels that are one and the same, turned, mirrored or renamed."""
    canonical = canonical_grid if isinstance(environment, SudokuLevel) else canonical_map
    return f"{environment.kind}\n{canonical(environment.level)}"


def split_of(environment: Environment) -> Split:
    """Which split a level belongs to."""
    return split_of_identity(identity_of(environment))


def solution_grids(problems: Iterable[Problem]) -> set[str]:
    """The whole grids of the Sudokus among these problems, up to renaming digits. A 4 x 4 Sudoku has 12.

    Raises ValueError for one whose solution cannot be found, or is not the only one.
    """
    found: set[str] = set()
    for problem in problems:
        if isinstance(problem.environment, SudokuLevel):
            state = state_of(problem.environment)
            assert isinstance(state, SudokuState)
            try:
                whole = fillings(state.givens)
            except SearchTooLong:
                whole = []
            if len(whole) != 1:
                raise ValueError(f"problem {problem.id!r} has {len(whole) or 'no known'} solutions. Fix: leave it out")
            found.add(canonical_grid(grid_text(whole[0])))
    return found


def shared_grids(problems: Iterable[Problem], training: Iterable[Problem]) -> tuple[int, int]:
    """How many solution grids of the Sudokus in `problems` are those of Sudokus in `training`, too, and of how many."""
    grids = solution_grids(problems)
    return len(grids & solution_grids(training)), len(grids)


def _plan_path(dice: random.Random, knobs: PlanPathKnobs, turns: int) -> PlanPathLevel | None:
    """None where no goal is as it is wished."""
    height, width = knobs.size
    cells = [(r, c) for r in range(height) for c in range(width)]
    walls = set(dice.sample(cells, knobs.walls))
    ground = with_symbols(["." * width] * height, dict.fromkeys(walls, "#")).split("\n")
    start = dice.choice([cell for cell in cells if cell not in walls])
    most = knobs.most_distance or len(cells)
    goals = [
        (cell, moves)
        for cell, moves in distances_to(ground, start).items()
        if knobs.least_distance <= moves <= most and moves >= knobs.detour * manhattan(start, cell)
    ]
    if not goals:
        return None
    goal, optimum = dice.choice(goals)
    return PlanPathLevel(level=with_symbols(ground, {start: "@", goal: "G"}), turns=turns, optimum=optimum)


def _sokoban(dice: random.Random, knobs: SokobanKnobs, turns: int) -> SokobanLevel | None:
    """None where no position of the map that was drawn is as it is wished."""
    height, width = knobs.size
    inside: list[Cell] = [(r, c) for r in range(1, height - 1) for c in range(1, width - 1)]
    walls = set(dice.sample(inside, knobs.walls))
    floor = [cell for cell in inside if cell not in walls]
    goals = dice.sample(floor, knobs.boxes)
    symbols = dict.fromkeys(floor, " ") | dict.fromkeys(goals, ".")
    ground = tuple(with_symbols(["#" * width] * height, symbols).split("\n"))
    moves = costs(ground, "moves", MOST_POSITIONS).of
    pushes = costs(ground, "pushes", MOST_POSITIONS).of
    fitting = [
        position
        for position, fewest in moves.items()
        if fewest >= knobs.least_moves and pushes.get(position, 0) >= knobs.least_pushes
    ]
    if not fitting:
        return None
    position = dice.choice(fitting)
    state = SokobanState(turns=turns, ground=ground, player=position[0], boxes=position[1])
    return SokobanLevel(level=state.board, turns=turns, pushes=pushes[position], moves=moves[position])


def _sudoku(dice: random.Random, knobs: SudokuKnobs, turns: int) -> SudokuLevel | None:
    """None where the grid that was drawn has one solution only with fewer blanks, or it takes too long to tell."""
    side = knobs.size
    empty = ((0,) * side,) * side
    try:
        rows = [list(row) for row in fillings(empty, most=1, dice=dice)[0]]
        cells = [(r, c) for r in range(side) for c in range(side)]
        dice.shuffle(cells)
        missing = knobs.blanks or 0
        for place, (r, c) in enumerate(cells):
            if missing > len(cells) - place:
                return None
            digit, rows[r][c] = rows[r][c], 0
            if len(fillings(tuple(map(tuple, rows)))) == 1:
                missing -= 1
            else:
                rows[r][c] = digit
            if not missing:
                return SudokuLevel(level=grid_text(tuple(map(tuple, rows))), turns=turns)
    except SearchTooLong:
        pass
    return None


_DRAW: dict[type[Knobs], tuple[str, Callable[..., Environment | None]]] = {
    PlanPathKnobs: ("plan_path", _plan_path),
    SokobanKnobs: ("sokoban", _sokoban),
    SudokuKnobs: ("sudoku", _sudoku),
}
_EASIER = {
    "plan_path": "a larger size, a lower least_distance, a higher most_distance, a lower detour",
    "sokoban": "a larger size, fewer boxes, lower least_pushes and least_moves",
    "sudoku": "a larger size, or fewer blanks (where they are few, more)",
}


def _shown(knobs: Knobs) -> str:
    return ", ".join(f"{name}={getattr(knobs, name)}" for name in knobs.__slots__)
