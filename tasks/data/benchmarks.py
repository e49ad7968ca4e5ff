"""Read public benchmark files into problems: AIME24, MATH-500, GSM8K, HumanEval, MBPP, one's own; and list all readers.

A reader takes a local path; nothing is downloaded. A row that is not as the format says raises `DatasetError`, which
names the file, the line (or item) and the field. Readers of training sets are in `tasks.data.training_sets`.
"""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field, field_validator

from tasks.code import names_bound
from tasks.data.boxoban import read_boxoban
from tasks.data.math_files import read_math
from tasks.data.rows import DatasetError, placed_rows, rows
from tasks.data.training_sets import read_apps, read_code_contests, read_polaris
from tasks.environments import LevelError, check_level
from tasks.problems import AssertTests, Name, Problem
from workflow.checks import nearest


class _AimeRow(BaseModel):
    id: int
    problem: str = Field(min_length=1)
    answer: str = Field(pattern=r"^[0-9]{1,3}$")


class _MathRow(BaseModel):
    id: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    answer: str = Field(min_length=1)


class _Gsm8kRow(BaseModel):
    question: str = Field(min_length=1)
    answer: str

    @field_validator("answer")
    @classmethod
    def _final_number(cls, answer: str) -> str:
        _, mark, final = answer.rpartition("####")
        if not mark or not final.strip():
            raise ValueError("no final answer after ####")
        return final.strip().replace(",", "")


class _HumanEvalRow(BaseModel):
    task_id: str = Field(min_length=1)
    prompt: str
    entry_point: Name
    canonical_solution: str
    test: str


class _MbppRow(BaseModel):
    task_id: int
    text: str
    code: str
    test_setup_code: str
    test_list: list[str] = Field(min_length=1)

    @field_validator("code", "test_setup_code", "test_list")
    @classmethod
    def _parses(cls, source: str | list[str]) -> str | list[str]:
        for text in [source] if isinstance(source, str) else source:
            try:
                ast.parse(text)
            except (SyntaxError, ValueError, MemoryError, RecursionError) as error:  # too deep, or with a NUL
                raise ValueError(f"not Python: {error or type(error).__name__}") from None
        return source


def read_aime(path: Path) -> list[Problem]:
    """JSON lines with `id`, `problem`, `answer` (an integer from 0 to 999)."""
    return [
        Problem(id=f"aime/{row.id}", question=row.problem, domain="math", gold=row.answer)
        for row in rows(path, _AimeRow)
    ]


def read_math500(path: Path) -> list[Problem]:
    """A JSON list with `id`, `prompt`, `answer` (LaTeX)."""
    return [
        Problem(id=f"math/{row.id}", question=row.prompt, domain="math", gold=row.answer)
        for row in rows(path, _MathRow)
    ]


def read_gsm8k(path: Path) -> list[Problem]:
    """JSON lines with `question` and `answer`, whose final number stands after `####`. Ids are line numbers."""
    return [
        Problem(id=f"gsm8k/{number}", question=row.question, domain="math", gold=row.answer)
        for number, row in enumerate(rows(path, _Gsm8kRow), 1)
    ]


def read_humaneval(path: Path) -> list[Problem]:
    """JSON lines with `prompt`, `entry_point`, `canonical_solution` and `test`, which defines `check(candidate)`.

    The tests see the reference solution under the name of the entry point (some compare with it), the solution
    under test only as `candidate`.
    """
    return [
        Problem(
            id=row.task_id,
            question=f"Complete this function. Give the whole function.\n\n{row.prompt}",
            domain="code",
            tests=AssertTests(
                names={"candidate": row.entry_point},
                setup=row.prompt + row.canonical_solution,
                tests=[f"{row.test}\ncheck(candidate)\n"],
                prompt=row.prompt,
            ),
        )
        for row in rows(path, _HumanEvalRow)
    ]


def read_mbpp(path: Path) -> list[Problem]:
    """JSON lines with `text`, `code` (the reference), `test_setup_code` and `test_list`.

    The question shows the first test, which gives away the function's name and signature; the others stay hidden.
    Of the reference only its names, and its imports that the tests use, are kept.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the references are old code: "\\d" and the like
        return [_mbpp_problem(row) for row in rows(path, _MbppRow)]


def read_own(path: Path) -> list[Problem]:
    """JSON lines with the fields of `tasks.Problem`: `id`, `question`, `domain`, and `gold` (math), `tests` and maybe a
    `reference` (code) or `environment` (game)."""
    problems: list[Problem] = []
    places: dict[str, str] = {}
    for place, problem in placed_rows(path, Problem):
        first = places.setdefault(problem.id, place)
        if first != place:
            raise DatasetError(f"{path}, {place}, field id: {problem.id!r} is the id at {first}, too. Fix: change one")
        if problem.environment is not None:
            try:
                check_level(problem.environment)
            except LevelError as error:
                raise DatasetError(f"{path}, {place}, field environment.level: {error}") from None
        problems.append(problem)
    return problems


READERS: dict[str, Callable[[Path], list[Problem]]] = {
    "aime": read_aime,
    "math500": read_math500,
    "gsm8k": read_gsm8k,
    "humaneval": read_humaneval,
    "mbpp": read_mbpp,
    "math": read_math,
    "polaris": read_polaris,
    "apps": read_apps,
    "code_contests": read_code_contests,
    "problems": read_own,
    "boxoban": read_boxoban,
}


def read_task(task: str) -> list[Problem]:
    """The problems of `FORMAT:PATH`, such as `gsm8k:test.jsonl`; a format is a name in `READERS`.

    Raises `DatasetError` for an unknown format, a file that cannot be read or is not as the format says, and for one
    without problems.
    """
    kind, _, path = task.partition(":")
    if kind not in READERS or not path:
        guess = kind if kind in READERS else nearest(kind.lower(), READERS)
        forms = f"{guess}:FILE" if guess else f"FORMAT:FILE with FORMAT one of {', '.join(READERS)}"
        raise DatasetError(f"unknown task {task!r}. Fix: write {forms}")
    try:
        problems = read_as(kind, Path(os.path.expanduser(path)))
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from None
    if not problems:
        raise DatasetError(f"{path} holds no problems")
    return problems


def read_as(kind: str, path: Path) -> list[Problem]:
    """The problems of a file in a format of `READERS`. Raises `DatasetError`, which names the format that fits."""
    try:
        return READERS[kind](path)
    except DatasetError as error:
        fitting = [other for other in READERS if other != kind and _fits(other, path)]
        fix = f". Fix: its format is {' or '.join(fitting)}, not {kind}" if fitting else ""
        raise DatasetError(f"{error}{fix}") from None


def _fits(kind: str, path: Path) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(READERS[kind](path))
    except (DatasetError, ValueError, OSError):
        return False


def _mbpp_problem(row: _MbppRow) -> Problem:
    used = {
        node.id for source in [row.test_setup_code, *row.test_list] for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name)
    }  # fmt: skip
    names = sorted(used & names_bound(row.code))
    return Problem(
        id=f"mbpp/{row.task_id}",
        question=f"{row.text}\n\nYour code should satisfy this test:\n\n{row.test_list[0]}",
        domain="code",
        tests=AssertTests(
            names={name: name for name in names},
            setup=_imports_of(row.code, used) + row.test_setup_code,
            tests=row.test_list,
        ),
    )


def _imports_of(code: str, used: set[str]) -> str:
    """The import statements at the top level of `code` that bind a name in `used`."""
    imports = [
        node
        for node in ast.parse(code).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any((alias.asname or alias.name).partition(".")[0] in used for alias in node.names)
    ]
    return "".join(f"{ast.unparse(node)}\n" for node in imports)
