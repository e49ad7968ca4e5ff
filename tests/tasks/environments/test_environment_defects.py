"""Defects of the released implementation of Stronger-MAS (PettingLLMs, commit a054fb1) that no game here has."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tasks import PlanPathLevel, Problem, SokobanLevel, SudokuLevel
from tasks.environments import (
    PlanPathKnobs,
    PlanPathState,
    SokobanKnobs,
    State,
    SudokuKnobs,
    act,
    check_level,
    generate,
    identity_of,
    observe,
    plan_path,
    reset,
    sokoban,
    sudoku,
)
from tasks.environments.machine import LevelError

WHOLE = [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]
KNOBS = [PlanPathKnobs(), SokobanKnobs(), SudokuKnobs()]


def moved(state: State, moves: str) -> State:
    return act(state, "Planner", json.dumps(list(moves))).after


@pytest.fixture(params=KNOBS, ids=lambda knobs: type(knobs).__name__)
def problems(request: pytest.FixtureRequest) -> list[Problem]:
    return generate(request.param, 20, seed=random.randrange(10**6), split="test")


def test_a_full_grid_does_not_overwrite_givens() -> None:
    # env_state.py:708-747: one grid solved every Sudoku.
    for problem in generate(SudokuKnobs(), 60, seed=random.randrange(10**6)):
        state = reset(problem)
        step = act(state, "Planner", f"#### {json.dumps(WHOLE)}")
        given = [
            (r, c, int(v))
            for r, row in enumerate(state.board.split("\n"))
            for c, v in enumerate(row.split())
            if v != "."
        ]
        agrees = all(WHOLE[r][c] == digit for r, c, digit in given)
        assert step.solved == agrees
        after = [row.split() for row in step.after.board.split("\n")]
        assert all(int(after[r][c]) == digit for r, c, digit in given)


def test_a_level_without_a_solution_is_refused() -> None:
    # env_state.py:531: the default Sudoku has no solution; load_sokoban.py: 324 of 400 puzzles have none.
    with pytest.raises(LevelError, match="no grid has these digits"):
        check_level(SudokuLevel(level="1 2 . .\n. . . .\n. . 1 .\n. . 2 ."))
    with pytest.raises(LevelError, match="no moves bring all boxes onto goals"):
        check_level(SokobanLevel(level="####\n#$ #\n#@.#\n####"))
    with pytest.raises(LevelError, match="no path leads"):
        check_level(PlanPathLevel(level="@#\n#G"))


def test_every_problem_is_its_own_level(problems: list[Problem]) -> None:
    # load_sokoban.py wrote where nobody read, and every puzzle was the default.
    assert len({reset(problem).board for problem in problems}) == len(problems)
    for problem in problems:
        assert problem.environment is not None
        assert reset(problem).board == problem.environment.level


@pytest.mark.parametrize("knobs", KNOBS, ids=lambda knobs: type(knobs).__name__)
def test_test_levels_are_no_training_levels(knobs: PlanPathKnobs) -> None:
    # stateful_env.py:106-107: test seeds were training seeds modulo 400.
    seeds = [0, 400, 100_000]
    sets = {
        split: {
            identity_of(each.environment)
            for seed in seeds
            for each in generate(knobs, 30, seed=seed, split=split)
            if each.environment
        }
        for split in ("train", "test")
    }
    assert not sets["train"] & sets["test"]


def test_a_used_up_budget_is_no_success(problems: list[Problem]) -> None:
    # env_state.py:1199, 1642: 240 arbitrary moves "solved" any Sokoban.
    dice = random.Random(1)
    for problem in problems:
        state = reset(problem)
        while not state.done:
            lists = [dice.choices("UDLR", k=length) for length in (1, 240, 10_000)]
            edits = [[dice.randint(1, 4) for _ in range(3)] for _ in range(240)]
            state = act(state, "Planner", json.dumps(dice.choice([*lists, edits]))).after
            assert state.solved == _is_solved(state)
        assert state.solved or state.turn == state.turns


def _is_solved(state: State) -> bool:
    return "." not in state.board if state.kind == "sudoku" else "*" in state.board and not set("$G") & set(state.board)


def test_ten_thousand_moves_are_no_solution(problems: list[Problem]) -> None:
    for problem in problems:
        for action in (["R"] * 10_000, list("UDLR") * 2500, [[1, 1, 1]] * 10_000):
            step = act(reset(problem), "Planner", json.dumps(action))
            assert not step.solved
            assert not step.readable


def test_walking_to_and_fro_brings_nothing_nearer() -> None:
    # env_state.py:1178-1187: 1,000 moves to and fro earned 95, a shortest path 11.85.
    start = reset(Problem(id="p", question="q", domain="game", environment=PlanPathLevel(level="@...G")))
    assert isinstance(start, PlanPathState)
    walked = moved(start, "RL" * 400)
    assert isinstance(walked, PlanPathState)
    assert plan_path.manhattan_distance(walked) == plan_path.manhattan_distance(start)
    assert plan_path.distance(walked) == plan_path.distance(start)
    step = act(start, "Planner", json.dumps(list("RL" * 10 + "R")))
    assert not plan_path.on_shortest_path(step)  # type: ignore[arg-type]


def test_pushing_to_and_fro_brings_nothing_nearer() -> None:
    level = SokobanLevel(level="#######\n#     #\n# @$ .#\n#     #\n#######")
    start = reset(Problem(id="p", question="q", domain="game", environment=level))
    there = moved(start, "R")
    back = moved(there, "URRDL")
    assert [sokoban.potential(each) for each in (start, there, back)] == [-2, -1, -2]  # type: ignore[arg-type]


def test_clearing_and_filling_brings_nothing() -> None:
    state = reset(generate(SudokuKnobs(), 1)[0])
    (r, c) = next(
        (r, c) for r, row in enumerate(state.board.split("\n")) for c, v in enumerate(row.split()) if v == "."
    )
    gained = []
    for digit in (1, 2, 3, 4):
        step = act(state, "Planner", json.dumps([[r + 1, c + 1, digit], [r + 1, c + 1, 0]]))
        state = step.after
        gained.append(sudoku.newly_filled(step))  # type: ignore[arg-type]
    assert sum(gained) == 1


def test_later_turns_show_the_position(problems: list[Problem]) -> None:
    # prompt.py:13-25: later turns were shown the start.
    for problem in problems:
        state = reset(problem)
        for text in (
            '["U"]',
            '["D"]',
            '["L"]',
            '["R"]',
            *(f"[[{r}, {c}, {v}]]" for r in "1234" for c in "1234" for v in "1234"),
        ):
            later = act(state, "Planner", text).after
            assert later.board in observe(later, "Planner")
            assert (state.board in observe(later, "Planner")) == (state.board == later.board)


def test_nothing_that_was_written_is_evaluated(problems: list[Problem], tmp_path: Path) -> None:
    # utils.py:118, 140, 157: eval of what model-written code printed.
    mark = tmp_path / "evaluated"
    for text in (
        f"open({str(mark)!r}, 'w')",
        f"[open({str(mark)!r}, 'w'), 'U']",
        f"__import__('os').mkdir({str(mark)!r})",
    ):
        for said in (text, f"#### {text}", f"<delivery>{text}</delivery>", f"```json\n{text}\n```"):
            step = act(reset(problems[0]), "Planner", said)
            assert not step.readable
    assert not mark.exists()
    sources = Path(plan_path.__file__).parent.glob("*.py")
    assert not any(f"{name}(" in path.read_text().replace("def ", "") for path in sources for name in ("eval", "exec"))
