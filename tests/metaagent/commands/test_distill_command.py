"""`metaagent distill` from its arguments to its exit code: real task files, a real jail, recorded replies."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from command_line import MISSPELT, document, invoke

from engine import retries
from tasks import Problem
from templates import load_templates
from trainer.distill.bank_programs import TemplateProgram, drawn
from trainer.rollout.rollout import derived_seed
from trainer.sft.chat_rows import read_rows

Replay = Callable[..., str]

PROBLEMS = [
    {"id": "sum/1", "question": "What is 1 + 1?", "domain": "math", "gold": "2"},
    {"id": "sum/2", "question": "What is 2 + 2?", "domain": "math", "gold": "4"},
]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


@pytest.fixture
def task(tmp_path: Path) -> str:
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    return "problems:own.jsonl"


@pytest.fixture
def design(one: str, tmp_path: Path) -> tuple[str, str]:
    """A teacher's reply with the program of `one`."""
    return "designer", f"<code>\n{(tmp_path / one).read_text()}</code>"


def taught(task: str, engine: str, *more: str) -> tuple[str, ...]:
    """Arguments for one design per question, in order, by the same engine as the agents."""
    return ("distill", task, "-e", engine, "-d", engine, "--designs", "1", "--max-concurrent", "1", "-o", "out", *more)


def test_a_teacher_distils_and_the_report_is_one_document(
    task: str, design: tuple[str, str], replay: Replay, tmp_path: Path
) -> None:
    engine = replay(
        ("designer", f"<code>\n{MISSPELT}</code>"), design, ("Solver", r"\boxed{2}"), design, ("Solver", "5")
    )
    told = document(invoke(*taught(task, engine, "--json")))
    assert (told["engine"], told["designer"], told["tasks"]) == (engine, engine, [task])
    report: dict[str, Any] = told["report"]
    assert (report["questions"], report["solved"], report["runs"], report["runs_kept"]) == (2, 1, 2, 1)
    assert report["rows"] == {"designer": 1, "executor": 1}
    assert report["runs_dropped"] == {"no_answer": 1}
    assert report["structures"] == {"single": {"designs": 2, "kept": 1}}
    assert {role: tally["calls"] for role, tally in report["usage_by_role"].items()} == {"designer": 3, "executor": 2}
    assert [row.role for row in read_rows(tmp_path / told["rows"])] == ["designer", "executor"]


def test_people_get_tables_and_a_pipe_lines_of_progress(task: str, design: tuple[str, str], replay: Replay) -> None:
    done = invoke(*taught(task, replay(design, ("Solver", r"\boxed{2}"), design, ("Solver", r"\boxed{5}"))))
    assert done.exit_code == 0
    assert "1 of 2 questions: 1 of 1 runs kept, 2 rows" in done.stderr
    assert "2 of 2 questions: 1 of 2 runs kept, 2 rows" in done.stderr
    assert "Rows       1 designer, 1 executor" in done.stdout
    assert "2, of which 1 correct, 1 kept" in done.stdout
    assert "runs: wrong\t1" in done.stdout
    assert "single\t2\t100.0%\t1\t100.0%" in done.stdout
    assert "  designer  2 calls" in done.stdout


@pytest.mark.thorough
def test_what_is_done_is_kept_and_gone_on_with(
    task: str, design: tuple[str, str], replay: Replay, tmp_path: Path
) -> None:
    broken = invoke(*taught(task, replay(design, ("Solver", r"\boxed{2}"))))
    assert broken.exit_code == 4
    assert (
        "1 of 2 questions are done and kept in out: the same command with --resume goes on from there" in broken.stderr
    )
    assert len(list(read_rows(tmp_path / "out" / "rows.jsonl"))) == 2
    engine = replay(design, ("Solver", r"\boxed{4}"))
    refused = invoke(*taught(task, engine))
    assert refused.exit_code == 2
    assert "out holds a distillation. Fix: go on with it (--resume)" in refused.stderr
    resumed = document(invoke(*taught(task, engine, "--resume", "--json")))
    assert resumed["report"]["rows"] == {"designer": 2, "executor": 2}


@pytest.mark.thorough
def test_the_bank_needs_no_teacher(task: str, replay: Replay, tmp_path: Path) -> None:
    fitting = [TemplateProgram(each, "", each.structure) for each in load_templates()]
    problem = Problem.model_validate(PROBLEMS[0])
    firsts = (drawn(fitting, problem, 1, derived_seed(seed, problem.id, "templates"))[0] for seed in count())
    seed = next(seed for seed, first in enumerate(firsts) if first.template.name == "math_single")
    arguments = ("--bank", "--designs", "1", "--limit", "1", "--seed", str(seed), "-o", "out", "--json")
    told = document(invoke("distill", task, "-e", replay(("MathSolver", r"\boxed{2}")), *arguments))
    assert (told["designer"], told["report"]["rows"]) == ("bank", {"designer": 1, "executor": 1})
    designed = next(read_rows(tmp_path / "out" / "rows.jsonl", role="designer")).messages[-1]["content"]
    assert designed.startswith("Problem Type: MATH\nWorkflow Pattern: single agent\n<code>\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say who designs: --designer SPEC for a teacher, or --bank"),
        (("--bank", "-d", "replay:replies.jsonl"), "one of them"),
        (("-d", "bnak"), "unknown engine 'bnak'"),
        (("--bank", "--min-format", "1.5"), "--min-format 1.5"),
        (("--bank", "--temperature", "-1"), "--temperature"),
        (("--bank", "--out", "own.jsonl/x"), "cannot write to own.jsonl/x"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(task: str, replay: Replay, arguments: tuple[str, ...], told: str) -> None:
    result = invoke("distill", task, "-e", replay(("Solver", "x")), "--out", "out", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_an_engine_is_needed(task: str) -> None:
    assert "distilling needs an engine" in invoke("distill", task, "--bank", "--out", "out").stderr


def test_nothing_kept_is_told(task: str, design: tuple[str, str], replay: Replay, tmp_path: Path) -> None:
    done = invoke(*taught(task, replay(design, ("Solver", "?")), "--limit", "1"))
    assert done.exit_code == 0
    assert "nothing was kept" in done.stderr
    assert (tmp_path / "out" / "rows.jsonl").read_text() == ""
