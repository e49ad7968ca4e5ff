"""Programs with the constructs of the published ones, executed in plain Python and driven with canned replies."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from canned import Outcome, Replies, run

from workflow import Context
from workflow.graph import describe, main_workflow, structure
from workflow.text import last_boxed, solution_block

PROGRAMS = Path(__file__).parent / "programs"


def execute(name: str, replies: Replies, question: str = "Q?") -> Outcome:
    """Execute a program as the runner does: its own run counts, else its workflow is run."""

    def program() -> Any:
        values: dict[str, Any] = {"__name__": "__main__", "question": question}
        exec(compile((PROGRAMS / f"{name}.py").read_text(), name, "exec"), values)
        if "result" in values:
            return values["result"]
        workflow = main_workflow(values)
        assert workflow is not None
        return workflow.process(Context.for_question(question))

    return run(program, replies)


def test_single_agent(capsys: pytest.CaptureFixture[str]) -> None:
    reply = "Both even or both odd: 3 + 3.\n\nThe answer is \\boxed{6}"
    outcome = execute("single_agent", {"Counter": reply})
    assert outcome.content == reply
    assert capsys.readouterr().out == f"----------------\nRESULT:\n{reply}\n----------------\n"
    (call,) = outcome.calls
    assert call.messages[0]["content"].startswith("You count things exactly.\n\nSTEPS:\n1. Say")
    assert "S = {1,2,...,6}" in call.messages[0]["content"]
    assert call.messages[1]["content"].startswith("Two balls are drawn")
    assert call.tools == []


def test_single_agent_that_only_echoes_its_prompt_gives_no_answer() -> None:
    outcome = execute("single_agent", lambda call: call.messages[0]["content"])
    assert last_boxed(outcome.content) is None


def test_ensemble_with_judge() -> None:
    replies = {
        "Algebraist": "Ten ways. \\boxed{10}",
        "Geometer": "<delivery>\\boxed{9}</delivery>",
        "Counter": "\\boxed{10}",
        "Judge": "Two of three say so: \\boxed{10}",
    }
    outcome = execute("ensemble_judge", replies, "How many grids?")
    assert outcome.agents == ["Algebraist", "Geometer", "Counter", "Judge"]
    assert last_boxed(outcome.content) == "10"
    (shown,) = outcome.prompts("Judge")
    assert shown.startswith("How many grids?\n\n### From 1. Algebraist\nTen ways.")
    assert "### From 2. Geometer\n\\boxed{9}\n\n### From 3. Counter" in shown


def call(code: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'run_python', 'arguments': {'code': code}})}</tool_call>"


def test_solver_and_tester_with_a_tool_around_subprocess(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    def fake_run(args: list[str], **options: Any) -> SimpleNamespace:
        ran.append((args, options))
        if "while" in args[2]:
            raise subprocess.TimeoutExpired(args, 20)
        return SimpleNamespace(stdout=f"ran {args[2]}", stderr="")

    monkeypatch.setattr(subprocess, "run", fake_run)
    replies = {
        "Programmer": [
            f"First try:\n{call('print(1)')}\n{call('while True: pass')}",
            "<solution>\nprint(1)\n</solution>",
            "<solution>\nprint(2)\n</solution>",
        ],
        "Tester": [
            f"Let me see. {call('assert 1 == 2')}",
            "FAIL: expected 2\n- Final verdict: INCORRECT",
            "PASS\n- Final verdict: CORRECT",
        ],
    }
    outcome = execute("solver_tester", replies)
    assert outcome.agents == ["Programmer", "Programmer", "Tester", "Tester", "Programmer", "Tester"]
    assert solution_block(outcome.content) == "print(2)"
    assert outcome.message.metadata["accepted"] is True
    assert [args for args, _ in ran] == [
        ["python", "-c", code] for code in ("print(1)", "while True: pass", "assert 1 == 2")
    ]
    assert ran[0][1] == {"capture_output": True, "text": True, "timeout": 20}
    answers = [turn["content"] for turn in outcome.calls[1].messages if turn["role"] == "tool"]
    assert answers == ["stdout:\nran print(1)\n", "Error: timed out (20s limit)"]
    assert "<solution>\nprint(1)\n</solution>" in outcome.prompts("Tester")[0]
    assert "FAIL: expected 2" in outcome.prompts("Programmer")[2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("single_agent", "single"), ("ensemble_judge", "ensemble"), ("solver_tester", "reflection")],
)
def test_structures(name: str, expected: str) -> None:
    values: dict[str, Any] = {}
    source = (PROGRAMS / f"{name}.py").read_text().split("print(", maxsplit=1)[0]
    exec(compile(source, name, "exec"), values)
    workflow = main_workflow(values)
    assert workflow is not None
    assert structure(describe(workflow)) == expected


def test_programs_import_nothing_but_the_contract() -> None:
    assert sys.modules["workflow"].__name__ == "workflow"
    for path in PROGRAMS.glob("*.py"):
        imported = {line.split()[1] for line in path.read_text().splitlines() if line.startswith(("from ", "import "))}
        assert imported <= {"workflow", "workflow.nodes", "subprocess"}, path.name
