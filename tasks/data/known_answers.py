"""Grades answers that are known to be right or wrong, to problems of a prepared file, with the graders of training.

The right answers are a math problem's own, or Python solutions that were published with a code problem; the wrong ones
are made up here. Not here: preparing (`tasks.data.prepare`) and grading (`tasks.grading`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from tasks.data.benchmarks import READERS
from tasks.data.published_sets import TRAINING_SETS, NotUsable, usable
from tasks.data.references import python_solutions
from tasks.data.sources import source_rows, train_files
from tasks.grading import grade
from tasks.problems import CallTests, Problem, StdinTests
from workflow.answers import final_answer

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

HEAD = 200
"""Rows that are read back."""
HEAD_BYTES = 64 << 20
PROBLEMS = 4
"""Of these, how many are graded."""
SOLUTIONS = 3
"""Published solutions to one problem that are tried until one is right: some are not, some were for Python 2."""
TESTS = 20
"""Tests of a problem that are run."""


class KnownAnswers(BaseModel):
    """How known answers were graded: with data that grades, all of the right ones are, and none of the wrong ones."""

    read_back: int
    """Rows that the reader was given, the first ones of the file."""
    right: int = 0
    right_accepted: int = 0
    wrong: int = 0
    wrong_accepted: int = 0
    surprises: list[str] = []
    """Problem and verdict of each answer that was not graded as it should be."""

    @property
    def ok(self) -> bool:
        """No wrong answer is accepted, and some right one is, if there was any. A published solution may be wrong."""
        return not self.wrong_accepted and (self.right_accepted > 0 or not self.right)


async def grade_known_answers(name: str, file: Path, source: Path, sandbox: Sandbox) -> KnownAnswers:
    """Read the first rows of `file` (prepared as `name` from `source`) back, and grade answers to `PROBLEMS` of them.

    Raises `DatasetError` where the reader refuses them, `SandboxUnavailable` where nothing can be graded.
    """
    problems = {problem.id: problem for problem in _read_back(name, file)}
    known = KnownAnswers(read_back=len(problems))
    for problem, right in _with_answers(name, problems, source):
        verdict = ""
        for answer in right:
            graded = await grade(problem, answer, sandbox, stop_at_failure=True)
            verdict = "" if graded.correct else f"{problem.id}: a right answer is graded as {graded.verdict}"
            if not verdict:
                break
        known.right += 1
        known.right_accepted += not verdict
        known.wrong += 1
        if (await grade(problem, _wrong_answer(problem), sandbox, stop_at_failure=True)).correct:
            known.wrong_accepted += 1
            known.surprises.append(f"{problem.id}: a wrong answer is graded as correct")
        known.surprises += [verdict] if verdict else []
    return known


def _read_back(name: str, file: Path) -> list[Problem]:
    """The first problems: a file may be larger than memory."""
    with tempfile.TemporaryDirectory() as folder, file.open("rb") as lines:
        head = Path(folder, file.name)
        with head.open("wb") as copy:
            for line in islice(lines, HEAD):
                copy.write(line)
                if copy.tell() > HEAD_BYTES:
                    break
        return READERS[name](head)


def _with_answers(name: str, problems: Mapping[str, Problem], source: Path) -> Iterator[tuple[Problem, list[str]]]:
    """Problems with the answers to them that are known to be right."""
    if not TRAINING_SETS[name].solutions:
        every = max(len(problems) // PROBLEMS, 1)
        for problem in islice(problems.values(), 0, every * PROBLEMS, every):
            yield problem, [f"\\boxed{{{problem.gold}}}"]
        return
    found = 0
    for key, solutions in _solved(name, source):
        if key in problems and solutions:
            yield _shortened(problems[key]), solutions
            found += 1
        if found == PROBLEMS:
            return


def _solved(name: str, source: Path) -> Iterator[tuple[str, list[str]]]:
    """Ids of the first problems of the source, with Python solutions as agents would write them."""
    wanted = TRAINING_SETS[name]
    rows = (row for file in train_files(source) for row in source_rows(file, [*wanted.columns, wanted.solutions]))
    seen = 0
    for row in rows:
        if row.fields is None:
            continue
        try:
            _, problem = usable(wanted, row.fields)
        except NotUsable:
            continue
        codes = python_solutions(row.fields.get(wanted.solutions))
        written = [(f"<solution>\n{code}\n</solution>", code) for code in codes]
        fitting = [text for text, code in written if (final_answer(text, "code") or "").strip() == code.strip()]
        yield problem.id, fitting[:SOLUTIONS]
        seen += 1
        if seen == HEAD:
            return


def _shortened(problem: Problem) -> Problem:
    if isinstance(problem.tests, StdinTests | CallTests):
        tests = problem.tests.model_copy(update={"tests": problem.tests.tests[:TESTS]})
        return problem.model_copy(update={"tests": tests})
    return problem


def _wrong_answer(problem: Problem) -> str:
    if problem.gold is not None:
        return "\\boxed{-7919}" if "7919" not in problem.gold else "\\boxed{-104729}"
    if isinstance(problem.tests, CallTests):
        return f"<solution>\ndef {problem.tests.fn_name}(*arguments):\n    return 'no such answer'\n</solution>"
    return "<solution>\nprint('no such answer')\n</solution>"
