"""Generated levels: solvable with the optimum that is stored, in splits that share none, by the seed alone.

METAAGENT_LEVELS says how many levels of each kind are looked at, METAAGENT_LEVELS_SEED by which seed; without them they
are few, by another seed each time.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_opinion import (
    count_solutions,
    find,
    is_whole,
    numbers,
    path_moves,
    sokoban_fewest,
    solutions_4,
    symmetries,
)

from tasks import PlanPathLevel, SokobanLevel, SudokuLevel
from tasks.environments import (
    KNOBS,
    Knobs,
    LevelError,
    PlanPathKnobs,
    SokobanKnobs,
    SudokuKnobs,
    check_level,
    generate,
    identity_of,
    problem_of,
    reset,
    shared_grids,
    solution_grids,
    split_of,
)
from tasks.splits import Split

LEVELS = int(os.environ.get("METAAGENT_LEVELS", "40"))
SEED = int(os.environ.get("METAAGENT_LEVELS_SEED", random.randrange(10**6)))
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
WISHES: list[Knobs] = [
    PlanPathKnobs(),
    PlanPathKnobs(size=(5, 5), least_distance=4, most_distance=7),
    PlanPathKnobs(size=(6, 9), density=0.35, detour=1.4),
    SokobanKnobs(),
    SokobanKnobs(size=(5, 7), least_pushes=3, least_moves=6),
    SokobanKnobs(size=(6, 5), boxes=2, density=0),
    SudokuKnobs(),
    SudokuKnobs(blanks=3),
    SudokuKnobs(blanks=11),
]
MANY = [PlanPathKnobs(), SokobanKnobs(), SudokuKnobs()]


def levels(knobs: Knobs, count: int, **how: Any) -> list[Any]:
    return [problem.environment for problem in generate(knobs, count, **how)]


@pytest.fixture(autouse=True)
def _seed_of_a_failure() -> None:
    print(f"METAAGENT_LEVELS_SEED={SEED}")  # shown where a test fails


def test_a_shortest_path_is_as_long_as_a_level_says() -> None:
    for problem in generate(PlanPathKnobs(), 10, seed=SEED):
        level = problem.environment
        assert isinstance(level, PlanPathLevel)
        assert level.optimum is not None
        check_level(level)
        check_level(level.model_copy(update={"optimum": None}))
        for wrong in (level.optimum - 1 or 99, level.optimum + 2):
            told = f"optimum {wrong}, but a shortest path has {level.optimum} moves. Fix: write {level.optimum}"
            with pytest.raises(LevelError, match=told):
                check_level(level.model_copy(update={"optimum": wrong}))


@pytest.mark.parametrize("knobs", MANY, ids=lambda knobs: type(knobs).__name__)
def test_the_end_of_the_last_line_is_no_part_of_a_level(knobs: Knobs) -> None:
    for problem in generate(knobs, 5, seed=SEED):
        assert problem.environment is not None
        ended = problem.environment.model_validate(
            {**problem.environment.model_dump(), "level": problem.environment.level + "\n"}
        )
        assert ended == problem.environment
        assert identity_of(ended) == identity_of(problem.environment)
        assert problem_of(ended) == problem
        check_level(ended)
        for more in ("\n\n", "\n.", "\n \n"):
            with pytest.raises(LevelError):
                check_level(ended.model_validate({**ended.model_dump(), "level": problem.environment.level + more}))


@pytest.mark.parametrize("knobs", WISHES, ids=str)
def test_levels_are_as_wished_and_solvable_with_the_optimum_that_is_stored(knobs: Knobs) -> None:
    for level in levels(knobs, LEVELS if knobs in MANY else 15, seed=SEED, split="test"):
        check_level(level)
        if isinstance(knobs, PlanPathKnobs):
            rows = level.level.split("\n")
            assert (len(rows), len(rows[0])) == knobs.size
            assert level.level.count("#") == knobs.walls
            ((r, c),), ((y, x),) = find(level.level, "@"), find(level.level, "G")
            assert level.optimum == path_moves(level.level)
            assert knobs.least_distance <= level.optimum <= (knobs.most_distance or 1000)
            assert level.optimum / (abs(r - y) + abs(c - x)) >= knobs.detour
        elif isinstance(knobs, SokobanKnobs):
            rows = level.level.split("\n")
            assert (len(rows), len(rows[0])) == knobs.size
            assert len(find(level.level, "$*")) == len(find(level.level, ".*+")) == knobs.boxes
            assert set(rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)) == {"#"}
            assert (level.moves, level.pushes) == sokoban_fewest(level.level)
            assert level.moves >= max(knobs.least_moves, level.pushes)
            assert level.pushes >= knobs.least_pushes
        else:
            assert level.level.split().count(".") == knobs.blanks
            assert len(solutions_4(level.level)) == 1


@pytest.mark.parametrize(("side", "blanks"), [(9, 45), (16, 90)])
def test_larger_sudokus_have_one_solution(side: int, blanks: int) -> None:
    for level in levels(SudokuKnobs(size=side, blanks=blanks), 3 if side == 9 else 1, seed=SEED):
        grid = numbers(level.level)
        assert sum(row.count(0) for row in grid) == blanks
        assert not is_whole(grid)
        assert count_solutions(grid) == 1


def test_more_boxes_in_larger_rooms() -> None:
    knobs = SokobanKnobs(size=(8, 8), boxes=3)
    (level,) = levels(knobs, 1, seed=SEED)
    assert len(find(level.level, "$*")) == 3
    assert 1 <= level.pushes <= level.moves


@pytest.mark.parametrize("knobs", MANY, ids=str)
def test_splits_are_disjoint_whatever_the_seeds(knobs: Knobs) -> None:
    per_split = LEVELS
    drawn = {
        split: [each for seed in (SEED, SEED + 1) for each in levels(knobs, per_split, seed=seed, split=split)]
        for split in SPLITS
    }
    for split, found in drawn.items():
        assert {split_of(level) for level in found} == {split}
    identities = {split: {identity_of(level) for level in found} for split, found in drawn.items()}
    assert not identities["train"] & identities["test"]
    assert not identities["train"] & identities["validation"]
    assert not identities["test"] & identities["validation"]


@pytest.mark.parametrize("knobs", MANY, ids=str)
def test_no_test_level_is_among_training_ones_in_any_orientation_or_naming(knobs: Knobs) -> None:
    training = {level.level for level in levels(knobs, 10 * LEVELS, seed=SEED)}
    for level in levels(knobs, LEVELS, seed=SEED, split="test"):
        if isinstance(level, SudokuLevel):
            naming = random.Random(level.level).sample("1234", 4)
            assert level.level not in training
            assert level.level.translate(str.maketrans("1234", "".join(naming))) not in training
        else:
            assert not symmetries(level.level) & training


@pytest.mark.parametrize("knobs", MANY, ids=str)
def test_levels_of_a_set_are_different_and_have_different_ids(knobs: Knobs) -> None:
    problems = generate(knobs, 5 * LEVELS, seed=SEED)
    assert len({identity_of(problem.environment) for problem in problems if problem.environment}) == 5 * LEVELS
    assert len({problem.id for problem in problems}) == 5 * LEVELS
    assert {problem.id.partition("-")[0] for problem in problems} == {reset(problems[0]).kind}


@pytest.mark.parametrize("knobs", MANY, ids=str)
def test_the_seed_decides(knobs: Knobs) -> None:
    assert generate(knobs, 5, seed=3) == generate(knobs, 5, seed=3)
    assert generate(knobs, 5, seed=3) == generate(knobs, 9, seed=3)[:5]
    assert generate(knobs, 5, seed=3) != generate(knobs, 5, seed=4)
    assert {reset(problem).turns for problem in generate(knobs, 2, turns=7)} == {7}


def test_progress_is_told_level_by_level() -> None:
    told: list[int] = []
    generate(SudokuKnobs(), 5, watch=told.append)
    assert told == [1, 2, 3, 4, 5]


@given(st.integers(0, 10**6))
def test_orientations_and_namings_are_one_level(seed: int) -> None:
    (path,) = levels(PlanPathKnobs(size=(3, 5)), 1, seed=seed)
    assert {identity_of(PlanPathLevel(level=each)) for each in symmetries(path.level)} == {identity_of(path)}
    (room,) = levels(SokobanKnobs(size=(4, 6), density=0), 1, seed=seed)
    assert {identity_of(SokobanLevel(level=each)) for each in symmetries(room.level)} == {identity_of(room)}
    (grid,) = levels(SudokuKnobs(), 1, seed=seed)
    named = grid.level.translate(str.maketrans("1234", "3142"))
    assert identity_of(SudokuLevel(level=named)) == identity_of(grid)


def test_a_sudoku_upside_down_is_another_level() -> None:
    """Of some it is the same with other digits."""
    level = "1 2 3 4\n3 4 1 .\n2 1 4 3\n4 3 2 1"
    turned = "\n".join(level.split("\n")[::-1])
    assert identity_of(SudokuLevel(level=turned)) != identity_of(SudokuLevel(level=level))


def test_shares_of_the_splits() -> None:
    found = [split_of(level) for split in SPLITS for level in levels(SudokuKnobs(blanks=6), 30, split=split)]
    assert [found.count(split) for split in SPLITS] == [30, 30, 30]
    drawn = [
        split_of(PlanPathLevel(level=f"@{''.join(each)}G"))
        for each in (random.Random(seed).choices(".#", k=12) for seed in range(2000))
    ]
    assert drawn.count("train") / 2000 == pytest.approx(0.7, abs=0.05)
    assert drawn.count("validation") / 2000 == pytest.approx(0.1, abs=0.03)


def test_solution_grids_of_a_test_set_that_are_in_training() -> None:
    training, test = (generate(SudokuKnobs(), 60, seed=SEED, split=split) for split in ("train", "test"))
    grids = solution_grids(training)
    assert len(grids) <= 12
    assert shared_grids(test, training) == (len(solution_grids(test) & grids), len(solution_grids(test)))
    assert shared_grids(test, [])[0] == 0
    assert solution_grids(generate(PlanPathKnobs(), 1)) == set()
    several = problem_of(SudokuLevel(level="\n".join([". . . ."] * 4)), "several")
    with pytest.raises(ValueError, match="problem 'several' has 2 solutions"):
        solution_grids([several])


@pytest.mark.parametrize(
    ("kind", "wish", "said"),
    [
        ("plan_path", {"size": (1, 5)}, "size=1x5: rows and columns from 2 to 40"),
        ("plan_path", {"density": 1.0}, "density=1.0: a share"),
        ("plan_path", {"density": float("nan")}, "density=nan: a share"),
        ("plan_path", {"size": (3, 3), "density": 0.9}, "density=0.9: of 3x3 fewer than 2 cells stay free"),
        ("plan_path", {"size": (3, 3), "least_distance": 9}, "least_distance=9: a path in 7 free cells has at most 6"),
        ("plan_path", {"least_distance": 0}, "least_distance=0: at least 1"),
        ("plan_path", {"least_distance": 5, "most_distance": 4}, "most_distance=4: the least is 5"),
        ("plan_path", {"detour": 0.5}, "detour=0.5: a ratio from 1"),
        ("plan_path", {"detour": float("inf")}, "detour=inf: a ratio from 1"),
        ("plan_path", {"detour": 2.0, "density": 0.0}, "detour=2.0: without walls there are none"),
        ("sokoban", {"size": (2, 9)}, "size=2x9: rows and columns from 3 to 20"),
        ("sokoban", {"boxes": 0}, "boxes=0: at least 1"),
        ("sokoban", {"boxes": 13}, "boxes=13: they need 15 free cells, and 6x6 with density 0.2 has 13"),
        ("sokoban", {"least_pushes": 0}, "least_pushes=0: such levels have 156 positions. Fix: take 1 to 155"),
        ("sokoban", {"least_moves": 156}, "least_moves=156: such levels have 156 positions"),
        ("sudoku", {"size": 6}, "size=6: a Sudoku's is one of 4, 9, 16"),
        ("sudoku", {"blanks": 13}, "blanks=13: from 1 to 12 leave one solution in size 4"),
        ("sudoku", {"blanks": 0}, "blanks=0: from 1 to 12"),
        ("sudoku", {"size": 9, "blanks": 65}, "blanks=65: from 1 to 64"),
    ],
)
def test_impossible_wishes_name_knob_value_and_fix(kind: str, wish: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"^\w+=") as error:
        KNOBS[kind](**wish)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("knobs", "count", "said"),
    [
        (
            PlanPathKnobs(size=(2, 2), density=0),
            9,
            r"only \d levels of plan_path, split train, were found, 9 are wanted",
        ),
        (PlanPathKnobs(size=(4, 4), least_distance=11), 1, "gave no new one with size=.*, least_distance=11,"),
        (SokobanKnobs(least_pushes=30), 1, "Fix: ask for fewer, or for a larger size, fewer boxes, lower least_pushes"),
        (SudokuKnobs(blanks=1), 500, r"only \d+ levels of sudoku, split train, were found, 500 are wanted"),
    ],
    ids=str,
)
def test_unlikely_wishes_end(knobs: Knobs, count: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        generate(knobs, count, seed=SEED)


def test_a_knob_makes_levels_harder() -> None:
    for easy, hard, of in (
        (PlanPathKnobs(most_distance=3), PlanPathKnobs(least_distance=8), "optimum"),
        (SokobanKnobs(), SokobanKnobs(least_moves=12), "moves"),
    ):
        spans = [[getattr(level, of) for level in levels(knobs, 10, seed=SEED)] for knobs in (easy, hard)]
        assert all(sum(one) < sum(other) for one, other in pairwise(spans))
