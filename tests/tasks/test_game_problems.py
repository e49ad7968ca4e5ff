"""Games as problems: what they carry, files of them, and the grade of an answer that is one action."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sandbox import Sandbox
from tasks import DatasetError, PlanPathLevel, Problem, SokobanLevel, StdinTest, StdinTests, grade, read_task
from tasks.environments import SokobanKnobs, generate, problem_of
from trainer.disk import problem_digest
from trainer.evaluate import evaluate

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]
LEVEL = PlanPathLevel(level="@.\n.G", optimum=2)
GAME = problem_of(LEVEL)
TESTS = StdinTests(tests=[StdinTest(stdin="1", stdout="2")])


def test_each_domain_carries_its_own() -> None:
    assert GAME.domain == "game"
    wrong: list[dict[str, Any]] = [
        {"domain": "game"},
        {"domain": "game", "gold": "1", "environment": LEVEL},
        {"domain": "math", "gold": "1", "environment": LEVEL},
        {"domain": "code", "environment": LEVEL},
        {"domain": "math", "gold": "1", "reference": "print(1)"},
        {"domain": "game", "environment": LEVEL, "reference": "print(1)"},
    ]
    for fields in wrong:
        with pytest.raises(ValidationError, match=r"a game an environment only|only a code problem has a reference"):
            Problem(id="x", question="?", **fields)
    code = Problem(id="x", question="?", domain="code", tests=TESTS, reference="print(int(input()) + 1)")
    assert Problem.model_validate_json(code.model_dump_json()) == code


def test_a_problem_of_before_is_written_as_before() -> None:
    # Evaluations that were begun before games were there go on.
    math = Problem(id="x", question="1 + 1?", domain="math", gold="2")
    assert math.model_dump() == {"id": "x", "question": "1 + 1?", "domain": "math", "gold": "2", "tests": None}
    assert problem_digest(math) == "7145445906821813"


def test_games_are_written_and_read_back(tmp_path: Path) -> None:
    problems = generate(SokobanKnobs(), 5)
    path = tmp_path / "levels.jsonl"
    path.write_text("".join(problem.model_dump_json(exclude_none=True) + "\n" for problem in problems))
    assert read_task(f"problems:{path}") == problems


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"kind": "chess", "level": "x"}, "field environment: Input tag 'chess' found using 'kind' does not match"),
        ({"kind": "sokoban", "level": ""}, "field environment.sokoban.level: String should have at least 1 character"),
        ({"kind": "sokoban", "level": "@$.", "turns": 0}, "field environment.sokoban.turns: Input should be greater"),
        ({"kind": "sokoban", "level": "@$.", "boxes": 1}, "field environment.sokoban.boxes: Extra inputs"),
        ({"kind": "sokoban", "level": "@$?"}, "field environment.level: line 1, column 3: '?' is no symbol of sokoban"),
        ({"kind": "plan_path", "level": "@#G"}, "field environment.level: line 1, column 1: no path leads from here"),
        ({"kind": "sudoku", "level": "1 2"}, "field environment.level: line 1, column 1: a sudoku has 4, 9, 16 lines"),
    ],
)
def test_a_level_that_is_none_is_told_with_file_line_and_column(
    environment: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "levels.jsonl"
    row = {"id": "x", "question": "?", "domain": "game", "environment": environment}
    path.write_text(GAME.model_dump_json() + "\n" + json.dumps(row))
    with pytest.raises(DatasetError) as error:
        read_task(f"problems:{path}")
    assert f"{path}, line 2, {said}" in str(error.value)


@pytest.mark.parametrize(
    ("answer", "correct", "verdict"),
    [
        ('So down, then right.\n#### ["D", "R"]', True, "correct"),
        ('####\n```json\n["D", "R"]\n```', True, "correct"),
        ("<delivery>\n#### [D, R]\n</delivery>", True, "correct"),
        ('#### ["D"]', False, "not solved"),
        ('#### ["U"]', False, "not solved: move 1 of 1, U, leads into a wall or off the grid"),
        ("I do not know", False, "not solved: no JSON: Expecting value: line 1 column 1 (char 0)"),
        ("", False, "not solved: nothing is said"),
    ],
)
def test_an_answer_is_one_action_from_the_start(answer: str, correct: bool, verdict: str, in_jail: InJail) -> None:
    graded = in_jail(lambda sandbox: grade(GAME, answer, sandbox))
    assert (graded.correct, graded.verdict) == (correct, verdict)
    assert graded.game is not None
    assert graded.game.solved == correct


def test_the_template_bank_is_not_asked_to_play(in_jail: InJail) -> None:
    class Silent:
        name = "silent"

        async def complete(self, request: object) -> Any:
            raise AssertionError("nobody is asked")

        async def close(self) -> None:
            return None

    with pytest.raises(ValueError, match=r"is a game, and no template of the bank plays games\. Fix: give a program"):
        in_jail(lambda sandbox: evaluate([GAME], executor=Silent(), sandbox=sandbox))


def test_the_optimum_is_no_part_of_the_question() -> None:
    level = SokobanLevel(level="@$ .", pushes=2, moves=2)
    assert problem_of(level).question == problem_of(SokobanLevel(level="@$ .")).question
