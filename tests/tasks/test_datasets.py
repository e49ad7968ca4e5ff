import json
import os
from pathlib import Path
from typing import Any

import pytest

from tasks import READERS, AssertTests, CallTest, CallTests, DatasetError, Problem, read_task
from tasks.data.benchmarks import read_aime, read_gsm8k, read_humaneval, read_math500, read_mbpp

DATA = Path(os.environ.get("METAAGENT_DATA") or Path(__file__).parents[3] / "shared" / "data")

AIME: dict[str, Any] = {"id": 7, "problem": "What is $2^3$?", "answer": "008", "url": "x"}
MATH: dict[str, Any] = {"id": "test/a/1.json", "prompt": "Halve 1.", "answer": r"\frac{1}{2}", "source": "math"}
GSM8K: dict[str, Any] = {"question": "How many eggs?", "answer": "10 * 120 = <<10*120=1200>>1200 eggs\n#### 1,200"}
HUMANEVAL: dict[str, Any] = {
    "task_id": "HumanEval/900",
    "prompt": 'def triple(x: int) -> int:\n    """Three times x."""\n',
    "entry_point": "triple",
    "canonical_solution": "    return 3 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 6\n    assert candidate(5) == triple(5)\n",
}
OWN: dict[str, Any] = {"id": "a", "question": "1 + 1?", "domain": "math", "gold": "2"}
MBPP: dict[str, Any] = {
    "task_id": 901,
    "text": "Write a function that sums digits.",
    "code": "import math, sys\r\ndef sum(n):\r\n  return 0\r\ndef helper(n):\r\n  return n",
    "test_setup_code": "",
    "test_list": ["assert sum(12) == 3", "assert sum(345) == math.floor(12.5)"],
    "challenge_test_list": [],
}


def lines(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_math_readers(tmp_path: Path) -> None:
    assert read_aime(lines(tmp_path, AIME)) == [
        Problem(id="aime/7", question="What is $2^3$?", domain="math", gold="008")
    ]
    assert read_gsm8k(lines(tmp_path, GSM8K))[0].gold == "1200"
    path = tmp_path / "math.json"
    path.write_text(json.dumps([MATH]))
    assert read_math500(path)[0].model_dump() == {
        "id": "math/test/a/1.json", "question": "Halve 1.", "domain": "math", "gold": r"\frac{1}{2}", "tests": None,
    }  # fmt: skip


def test_humaneval_reader_keeps_the_reference_out_of_the_prompt(tmp_path: Path) -> None:
    (problem,) = read_humaneval(lines(tmp_path, HUMANEVAL))
    assert isinstance(problem.tests, AssertTests)
    assert problem.tests.names == {"candidate": "triple"}
    assert "return 3 * x" in problem.tests.setup
    assert "return 3 * x" not in problem.tests.prompt + problem.question


def test_mbpp_reader_finds_the_names_and_imports_that_tests_use(tmp_path: Path) -> None:
    (problem,) = read_mbpp(lines(tmp_path, MBPP))
    assert isinstance(problem.tests, AssertTests)
    assert problem.tests.names == {"sum": "sum"}
    assert problem.tests.setup == "import math, sys\n"
    assert "assert sum(12) == 3" in problem.question
    assert "345" not in problem.question


def test_anyone_can_bring_problems(tmp_path: Path) -> None:
    tests = CallTests(fn_name="f", tests=[CallTest(args=[1], expected=2)])
    brought = [Problem(**OWN), Problem(id="b", question="Add one.", domain="code", tests=tests)]
    path = lines(tmp_path, *(problem.model_dump_json() for problem in brought))
    assert READERS["problems"](path) == brought
    assert read_task(f"problems:{path}") == brought


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("gsm9k:rows.jsonl", "unknown task 'gsm9k:rows.jsonl'. Fix: write gsm8k:FILE"),
        ("AIME:rows.jsonl", "write aime:FILE"),
        ("rows.jsonl", "write FORMAT:FILE with FORMAT one of aime, math500, gsm8k, humaneval, mbpp, "),
        ("mbpp", "write mbpp:FILE"),
        ("mbpp:", "write mbpp:FILE"),
        ("problems:none.jsonl", "cannot read none.jsonl: No such file"),
        ("problems:empty.jsonl", "empty.jsonl holds no problems"),
        ("problems:latin.jsonl", "latin.jsonl, line 1: not UTF-8 text (byte 1)"),
    ],
)
def test_a_task_that_cannot_be_read_says_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "latin.jsonl").write_bytes(b'"\xe9"')
    with pytest.raises(DatasetError) as caught:
        read_task(task)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("reader", "rows", "told"),
    [
        ("aime", [AIME, {**AIME, "answer": "many"}], "line 2, field answer"),
        ("aime", [AIME, "", "{"], "line 3: not JSON"),
        ("aime", [{"id": 1, "problem": "x"}], "line 1, field answer: Field required"),
        ("aime", ["[]"], "line 1, field (whole row)"),
        ("gsm8k", [GSM8K, GSM8K, {**GSM8K, "answer": "12"}], "line 3, field answer: no final answer"),
        ("humaneval", [{**HUMANEVAL, "entry_point": None}], "line 1, field entry_point"),
        ("mbpp", [{**MBPP, "test_list": []}], "line 1, field test_list"),
        ("mbpp", [{**MBPP, "code": "def f(:"}], "line 1, field code: not Python"),
        ("problems", [OWN, {**OWN, "id": "b", "answer": "2"}], "line 2, field answer: Extra inputs"),
        (
            "problems",
            [{**OWN, "gold": None}],
            "line 1, field (whole row): problem a: a math problem",
        ),
        ("problems", [OWN, "", {**OWN, "id": "b"}, OWN], "line 4, field id: 'a' is the id at line 1, too"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, reader: str, rows: list[object], told: str) -> None:
    path = lines(tmp_path, *rows)
    with pytest.raises(DatasetError) as caught:
        READERS[reader](path)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(("text", "told"), [('[{"id": "a"}]', "item 1, field prompt"), ("{}", "expected a JSON list")])
def test_errors_in_a_json_list_name_the_item(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "math.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=told):
        read_math500(path)


def test_a_problem_needs_gold_or_tests() -> None:
    with pytest.raises(ValueError, match="problem x"):
        Problem(id="x", question="?", domain="math")
    with pytest.raises(ValueError, match="problem x"):
        Problem(id="x", question="?", domain="code", gold="5")


@pytest.mark.parametrize(
    ("reader", "name", "count"),
    [
        ("aime", "aime24.jsonl", 30),
        ("math500", "math500.json", 500),
        ("gsm8k", "gsm8k_test.jsonl", 1319),
        ("humaneval", "humaneval.jsonl", 164),
        ("mbpp", "mbpp.jsonl", 974),
    ],
)
def test_shared_files(reader: str, name: str, count: int) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not here; METAAGENT_DATA names the folder that has it")
    problems = READERS[reader](DATA / name)
    assert len(problems) == count
    assert len({problem.id for problem in problems}) == count
    assert all(problem.tests.names for problem in problems if isinstance(problem.tests, AssertTests))
