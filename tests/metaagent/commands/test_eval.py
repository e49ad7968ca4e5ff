"""`metaagent eval` from its arguments to its exit code: real tasks files, a real jail, recorded replies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import MISSPELT, document, invoke

from engine import retries

Replay = Callable[..., str]

PROBLEMS = [
    {"id": "sum/1", "question": "What is 1 + 1?", "domain": "math", "gold": "2"},
    {"id": "sum/2", "question": "What is 2 + 2?", "domain": "math", "gold": "4"},
    {
        "id": "code/1",
        "question": "Write double(n).",
        "domain": "code",
        "tests": {"kind": "call", "fn_name": "double", "tests": [{"args": [2], "expected": 4}]},
    },
]
DOUBLE = "<solution>\ndef double(n):\n    return 2 * n\n</solution>"
ANSWERS = [("Solver", r"\boxed{2}"), ("Solver", r"\boxed{5}"), ("Solver", DOUBLE)]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    return "problems:own.jsonl"


def one_by_one(task: str, engine: str, *more: str) -> tuple[str, ...]:
    """Arguments for one attempt per problem, in order."""
    return ("eval", task, "-e", engine, "--k", "1", "--max-concurrent", "1", *more)


def test_one_program_on_three_problems(one: str, task: str, replay: Replay, tmp_path: Path) -> None:
    done = invoke(*one_by_one(task, replay(*ANSWERS), "-d", one, "--out", "out", "--json"))
    assert done.exit_code == 0
    told = document(done)
    report: dict[str, Any] = told["report"]
    assert (told["tasks"], told["designer"], told["settings"]["k"]) == ([task], one, 1)
    assert (report["problems"], report["attempts"]) == (3, 3)
    assert report["accuracy"]["estimate"] == pytest.approx(2 / 3)
    assert report["by_domain"]["math"]["estimate"] == 0.5
    assert report["by_domain"]["code"]["estimate"] == 1.0
    assert report["structures"] == {"single": {"share": 1.0, "attempts": 3, "correct": pytest.approx(2 / 3)}}
    assert (report["answered"], report["failures"], report["diversity"]["designs"]) == (1.0, {}, 1)
    assert report["usage_by_role"]["executor"]["calls"] == 3
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [(line["problem"], line["verdict"]) for line in lines] == [
        ("sum/1", "correct"), ("sum/2", "wrong"), ("code/1", "correct"),
    ]  # fmt: skip
    assert all((tmp_path / "out" / line["trace"]).exists() for line in lines)


@pytest.mark.thorough
def test_people_get_a_table_and_nothing_is_asked_twice(one: str, task: str, replay: Replay) -> None:
    arguments = one_by_one(task, replay(*ANSWERS), "-d", one, "--out", "out")
    first = invoke(*arguments)
    assert first.exit_code == 0
    assert "66.7% (95% interval 20.8% to 93.9%, 3 problems)" in first.stdout
    assert "single\t100.0%\t3\t66.7%" in first.stdout
    assert "  math  50.0%" in first.stdout
    assert replay() == "replay:replies.jsonl", "now there are no replies at all"
    again = invoke(*arguments)
    assert again.exit_code == 0
    assert "66.7% (95% interval 20.8% to 93.9%, 3 problems)" in again.stdout


@pytest.mark.thorough
def test_an_engine_that_fails_keeps_what_is_done(one: str, task: str, replay: Replay) -> None:
    arguments = one_by_one(task, replay(*ANSWERS[:2]), "-d", one, "--out", "out")
    broken = invoke(*arguments)
    assert broken.exit_code == 4
    assert "2 of 3 attempts are done and kept in out: the same command goes on from there" in broken.stderr
    assert "all 2 replies of this agent are used" in broken.stderr
    replay(ANSWERS[2])
    assert "66.7%" in invoke(*arguments).stdout
    lost = invoke(*one_by_one(task, replay(ANSWERS[2]), "-d", one))
    assert lost.exit_code == 4
    assert "1 of 3 attempts are done and lost; --out keeps them" in lost.stderr


def test_the_engine_designs_its_own_programs(task: str, one: str, replay: Replay, tmp_path: Path) -> None:
    program = (tmp_path / one).read_text()
    bad = ("designer", f"<code>\n{MISSPELT}</code>")
    engine = replay(("designer", f"<code>\n{program}</code>"), ANSWERS[0], bad, bad)
    told = document(invoke(*one_by_one(task, engine, "-d", engine, "--limit", "2", "--style", "short", "--json")))
    assert told["designer"] == told["engine"] == engine
    report = told["report"]
    assert report["failures"] == {"program_rejected": 1}
    assert {name: row["share"] for name, row in report["structures"].items()} == {"single": 0.5, "none": 0.5}
    assert {role: tally["calls"] for role, tally in report["usage_by_role"].items()} == {"designer": 3, "executor": 1}


def test_the_bank_designs_by_default(task: str, replay: Replay) -> None:
    told = document(invoke(*one_by_one(task, replay(("MathSolver", r"\boxed{2}")), "--limit", "1", "--json")))
    assert told["designer"] == "bank"
    assert told["report"]["accuracy"]["estimate"] == 1.0


def test_tasks_are_told_apart(one: str, task: str, replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "gsm.jsonl").write_text(json.dumps({"question": "1 + 2?", "answer": "#### 3"}) + "\n")
    engine = replay(*ANSWERS, ("Solver", r"\boxed{3}"))
    done = invoke("eval", task, "gsm8k:gsm.jsonl", "-e", engine, "-d", one, "--k", "1", "--max-concurrent", "1")
    assert "gsm8k:gsm.jsonl     100.0%" in done.stdout
    assert "problems:own.jsonl  66.7%" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("problem:own.jsonl",), "write problems:FILE"),
        (("problems:none.jsonl",), "cannot read none.jsonl"),
        (("problems:own.jsonl", "problems:./own.jsonl"), "both have a problem 'sum/1'"),
        (("problems:own.jsonl", "-d", "none.py"), "cannot read none.py"),
        (("problems:own.jsonl", "-d", "bnak"), "unknown engine 'bnak'. Fix: write bank"),
        (("problems:own.jsonl", "-d", "nosuch"), "; bank; FILE.py"),
        (("problems:own.jsonl", "--temperature", "-1"), "--temperature"),
        (("problems:own.jsonl", "--sandbox", "x"), "there is no sandbox 'x'"),
        (("problems:own.jsonl", "--out", "own.jsonl/x"), "cannot write to own.jsonl/x"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(task: str, replay: Replay, arguments: tuple[str, ...], told: str) -> None:
    result = invoke("eval", *arguments, "-e", replay(("Solver", "x")))
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.thorough
def test_an_engine_is_needed_and_a_folder_of_another_evaluation_is_refused(one: str, task: str, replay: Replay) -> None:
    assert "evaluating needs an engine" in invoke("eval", task).stderr
    arguments = one_by_one(task, replay(*ANSWERS), "-d", one, "--out", "out")
    assert invoke(*arguments).exit_code == 0
    other = invoke(*arguments, "--seed", "3")
    assert other.exit_code == 2
    assert "out holds attempts with seed=0, not 3" in other.stderr


def test_a_gold_that_cannot_be_read_is_told(one: str, replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(json.dumps({**PROBLEMS[0], "gold": r"\frac{"}) + "\n")
    done = invoke(*one_by_one("problems:odd.jsonl", replay(ANSWERS[0]), "-d", one))
    assert "1 problem has a gold answer that cannot be read: sum/1" in done.stderr


def test_a_program_that_the_check_refuses_is_a_usage_error_before_any_attempt(
    task: str, replay: Replay, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(MISSPELT)
    result = invoke("eval", task, "-e", replay(("Solver", "x")), "--designer", "bad.py", "--out", "out")
    assert result.exit_code == 2
    assert "bad.py:2: error" in result.stderr
    assert "--designer bad.py may not run" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_of_another_format_is_told_its_own(tmp_path: Path, replay: Replay) -> None:
    (tmp_path / "m.json").write_text('[{"id": "a", "prompt": "2 + 2?", "answer": "4"}]')
    result = invoke("eval", "gsm8k:m.json", "-e", replay(("Solver", "x")))
    assert result.exit_code == 2
    assert "field question: Field required. Fix: its format is math500, not gsm8k" in " ".join(result.stderr.split())
