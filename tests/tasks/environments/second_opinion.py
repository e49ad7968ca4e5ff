"""The same questions answered another way: searches and validators that share no code with `tasks.environments`."""

from __future__ import annotations

import itertools

DELTAS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def find(level: str, symbols: str) -> list[tuple[int, int]]:
    return [(r, c) for r, row in enumerate(level.split("\n")) for c, each in enumerate(row) if each in symbols]


def path_moves(level: str) -> int | None:
    """Moves of a shortest path from @ to G, by widening rings; None where there is none."""
    (start,), (goal,) = find(level, "@"), find(level, "G")
    free = set(find(level, ".@G"))
    ring, seen, moves = {start}, {start}, 0
    while ring:
        if goal in ring:
            return moves
        ring = {(r + y, c + x) for r, c in ring for y, x in DELTAS.values()} & free - seen
        seen |= ring
        moves += 1
    return None


def sokoban_step(free: set, player: tuple, boxes: frozenset, move: str) -> tuple[tuple, frozenset] | None:
    """Where a move leads; None where it is illegal."""
    y, x = DELTAS[move]
    there, behind = (player[0] + y, player[1] + x), (player[0] + 2 * y, player[1] + 2 * x)
    if there not in free:
        return None
    if there not in boxes:
        return there, boxes
    if behind not in free or behind in boxes:
        return None
    return there, (boxes - {there}) | {behind}


def sokoban_fewest(level: str) -> tuple[int | None, int | None]:
    """The fewest moves and the fewest pushes of a solution, by searching forwards."""
    free = set(find(level, " .$@*+"))
    goals = frozenset(find(level, ".*+"))
    start = (find(level, "@+")[0], frozenset(find(level, "$*")))
    return _rings(free, goals, start, counts_walks=True), _rings(free, goals, start, counts_walks=False)


def _rings(free: set, goals: frozenset, start: tuple, counts_walks: bool) -> int | None:
    ring, seen, spent = [start], {start}, 0
    while ring:
        later = []
        for player, boxes in ring:  # grows by walks where these cost nothing
            if boxes == goals:
                return spent
            for move in DELTAS:
                after = sokoban_step(free, player, boxes, move)
                if after is None or after in seen:
                    continue
                if counts_walks or after[1] != boxes:
                    later.append(after)
                else:
                    seen.add(after)
                    ring.append(after)
        ring = [each for each in dict.fromkeys(later) if each not in seen]
        seen |= set(ring)
        spent += 1
    return None


def is_whole(grid: list[list[int]]) -> bool:
    """Whether rows, columns and boxes of a grid hold every digit."""
    side = len(grid)
    wide = round(side**0.5)
    digits = list(range(1, side + 1))
    boxes = [
        [grid[r + y][c + x] for y in range(wide) for x in range(wide)]
        for r in range(0, side, wide)
        for c in range(0, side, wide)
    ]
    return all(sorted(unit) == digits for unit in [*grid, *map(list, zip(*grid, strict=True)), *boxes])


def numbers(level: str) -> list[list[int]]:
    return [[0 if cell == "." else int(cell) for cell in line.split()] for line in level.split("\n")]


_ROWS = [list(row) for row in itertools.permutations(range(1, 5))]
_PAIRS = [(upper, lower) for upper in _ROWS for lower in _ROWS if all(map(int.__ne__, upper, lower))]
ALL_GRIDS_4 = [[*upper, *lower] for upper in _PAIRS for lower in _PAIRS if is_whole([*upper, *lower])]
"""The 288 whole grids of side 4, by trying all pairs of rows that can stand one on the other."""


def solutions_4(level: str) -> list[list[list[int]]]:
    """The whole grids of side 4 that have all digits of the level."""
    given = numbers(level)
    return [
        grid
        for grid in ALL_GRIDS_4
        if all(not given[r][c] or given[r][c] == grid[r][c] for r in range(4) for c in range(4))
    ]


def count_solutions(grid: list[list[int]], most: int = 2) -> int:
    """How many whole grids a level of any side has, up to `most`: plain backtracking, the first blank cell with the
    fewest digits left."""
    side = len(grid)
    wide = round(side**0.5)
    best: tuple[int, int, list[int]] | None = None
    for r, c in itertools.product(range(side), repeat=2):
        if not grid[r][c]:
            box = {grid[r // wide * wide + y][c // wide * wide + x] for y in range(wide) for x in range(wide)}
            left = sorted(set(range(1, side + 1)) - set(grid[r]) - {row[c] for row in grid} - box)
            if best is None or len(left) < len(best[2]):
                best = r, c, left
    if best is None:
        return 1
    r, c, left = best
    found = 0
    for digit in left:
        grid[r][c] = digit
        found += count_solutions(grid, most - found)
        grid[r][c] = 0
        if found >= most:
            break
    return found


def symmetries(level: str) -> set[str]:
    """A map in all its orientations, by four quarter turns of it and of its mirror image."""
    found = set()
    for rows in (level.split("\n"), [row[::-1] for row in level.split("\n")]):
        for _ in range(4):
            rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
            found.add("\n".join(rows))
    return found
