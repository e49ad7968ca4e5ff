"""Code problems with a right solution beside them: the first that passes all tests, and nothing else."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from published import APPS, CALLED, CONTEST, FORMS, write

from sandbox import Sandbox
from tasks import READERS
from tasks.data import TRAINING_SETS, Prepared, manifest_of, prepare_training_set, references
from tasks.data.references import TRIED, python_solutions
from trainer.credit import check_turns

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]
SUM = "a, b = map(int, input().split())\nprint(a + b)\n"
PYTHON_2 = "print input()\n"
OF_ONE_TEST = "print(3)\n"
MORE = "print(int(input()) + 1)\n"


def apps(number: int, *solutions: Any) -> dict[str, Any]:
    return {**APPS, "problem_id": number, "solutions": json.dumps(solutions)}


def contest(name: str, *solutions: tuple[int, str]) -> dict[str, Any]:
    languages, codes = [each for each, _ in solutions], [code for _, code in solutions]
    return {**CONTEST, "name": name, "solutions": {"language": languages, "solution": codes}}


ROWS = {
    "apps": [
        apps(1, PYTHON_2, OF_ONE_TEST, SUM, "# later\n" + SUM),
        apps(2, OF_ONE_TEST),
        apps(3),
        CALLED,
        {**APPS, "problem_id": 4, "solutions": "no JSON"},
        apps(5, None, 7, "\ud800", " \n", SUM),
        apps(6, *[OF_ONE_TEST] * TRIED, SUM),
    ],
    "code_contests": [
        contest("a", (2, MORE), (1, PYTHON_2), (3, PYTHON_2), (3, MORE)),
        contest("b", (2, MORE)),
        contest("c", (3, "import sys; sys.exit(3)")),
        contest("d", (3, "import os; os._exit(0)"), (3, "x = int(input())\nprint(x + 1)")),
    ],
}
KEPT = {
    "apps": {"apps/1": SUM, "apps/5": SUM},
    "code_contests": {"code_contests/a": MORE, "code_contests/d": "x = int(input())\nprint(x + 1)"},
}
LEFT_OUT = {
    "apps": {
        "no solution that passes all tests": 2,
        "no solution in Python": 2,
        "tests that call a function": 1,
    },
    "code_contests": {"no solution that passes all tests": 1, "no solution in Python": 1},
}


def prepare(in_jail: InJail, name: str, source: Path, out: Path, **options: Any) -> Prepared:
    return in_jail(lambda sandbox: prepare_training_set(name, source, out, sandbox, references=True, **options))


@pytest.mark.parametrize("form", ["jsonl", pytest.param("parquet", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", ROWS)
def test_the_first_solution_that_passes_all_tests_is_kept(
    name: str, form: str, tmp_path: Path, in_jail: InJail
) -> None:
    assert form in FORMS
    rows = [row for row in ROWS[name] if form != "parquet" or "\\ud800" not in row["solutions"]]
    prepared = prepare(in_jail, name, write(tmp_path / f"x.{form}", rows), tmp_path / "out")
    file = tmp_path / "out" / TRAINING_SETS[name].file
    problems = READERS[name](file)
    kept = {key: code for key, code in KEPT[name].items() if form != "parquet" or key != "apps/5"}
    assert {problem.id: problem.reference for problem in problems} == kept
    assert {each.reason: each.rows for each in prepared.left_out} == LEFT_OUT[name]
    assert prepared.references
    assert Prepared.model_validate_json(manifest_of(file).read_bytes()) == prepared
    check_turns(problems, ["Coder", "Tester"], {})
    assert not [problem for problem in problems if problem.reference and problem.reference in problem.question]


def test_without_the_option_none_is_kept(tmp_path: Path, in_jail: InJail) -> None:
    source = write(tmp_path / "x.jsonl", ROWS["apps"])
    prepared = in_jail(lambda sandbox: prepare_training_set("apps", source, tmp_path / "out", sandbox))
    assert (prepared.rows, prepared.references) == (7, False)
    problems = READERS["apps"](tmp_path / "out" / "apps_introductory.jsonl")
    assert {problem.reference for problem in problems} == {None}
    with pytest.raises(ValueError, match="no reference solution that tests can be tried on"):
        check_turns(problems, ["Coder", "Tester"], {})


def test_what_is_right_only_once_is_not_taken(tmp_path: Path, in_jail: InJail, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky, tried = SUM + "# at times\n", []
    really = references.grade_code

    async def graded(sandbox: Sandbox, code: str, *rest: Any, **options: Any) -> Any:
        tried.append(code)
        wrong = code == flaky and tried.count(flaky) == 2
        return await really(sandbox, OF_ONE_TEST if wrong else code, *rest, **options)

    monkeypatch.setattr(references, "grade_code", graded)
    prepare(in_jail, "apps", write(tmp_path / "x.jsonl", [apps(1, flaky, SUM)]), tmp_path / "out")
    [problem] = READERS["apps"](tmp_path / "out" / "apps_introductory.jsonl")
    assert problem.reference == SUM
    assert tried == [flaky, flaky, SUM, SUM]


@pytest.mark.thorough
def test_solutions_that_hang_are_given_up(tmp_path: Path, in_jail: InJail) -> None:
    source = write(tmp_path / "x.jsonl", [apps(1, SUM), apps(2, *["while True: pass"] * 9, SUM)])
    prepared = prepare(in_jail, "apps", source, tmp_path / "out")
    assert [each.reason for each in prepared.left_out] == ["no solution that passes all tests"]


def test_the_next_row_of_a_problem_has_a_try_of_its_own(tmp_path: Path, in_jail: InJail) -> None:
    source = write(tmp_path / "x.jsonl", [apps(1, OF_ONE_TEST), apps(1, SUM), apps(1, SUM)])
    prepared = prepare(in_jail, "apps", source, tmp_path / "out")
    assert {each.reason: each.rows for each in prepared.left_out} == {
        "no solution that passes all tests": 1,
        "the same problem again": 1,
    }
    assert [each.reference for each in READERS["apps"](tmp_path / "out" / "apps_introductory.jsonl")] == [SUM]


def test_as_many_as_are_asked_for(tmp_path: Path, in_jail: InJail) -> None:
    source = write(tmp_path / "x.jsonl", [apps(number, SUM if number % 3 else PYTHON_2) for number in range(1, 40)])
    prepared = prepare(in_jail, "apps", source, tmp_path / "out", limit=11)
    problems = READERS["apps"](tmp_path / "out" / "apps_introductory.jsonl")
    assert [problem.id for problem in problems] == [f"apps/{number}" for number in range(1, 18) if number % 3][:11]
    assert prepared.rows == 11


def test_a_set_without_solutions_is_refused(tmp_path: Path, in_jail: InJail) -> None:
    with pytest.raises(ValueError, match=r"polaris was published without solutions to keep. Fix: leave"):
        prepare(in_jail, "polaris", tmp_path / "x.jsonl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("field", [None, 3, "", "3", "{}", "[" * 5000, [], {}, {"language": 3}, {"language": [3]}])
def test_a_field_of_anything_has_no_solutions(field: Any) -> None:
    assert python_solutions(field) == []
