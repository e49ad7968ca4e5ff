"""The readers of training sets, on rows written here as the sets' own pages show them."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tasks import READERS, CallTest, CallTests, DatasetError, Problem, StdinTest, StdinTests

POLARIS: dict[str, Any] = {"problem": "Halve $1$.", "answer": r"\frac{1}{2}", "difficulty": "5/8"}
APPS: dict[str, Any] = {
    "problem_id": 12,
    "question": "Print the sum of two numbers.",
    "solutions": '["print(sum(map(int, input().split())))"]',
    "input_output": json.dumps({"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}),
    "difficulty": "introductory",
    "url": "x",
    "starter_code": "",
}
CALLED: dict[str, Any] = {
    **APPS,
    "question": "Reverse it.",
    "input_output": json.dumps({"fn_name": "turn", "inputs": [["ab"], [[1, 2]]], "outputs": [["ba"], [2, 1]]}),
    "starter_code": "\ndef turn(s):\n\t",
}
CONTEST: dict[str, Any] = {
    "name": "76_B. Mice",
    "description": "Count the mice.",
    "public_tests": {"input": ["3\n"], "output": ["1\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["7\n", "8\n"], "output": ["2\n", "3\n"]},
    "input_file": "",
    "output_file": "",
    "source": 2,
}


def read(name: str, folder: Path, *rows: object) -> list[Problem]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return READERS[name](path)


def test_polaris(tmp_path: Path) -> None:
    assert read("polaris", tmp_path, POLARIS, {**POLARIS, "answer": "7"}) == [
        Problem(id="polaris/1", question="Halve $1$.", domain="math", gold=r"\frac{1}{2}"),
        Problem(id="polaris/2", question="Halve $1$.", domain="math", gold="7"),
    ]


def test_apps_scripts(tmp_path: Path) -> None:
    (problem,) = read("apps", tmp_path, APPS)
    assert (problem.id, problem.domain) == ("apps/12", "code")
    assert problem.question.startswith(
        "Print the sum of two numbers.\n\nWrite a whole program that reads from standard"
    )
    assert problem.tests == StdinTests(
        tests=[StdinTest(stdin="1 2\n", stdout="3\n"), StdinTest(stdin="3\n4", stdout="7")]
    )


def test_apps_functions(tmp_path: Path) -> None:
    (problem,) = read("apps", tmp_path, CALLED)
    assert problem.question == "Reverse it.\n\nWrite the function `turn`. Begin with:\n\ndef turn(s):"
    assert problem.tests == CallTests(
        fn_name="turn",
        tests=[
            CallTest(args=["ab"], expected=["ba"], also=["ba"]),
            CallTest(args=[[1, 2]], expected=[2, 1]),
        ],
    )
    (plain,) = read("apps", tmp_path, {**{key: CALLED[key] for key in ("question", "input_output")}, "id": 4})
    assert (plain.id, plain.question) == ("apps/4", "Reverse it.\n\nWrite the function `turn`.")


def test_code_contests(tmp_path: Path) -> None:
    (problem,) = read("code_contests", tmp_path, CONTEST)
    assert problem.id == "code_contests/76_B. Mice"
    assert problem.tests == StdinTests(
        tests=[StdinTest(stdin=f"{a}\n", stdout=f"{b}\n") for a, b in ((3, 1), (7, 2), (8, 3))]
    )


@pytest.mark.parametrize(
    ("name", "good", "bad", "told"),
    [
        ("apps", APPS, {"input_output": ""}, "2 of 3 rows have no tests and are left out"),
        ("apps", APPS, {"input_output": '{"inputs": [], "outputs": []}'}, "2 of 3 rows have no tests"),
        (
            "code_contests",
            CONTEST,
            {"input_file": "in.txt"},
            "2 of 3 rows have no tests or use files and are left out",
        ),
        (
            "code_contests",
            CONTEST,
            {key: {"input": [], "output": []} for key in ("public_tests", "generated_tests")},
            "2 of 3 rows have no tests or use files",
        ),
    ],
)
def test_rows_that_cannot_be_graded_are_counted(
    tmp_path: Path, name: str, good: dict[str, Any], bad: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserWarning, match=told):
        read(name, tmp_path, {**good, **bad}, good, {**good, **bad})
    with pytest.warns(UserWarning, match=told):
        assert len(READERS[name](tmp_path / "rows.jsonl")) == 1


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        ("polaris", {**POLARIS, "answer": ""}, "line 1, field answer"),
        ("polaris", {**POLARIS, "answer": 3}, "line 1, field answer"),
        ("apps", {**APPS, "question": None}, "field question"),
        ("apps", {**APPS, "input_output": "{"}, "field input_output: not JSON"),
        ("apps", {**APPS, "input_output": "[1]"}, "field input_output"),
        ("apps", {**APPS, "input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs for 0 outputs"),
        (
            "apps",
            {**APPS, "input_output": '{"inputs": ["1"], "outputs": ["1"], "fn_name": "f"}'},
            "the arguments of f are no list: 1",
        ),
        ("code_contests", {**CONTEST, "public_tests": {"input": ["1"], "output": []}}, "field public_tests"),
        ("code_contests", {"name": "x"}, "field description: Field required"),
    ],
)
def test_other_rows_are_errors(tmp_path: Path, name: str, row: dict[str, Any], told: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read(name, tmp_path, row)
    assert told in str(caught.value)
