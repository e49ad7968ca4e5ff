"""How far the graders can be trusted: `python -m benchmarks.grading DATA_FOLDER [--rows N] [--only math|code]
[--golds FORMAT=FILE ...]`.

The folder holds math500.json, aime24.jsonl, gsm8k_test.jsonl, humaneval.jsonl, mbpp.jsonl. For math it measures how
many golds verify against themselves, how many changed golds are refused and how many redressed ones accepted; for
code, how many reference solutions pass, and how many solutions that return an object equal to everything are
refused. Grading runs in jails, as in use. `--golds` adds files of other benchmarks (`benchmarks.gold_files`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.gold_files import FORMATS, read_golds
from benchmarks.gold_mutants import mutants, redressed
from sandbox import ProcessSandbox
from sandbox.protocol import Sandbox
from tasks import (
    MATH_WORKER,
    READERS,
    AssertTests,
    MathPair,
    Problem,
    grade_code,
    grade_math_batch,
)
from tasks.math import worker
from workflow.answers import code_answer, math_answer

MATH_FILES = {"math500": "math500.json", "aime": "aime24.jsonl", "gsm8k": "gsm8k_test.jsonl"}
CODE_FILES: dict[str, tuple[str, str]] = {
    "humaneval": ("humaneval.jsonl", "canonical_solution"),
    "mbpp": ("mbpp.jsonl", "code"),
}
EQUAL_TO_ALL = """
class _Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 0
    def __sub__(self, other): return 0.0
    def __getattr__(self, name): return self
def {name}(*args, **kwargs): return _Equal()
"""


async def main(folder: Path, rows: int | None, only: str | None, others: list[tuple[str, Path]]) -> None:
    console = Console(width=100)
    table = Table(title="Grading, measured in jails")
    for heading in ("data", "what", "goal", "n", "as wanted", "share", "seconds"):
        table.add_column(heading, justify="left" if heading in ("data", "what") else "right")
    notes: list[str] = []

    def report(data: str, what: str, goal: str, wanted: int, total: int, since: float) -> None:
        share = f"{wanted / total:.2%}" if total else "-"
        table.add_row(data, what, goal, str(total), str(wanted), share, f"{time.monotonic() - since:.1f}")

    async with ProcessSandbox(preload=(MATH_WORKER,)) as sandbox:
        for name, file in MATH_FILES.items():
            if only != "code":
                golds = [problem.gold or "" for problem in READERS[name](folder / file)[:rows]]
                notes += await measure_math(sandbox, name, golds, report)
        for name, file in others:
            notes += await measure_math(sandbox, name, read_golds(name, file)[:rows], report)
        for name, (file, field) in CODE_FILES.items():
            if only != "math":
                lines = (folder / file).read_text(encoding="utf-8").splitlines()[:rows]
                references = [json.loads(line)[field] for line in lines]
                problems = READERS[name](folder / file)[:rows]
                notes += await measure_code(sandbox, name, problems, references, report)
    console.print(table)
    print("\n".join(notes))


Report = Callable[[str, str, str, int, int, float], None]


async def measure_math(sandbox: Sandbox, name: str, golds: list[str], report: Report) -> list[str]:
    """Returns one line for each gold that cannot be read and each variant that was not graded as wanted."""
    start = time.monotonic()
    asked = await grade_math_batch(sandbox, [MathPair(gold=gold, answer="") for gold in golds])
    readable = [grade.gold for grade in asked if grade.verdict != "gold_unparseable"]
    notes = [f"{name}: cannot be read: {grade.gold!r}" for grade in asked if grade.verdict == "gold_unparseable"]
    report(name, "gold can be read", "-", len(readable), len(golds), start)
    golds = readable
    same = [MathPair(gold=gold, answer=math_answer(rf"So it is \boxed{{{gold}}}.")) for gold in golds]
    changed = [MathPair(gold=gold, answer=other) for gold in sorted(set(golds)) for other in mutants(gold)]
    dressed = [MathPair(gold=gold, answer=other) for gold in sorted(set(golds)) for other in redressed(gold)]
    # Grading takes equal texts as equal; whether the comparison itself says so, too, is asked without that shortcut.
    start = time.monotonic()
    read = [worker.compare_values(gold, gold) == "correct" for gold in golds]
    report(name, "gold equals itself as a formula", "100%", sum(read), len(read), start)
    notes += [
        f"{name}: not equal to itself as a formula: {gold!r}" for gold, ok in zip(golds, read, strict=True) if not ok
    ]
    for what, goal, pairs, want in (
        ("gold in a box accepted", "100%", same, "correct"),
        ("changed gold refused", "99%", changed, "wrong"),
        ("redressed gold accepted", "98%", dressed, "correct"),
    ):
        start = time.monotonic()
        grades = await grade_math_batch(sandbox, pairs)
        report(name, what, goal, sum(grade.verdict == want for grade in grades), len(grades), start)
        notes += [
            f"{name}: {what}: no: gold {grade.gold!r}, answer {grade.answer!r}: {grade.verdict}"
            for grade in grades
            if grade.verdict != want
        ]
    return notes


async def measure_code(
    sandbox: Sandbox, name: str, problems: list[Problem], references: list[str], report: Report
) -> list[str]:
    """Returns one line for each reference that failed and each forgery that passed."""
    notes = []
    start = time.monotonic()
    passed = 0
    for problem, reference in zip(problems, references, strict=True):
        assert isinstance(problem.tests, AssertTests)
        code = code_answer(f"<solution>\n{reference}\n</solution>")
        grade = await grade_code(sandbox, code or "", problem.tests)
        passed += grade.correct
        failed = next((test for test in grade.tests if test.outcome != "pass"), None)
        if failed is not None:
            notes.append(f"{name}: reference failed: {problem.id}: {failed.outcome}: {failed.detail}")
    report(name, "reference passes", "98%", passed, len(problems), start)
    start = time.monotonic()
    refused = 0
    for problem in problems:
        assert isinstance(problem.tests, AssertTests)
        forgery = "".join(EQUAL_TO_ALL.format(name=target) for target in problem.tests.names.values())
        grade = await grade_code(sandbox, forgery, problem.tests, stop_at_failure=True)
        refused += not grade.correct
        if grade.correct:
            notes.append(f"{name}: equal-to-all object passed: {problem.id}")
    report(name, "equal-to-all object refused", "100%", refused, len(problems), start)
    return notes


def gold_file(text: str) -> tuple[str, Path]:
    """`FORMAT=FILE` of the command line."""
    kind, _, path = text.partition("=")
    if kind not in FORMATS or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not FORMAT=FILE with FORMAT one of {', '.join(FORMATS)}")
    return kind, Path(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How far the graders can be trusted, measured.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=None, help="only the first rows of each file")
    parser.add_argument("--only", choices=["math", "code"], default=None)
    parser.add_argument(
        "--golds", type=gold_file, nargs="*", default=[], metavar="FORMAT=FILE", help=f"FORMAT: {', '.join(FORMATS)}"
    )
    options = parser.parse_args()
    asyncio.run(main(options.folder, options.rows, options.only, options.golds))
