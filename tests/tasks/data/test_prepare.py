"""Training sets, from rows as they are published to problems that grade: every form of file, and rows that mean ill."""

import asyncio
import fcntl
import hashlib
import json
import os
import tracemalloc
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from published import APPS, CALLED, CONTEST, FORMS, GOOD, POLARIS, write

from recipes import recipe_path
from sandbox import Sandbox
from tasks import READERS, DatasetError, Problem, grade
from tasks.data import (
    TRAINING_SETS,
    KnownAnswers,
    Prepared,
    Progress,
    grade_known_answers,
    manifest_of,
    prepare_training_set,
    rows,
)
from trainer.config import read_config

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]
Prepare = Callable[..., Prepared]

RIGHT = {
    "polaris/1": r"\boxed{0.5}",
    "polaris/2": r"\boxed{7}",
    "apps/2361": "<solution>\nprint(sum(map(int, input().split())))\n</solution>",
    "apps/2362": "<solution>\ndef turn(s):\n    return s[::-1]\n</solution>",
    "code_contests/76_B. Mice": "<solution>\nprint(int(input()) + 1)\n</solution>",
    "code_contests/1_A. Sum": "<solution>\nprint(1 + int(input()))\n</solution>",
}
WRONG = {
    "polaris/1": r"\boxed{2}",
    "polaris/2": r"\boxed{-7}",
    "apps/2361": "<solution>\nprint(3)\n</solution>",
    "apps/2362": "<solution>\ndef turn(s):\n    return s\n</solution>",
    "code_contests/76_B. Mice": "<solution>\nprint(int(input()))\n</solution>",
    "code_contests/1_A. Sum": "<solution>\n</solution>",
}


@pytest.fixture
def prepare(in_jail: InJail, tmp_path: Path) -> Prepare:
    """`prepare(name, source, ...)` into the folder `out`."""

    def run(name: str, source: Path, **options: Any) -> Prepared:
        return in_jail(lambda sandbox: prepare_training_set(name, source, tmp_path / "out", sandbox, **options))

    return run


def read_back(name: str, tmp_path: Path) -> list[Problem]:
    """What training reads; the reader leaves nothing more out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return READERS[name](tmp_path / "out" / TRAINING_SETS[name].file)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TRAINING_SETS)
def test_what_is_prepared_grades(name: str, form: str, tmp_path: Path, prepare: Prepare, in_jail: InJail) -> None:
    prepared = prepare(name, write(tmp_path / "in" / f"train.{form}", GOOD[name]))
    assert (prepared.rows, prepared.read, prepared.left_out) == (2, 2, [])
    problems = read_back(name, tmp_path)
    assert len(problems) == 2
    for problem in problems:
        for answers, correct in ((RIGHT, True), (WRONG, False)):
            answer = answers[problem.id]
            graded = in_jail(lambda sandbox, problem=problem, answer=answer: grade(problem, answer, sandbox))
            assert graded.correct == correct, (problem.id, graded)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TRAINING_SETS)
def test_every_form_gives_the_same_bytes(name: str, form: str, tmp_path: Path, prepare: Prepare) -> None:
    prepared = prepare(name, write(tmp_path / "in" / f"train.{form}", GOOD[name]))
    wanted = TRAINING_SETS[name]
    told = [{field: row[field] for field in wanted.fields} for row in GOOD[name]]
    written = (tmp_path / "out" / wanted.file).read_bytes()
    assert [json.loads(line) for line in written.splitlines()] == told
    assert (prepared.sha256, prepared.bytes) == (hashlib.sha256(written).hexdigest(), len(written))


def test_the_files_are_those_that_the_recipes_name() -> None:
    config = read_config(recipe_path("metaagent_x_qwen3_8b"))
    assert {each.format: each.path.name for each in config.data} == {
        name: each.file for name, each in TRAINING_SETS.items()
    }
    assert set(TRAINING_SETS) <= set(READERS)


def test_a_manifest_says_what_a_file_was_made_of(tmp_path: Path, prepare: Prepare) -> None:
    for number in range(2):
        write(tmp_path / "in" / "data" / f"train-{number:05d}-of-00002.jsonl", [{**CONTEST, "name": str(number)}])
    write(tmp_path / "in" / "data" / "test-00000-of-00001.jsonl", [{**CONTEST, "name": "test"}])
    prepared = prepare("code_contests", tmp_path / "in")
    file = tmp_path / "out" / "code_contests.jsonl"
    assert Prepared.model_validate_json(manifest_of(file).read_bytes()) == prepared
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [file.name, "code_contests.source.json"]
    assert [problem.id for problem in READERS["code_contests"](file)] == ["code_contests/0", "code_contests/1"]
    assert {each.path: each.sha256 for each in prepared.files} == {
        name: hashlib.sha256((tmp_path / "in" / name).read_bytes()).hexdigest()
        for name in ("data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl")
    }


# Rows that cannot be used

TESTS = json.loads(CALLED["input_output"])
HUGE = "1" * 5000
PARTS = ("public_tests", "private_tests", "generated_tests")
LEFT_OUT: dict[str, list[tuple[dict[str, Any], str]]] = {
    "polaris": [
        ({**POLARIS, "answer": ""}, "answer: empty"),
        ({**POLARIS, "answer": None}, "answer: missing"),
        ({**POLARIS, "answer": 3}, "answer: wrong type"),
        ({**POLARIS, "answer": ["3"]}, "answer: wrong type"),
        ({"problem": "?"}, "answer: missing"),
        ({**POLARIS, "problem": None}, "problem: missing"),
        ({**POLARIS, "problem": " \n"}, "no question"),
        ({**POLARIS, "answer": r"\frac{"}, "an answer that the grader cannot read"),
        ({**POLARIS, "answer": "x" * 100_000}, "an answer that the grader cannot read"),
        ({**POLARIS, "answer": HUGE}, "an answer that the grader cannot read"),
        ({**POLARIS, "answer": "a\0b"}, "an answer that the grader cannot read"),
        ({**POLARIS, "answer": r"\boxed{3}\boxed{4}"}, "an answer that is not right against itself"),
        (POLARIS, "the same problem again"),
    ],
    "apps": [
        ({**APPS, "difficulty": "interview"}, "difficulty is not introductory"),
        ({**APPS, "difficulty": None}, "difficulty is not introductory"),
        ({**APPS, "input_output": ""}, "no tests"),
        ({**APPS, "input_output": None}, "no tests"),
        ({**APPS, "input_output": '{"inputs": [], "outputs": []}'}, "no tests"),
        ({**APPS, "input_output": "{"}, "input_output: not JSON"),
        ({**APPS, "input_output": {"inputs": ["1"], "outputs": ["1"]}}, "input_output: expected JSON text"),
        ({**APPS, "input_output": f'{{"inputs": [{HUGE}], "outputs": ["1"]}}'},
         "input_output: an integer of more digits than Python reads"),
        ({**APPS, "input_output": '{"inputs": ["\\ud800"], "outputs": ["1"]}'}, "input_output: not JSON"),
        ({**APPS, "input_output": '{"inputs": ["1"], "outputs": []}'}, "input_output: N inputs for N outputs"),
        ({**APPS, "input_output": '{"inputs": ["1", "2"], "outputs": ["", " \\n"]}'}, "tests that expect nothing"),
        ({**CALLED, "input_output": json.dumps({**TESTS, "outputs": [None, [None]]})}, "tests that expect nothing"),
        ({**CALLED, "input_output": json.dumps({**TESTS, "fn_name": "a.b"})},
         "input_output.fn_name: it should be the name of a function or class"),
        ({**CALLED, "input_output": json.dumps({**TESTS, "inputs": ["ab", "xyz"]})},
         "input_output: the arguments of turn are no list"),
        ({**APPS, "question": ""}, "question: empty"),
        ({**APPS, "question": "\t"}, "no question"),
        ({**APPS, "problem_id": "many"}, "problem_id: wrong type"),
        ({**CALLED, "problem_id": 2361}, "the same problem again"),
    ],
    "code_contests": [
        ({**CONTEST, "input_file": "in.txt"}, "no tests or uses files"),
        ({**CONTEST, "public_tests": None}, "public_tests: missing"),
        ({**CONTEST, "public_tests": {"input": ["1"], "output": []}}, "public_tests: N inputs for N outputs"),
        ({**CONTEST, "private_tests": {"input": [1], "output": ["1"]}}, "private_tests.input: wrong type"),
        ({**CONTEST, "private_tests": [{"input": "1", "output": "1"}]}, "private_tests: wrong type"),
        ({**CONTEST, **{part: {"input": [], "output": []} for part in PARTS}}, "no tests or uses files"),
        ({**CONTEST, **{part: {"input": ["1"], "output": ["\n"]} for part in PARTS}}, "tests that expect nothing"),
        ({**CONTEST, "description": ""}, "no question"),
        ({**CONTEST, "name": ""}, "name: empty"),
        (CONTEST, "the same problem again"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINING_SETS)
def test_rows_that_cannot_be_used_are_counted_by_reason(name: str, tmp_path: Path, prepare: Prepare) -> None:
    source = write(tmp_path / "train.jsonl", [GOOD[name][0], *(row for row, _ in LEFT_OUT[name])])
    with source.open("ab") as file:
        file.write(b'{"problem": "\xff"}\nno JSON\n\n')
    prepared = prepare(name, source)
    expected = [reason for _, reason in LEFT_OUT[name]] + ["not UTF-8 text", "not JSON"]
    assert {each.reason: each.rows for each in prepared.left_out} == {each: expected.count(each) for each in expected}
    assert [each.rows for each in prepared.left_out] == sorted((each.rows for each in prepared.left_out), reverse=True)
    first = {each.reason: each.first for each in prepared.left_out}
    assert all(first[reason].startswith(f"train.jsonl, line {2 + expected.index(reason)}") for reason in expected)
    assert all(len(each) < 300 for each in first.values())
    assert len(read_back(name, tmp_path)) == prepared.rows == 1
    assert prepared.read == len(expected) + 1


@pytest.mark.parametrize("name", TRAINING_SETS)
def test_rows_of_parquet_that_cannot_be_used(name: str, tmp_path: Path, prepare: Prepare) -> None:
    """One file for each, as a column has one type."""
    for row, reason in LEFT_OUT[name]:
        if reason == "the same problem again" or "wrong type" in reason:
            continue
        with pytest.raises(DatasetError, match=r"no row of .* can be used") as caught:
            prepare(name, write(tmp_path / "x.parquet", [row]))
        assert f": {reason} (1 rows, first x.parquet, row 1" in str(caught.value)
    assert not (tmp_path / "out" / TRAINING_SETS[name].file).exists()


def test_columns_of_other_types(tmp_path: Path, prepare: Prepare) -> None:
    for value in (b"bytes", 1.5, True, {"a": 1}):
        with pytest.raises(DatasetError, match=r"answer: wrong type|values that JSON does not have"):
            prepare("polaris", write(tmp_path / "x.parquet", [{**POLARIS, "answer": value}]))


def test_rows_that_are_strange_and_of_use(tmp_path: Path, prepare: Prepare, in_jail: InJail) -> None:
    """NUL, line ends of every kind, characters beyond the basic plane, nulls where something is optional."""
    odd = "a\0b\r\n\u2028\x85\U0001f600"
    contest = {
        **CONTEST,
        "description": odd,
        "public_tests": {"input": [odd], "output": [odd]},
        "private_tests": {"input": ["x" * 3_000_000], "output": ["x" * 3_000_000]},
        "generated_tests": {"input": [], "output": []},
        "input_file": None,
        "output_file": None,
    }
    assert prepare("code_contests", write(tmp_path / "x.jsonl", [contest])).rows == 1
    (problem,) = read_back("code_contests", tmp_path)
    assert problem.question.startswith(odd)
    copy = "<solution>\nimport sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())\n</solution>"
    assert in_jail(lambda sandbox: grade(problem, copy, sandbox)).correct
    apps = [{**APPS, "starter_code": None}, {**CALLED, "starter_code": None, "problem_id": None, "id": 7}]
    assert prepare("apps", write(tmp_path / "y.jsonl", apps)).rows == 2
    assert [problem.id for problem in read_back("apps", tmp_path)] == ["apps/2361", "apps/7"]


def test_rows_longer_than_readers_take(tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(
        tmp_path / "x.parquet", [POLARIS, {**POLARIS, "problem": "\u20ac" * 200}, {**POLARIS, "problem": "e"}]
    )
    monkeypatch.setattr(rows, "LONGEST_LINE", 500)
    prepared = prepare("polaris", source)
    assert [(each.reason, each.rows) for each in prepared.left_out] == [("longer than 500 bytes", 1)]
    assert len(read_back("polaris", tmp_path)) == 2


def test_reasons_are_a_bounded_list(tmp_path: Path, prepare: Prepare) -> None:
    bad = [
        {
            **CALLED,
            "input_output": json.dumps(
                {"fn_name": f"f{chr(97 + n % 26)}{chr(97 + n // 26)}", "inputs": ["a"], "outputs": [1]}
            ),
        }
        for n in range(100)
    ]
    left_out = prepare("apps", write(tmp_path / "x.jsonl", [APPS, *bad])).left_out
    assert len(left_out) == 41
    assert left_out[0].reason == "other reasons"
    assert sum(each.rows for each in left_out) == 100


@pytest.mark.parametrize("name", TRAINING_SETS)
def test_the_first_rows_alone(name: str, tmp_path: Path, prepare: Prepare) -> None:
    unusable, _ = LEFT_OUT[name][0]
    source = write(tmp_path / "x.jsonl", [unusable, *GOOD[name]])
    prepared = prepare(name, source, limit=1)
    assert (prepared.rows, prepared.read, prepared.limit) == (1, 2, 1)
    assert len(read_back(name, tmp_path)) == 1
    assert prepare(name, source, limit=5).rows == 2


def test_many_rows_keep_their_order_and_show_how_far_it_is(tmp_path: Path, prepare: Prepare) -> None:
    made = [{**POLARIS, "problem": f"{n}?", "answer": str(n) if n % 7 else r"\frac{"} for n in range(1, 1001)]
    seen: list[Progress] = []
    prepared = prepare("polaris", write(tmp_path / "x.jsonl", made), watch=seen.append)
    assert prepared.rows == 1000 - 142
    assert [problem.gold for problem in read_back("polaris", tmp_path)] == [str(n) for n in range(1, 1001) if n % 7]
    assert [each.read for each in seen] == list(range(1, 1001))
    shares = [each.share for each in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert seen[-1].kept == 3 * 256 - 109, "what waits for the grader is not kept yet"


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
def test_memory_holds_a_few_rows(form: str, tmp_path: Path, prepare: Prepare) -> None:
    big = {"input": ["x" * 400_000], "output": ["y"]}
    source = write(tmp_path / f"x.{form}", [{**CONTEST, "name": str(n), "generated_tests": big} for n in range(100)])
    tracemalloc.start()
    try:
        prepared = prepare("code_contests", source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert prepared.bytes > 40_000_000
    assert peak < 12_000_000


# Files that appear whole


def test_a_run_that_fails_leaves_the_old_file(tmp_path: Path, prepare: Prepare) -> None:
    prepare("polaris", write(tmp_path / "x.jsonl", GOOD["polaris"]))
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    damaged = write(tmp_path / "y.jsonl.gz", [{**POLARIS, "problem": os.urandom(200).hex()} for _ in range(400)])
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(DatasetError, match="cut short"):
        prepare("polaris", damaged)
    with pytest.raises(DatasetError, match="no row of"):
        prepare("polaris", write(tmp_path / "z.jsonl", [{"a": 1}]))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert prepare("polaris", tmp_path / "x.jsonl", limit=1).rows == 1
    assert len(read_back("polaris", tmp_path)) == 1


def test_a_cancelled_run_leaves_nothing(tmp_path: Path, in_jail: InJail) -> None:
    source = write(tmp_path / "x.jsonl", [{**POLARIS, "problem": str(n)} for n in range(50)])

    async def cancelled(sandbox: Sandbox) -> None:
        def watch(progress: Progress) -> None:
            assert (tmp_path / "out" / "polaris_53k.jsonl.part").exists()
            if progress.read == 10:
                work.cancel()

        work = asyncio.ensure_future(prepare_training_set("polaris", source, tmp_path / "out", sandbox, watch=watch))
        with pytest.raises(asyncio.CancelledError):
            await work

    in_jail(cancelled)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_run_left_is_written_anew(tmp_path: Path, prepare: Prepare) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "polaris_53k.jsonl.part").write_text("half a row" * 1000)
    prepare("polaris", write(tmp_path / "x.jsonl", GOOD["polaris"]))
    assert len(read_back("polaris", tmp_path)) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "polaris_53k.jsonl",
        "polaris_53k.source.json",
    ]


def test_two_runs_do_not_write_one_file(tmp_path: Path, prepare: Prepare) -> None:
    source = write(tmp_path / "x.jsonl", GOOD["polaris"])
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / "polaris_53k.jsonl.part").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DatasetError, match="another process is writing it"):
            prepare("polaris", source)
        assert (tmp_path / "out" / "polaris_53k.jsonl.part").exists()
    assert prepare("polaris", source).rows == 2


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, prepare: Prepare) -> None:
    source = write(tmp_path / "x.jsonl", GOOD["polaris"])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "polaris_53k.jsonl").write_text("mine")
    with pytest.raises(DatasetError, match=r"was not prepared here. Fix: another folder, or remove it"):
        prepare("polaris", source)
    assert (tmp_path / "out" / "polaris_53k.jsonl").read_text() == "mine"
    (tmp_path / "out" / "polaris_53k.jsonl").unlink()
    (tmp_path / "out" / "polaris_53k.jsonl.part").symlink_to(source)
    with pytest.raises(OSError, match="symbolic links"):
        prepare("polaris", source)
    assert source.stat().st_size > 0


# Known answers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TRAINING_SETS)
def test_known_answers_are_graded(name: str, form: str, tmp_path: Path, prepare: Prepare, in_jail: InJail) -> None:
    source = write(tmp_path / "in" / f"train.{form}", GOOD[name])
    file = tmp_path / "out" / prepare(name, source).file
    known = in_jail(lambda sandbox: grade_known_answers(name, file, source, sandbox))
    assert known.ok
    assert known.model_dump() == {
        "read_back": 2, "right": 2, "right_accepted": 2, "wrong": 2, "wrong_accepted": 0, "surprises": [],
    }  # fmt: skip


SOLUTIONS: list[tuple[Any, int, int]] = [
    (json.dumps(["print(0)", "print 0", "import sys; print(sum(map(int, sys.stdin.read().split())))"]), 1, 1),
    (json.dumps(["print(0)"]), 1, 0),
    ("", 0, 0),
    ("[" * 100_000, 0, 0),
    ('{"a": 1}', 0, 0),
    (json.dumps([1, None, "", "  "]), 0, 0),
    (None, 0, 0),
    (3, 0, 0),
]


@pytest.mark.parametrize(("solutions", "tried", "accepted"), SOLUTIONS)
def test_published_solutions_of_any_kind(
    solutions: Any, tried: int, accepted: int, tmp_path: Path, prepare: Prepare, in_jail: InJail
) -> None:
    source = write(tmp_path / "x.jsonl", [{**APPS, "solutions": solutions}])
    file = tmp_path / "out" / prepare("apps", source).file
    known = in_jail(lambda sandbox: grade_known_answers("apps", file, source, sandbox))
    assert (known.right, known.right_accepted, known.wrong, known.wrong_accepted) == (tried, accepted, tried, 0)
    assert known.ok == (tried == accepted)
    assert len(known.surprises) == tried - accepted


def test_solutions_in_other_languages_are_no_known_answers(tmp_path: Path, prepare: Prepare, in_jail: InJail) -> None:
    solutions = {"language": [1, 2, 4], "solution": ["print 3", "int main() {}", "class A {}"]}
    source = write(tmp_path / "x.jsonl", [{**CONTEST, "solutions": solutions}])
    file = tmp_path / "out" / prepare("code_contests", source).file
    known = in_jail(lambda sandbox: grade_known_answers("code_contests", file, source, sandbox))
    assert (known.right, known.wrong, known.ok) == (0, 0, True)


def test_one_wrong_answer_that_is_accepted_is_bad() -> None:
    assert KnownAnswers(read_back=9, right=4, right_accepted=1, wrong=4).ok
    assert not KnownAnswers(read_back=9, right=4, right_accepted=4, wrong=4, wrong_accepted=1).ok
    assert not KnownAnswers(read_back=9, right=4, wrong=4).ok


def test_data_that_does_not_grade_is_told(tmp_path: Path, prepare: Prepare, in_jail: InJail) -> None:
    """A file whose tests want what the wrong answer prints."""
    source = write(tmp_path / "x.jsonl", [APPS])
    file = tmp_path / "out" / prepare("apps", source).file
    tests = json.dumps({"inputs": ["1 2\n"], "outputs": ["no such answer\n"]})
    file.write_text(json.dumps({**APPS, "input_output": tests}))
    known = in_jail(lambda sandbox: grade_known_answers("apps", file, source, sandbox))
    assert not known.ok
    assert (known.right_accepted, known.wrong_accepted) == (0, 1)
    assert known.surprises == [
        "apps/2361: a wrong answer is graded as correct",
        "apps/2361: a right answer is graded as 0 of 1 tests passed",
    ]
