"""Folders of evaluations for tests, and what must hold of every page that shows one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainer.disk import line_of
from trainer.evaluate import RESULTS, SETTINGS, Attempt
from viewer.evaluation.attempt_rows import Row, row_of
from workflow import AgentNode, EnsembleNode, Workflow
from workflow.completion import Usage
from workflow.graph import describe
from workflow.usage import Tally

SINGLE = describe(Workflow("w").add_node(AgentNode("Solver", "Solve it.")))
ENSEMBLE = describe(Workflow("w").add_node(EnsembleNode("e", [AgentNode("A", "a"), AgentNode("B", "b")])))
PROGRAM = 'solver = AgentNode("Solver", "Solve it.")\nworkflow = Workflow("w").add_node(solver)\n'
STARTED = '{"type": "run_started", "run_id": "r", "question": "1 + 1?", "engine": "e"}\n'
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "\x1b[31m\x07\x00 bell",
    "\u202egnp.exe\u2066\u200b",
    "{{ 7 * 7 }} {% raw %}",
    "../../../etc/passwd?a=b&c=d#e%2f",
    "x" * 30_000,
)


def attempt(problem: str = "p", number: int = 0, correct: bool = True, **more: Any) -> Attempt:
    """One with a Designer's and two agents' calls: 30 + 12 + 40 + 8 = 90 tokens."""
    usage = {
        "designer": Tally(calls=1, usage=Usage(prompt_tokens=30, completion_tokens=12)),
        "executor": Tally(calls=2, usage=Usage(prompt_tokens=40, completion_tokens=8)),
    }
    return Attempt(
        **{
            "problem": problem,
            "attempt": number,
            "problem_digest": f"digest of {problem}",
            "domain": "math",
            "seed": 7,
            "correct": correct,
            "answered": True,
            "verdict": "correct" if correct else "wrong",
            "designer": "policy",
            "program": PROGRAM,
            "structure": "single",
            "graph": SINGLE,
            "usage": usage,
            "reply_tokens": {"designer": [12], "executor": [3, 5]},
            "duration_s": 2.0,
            **more,
        }
    )


def rejected(problem: str, number: int = 0, **more: Any) -> Attempt:
    """One whose program may not run."""
    return attempt(
        problem,
        number,
        False,
        **{
            "answered": False,
            "verdict": "program_rejected",
            "failure": "program_rejected",
            "message": "line 2: unexpected indent",
            "structure": None,
            "graph": None,
            **more,
        },
    )


def folder_of(path: Path, attempts: Iterable[Attempt], **made_by: Any) -> Path:
    """An evaluation's folder with these attempts, each with a file for its trace where it names one."""
    path.mkdir(parents=True, exist_ok=True)
    made = {"designer": "policy-1", "executor": "policy-1", "sampling": {"temperature": 1.0}, **made_by}
    (path / SETTINGS).write_text(json.dumps(made))
    with (path / RESULTS).open("w", encoding="utf-8") as file:
        for each in attempts:
            file.write(line_of(each))
            if each.trace and each.trace.startswith("traces/"):
                (path / "traces").mkdir(exist_ok=True)
                (path / each.trace).write_text(
                    '{"type": "run_started", "run_id": "r", "question": "1 + 1?", "engine": "e"}\n'
                )
    return path


def rows_of(attempts: Iterable[Attempt]) -> list[Row]:
    return [row_of(each, line, 100 * line) for line, each in enumerate(attempts, 1)]
