"""Read public training sets into problems: Polaris-53K, APPS, CodeContests (the data of MetaAgent-X, section 4.1).

A reader takes a local JSON lines file, as `tasks.data.prepare` writes it or `datasets` exports it; nothing is
downloaded. Rows that cannot be graded are left out with a warning that counts them; any other row that is not as the
format says raises `DatasetError`.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, JsonValue, model_validator

from tasks.data.rows import parsed, rows
from tasks.problems import CallTest, CallTests, Name, Problem, StdinTest, StdinTests

STDIN_NOTE = "Write a whole program that reads from standard input and prints to standard output."


class PolarisRow(BaseModel):
    problem: str = Field(min_length=1)
    answer: str = Field(min_length=1)


class _AppsTests(BaseModel):
    inputs: list[JsonValue] = []
    outputs: list[JsonValue] = []
    fn_name: Name | None = None

    @model_validator(mode="after")
    def _paired(self) -> _AppsTests:
        if len(self.inputs) != len(self.outputs):
            raise ValueError(f"{len(self.inputs)} inputs for {len(self.outputs)} outputs")
        strange = next((given for given in self.inputs if self.fn_name and not isinstance(given, list)), None)
        if strange is not None:
            raise ValueError(f"the arguments of {self.fn_name} are no list: {str(strange)[:80]}")
        return self


def _from_text(tests: object) -> object:
    """In some rows the tests are an empty text."""
    if not tests:
        return None
    if not isinstance(tests, str):
        raise ValueError("expected JSON text")
    try:
        return parsed(tests)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None


class AppsRow(BaseModel):
    problem_id: int = Field(validation_alias=AliasChoices("problem_id", "id"))
    question: str = Field(min_length=1)
    starter_code: str = ""
    input_output: Annotated[_AppsTests | None, BeforeValidator(_from_text)] = None
    reference: str | None = Field(default=None, min_length=1)


class _Pairs(BaseModel):
    input: list[str] = []
    output: list[str] = []

    @model_validator(mode="after")
    def _paired(self) -> _Pairs:
        if len(self.input) != len(self.output):
            raise ValueError(f"{len(self.input)} inputs for {len(self.output)} outputs")
        return self


class CodeContestsRow(BaseModel):
    name: str = Field(min_length=1)
    description: str
    public_tests: _Pairs
    private_tests: _Pairs
    generated_tests: _Pairs
    input_file: str = ""
    output_file: str = ""
    reference: str | None = Field(default=None, min_length=1)


def read_polaris(path: Path) -> list[Problem]:
    """JSON lines with `problem` and `answer` (LaTeX or a number). Ids are line numbers."""
    return [polaris_problem(row, number) for number, row in enumerate(rows(path, PolarisRow), 1)]


def read_apps(path: Path) -> list[Problem]:
    """JSON lines with `problem_id` (or `id`), `question`, `starter_code` and `input_output`: JSON text with `inputs`,
    `outputs` and, where a function is to be written, `fn_name`.

    What a function should return is in some rows wrapped in a list of one; as in the benchmark's own grader both count.
    Rows without tests are left out. Perhaps a `reference`, a solution that is right.
    """
    return _graded(path, [apps_problem(row) for row in rows(path, AppsRow)], "no tests")


def read_code_contests(path: Path) -> list[Problem]:
    """JSON lines with `name`, `description` and `public_tests`, `private_tests`, `generated_tests`, each with lists
    `input` and `output`; all of them are tests. Rows without any, or that use files, are left out. Perhaps a
    `reference`, a solution that is right."""
    return _graded(path, [code_contests_problem(row) for row in rows(path, CodeContestsRow)], "no tests or use files")


def polaris_problem(row: PolarisRow, number: int) -> Problem:
    """`number` is the line in which the row stands."""
    return Problem(id=f"polaris/{number}", question=row.problem, domain="math", gold=row.answer)


def apps_problem(row: AppsRow) -> Problem | None:
    """None for a row without tests."""
    given = row.input_output
    if given is None or not given.inputs:
        return None
    pairs = list(zip(given.inputs, given.outputs, strict=True))
    if given.fn_name:
        starter = f" Begin with:\n\n{row.starter_code.strip()}" if row.starter_code.strip() else ""
        question = f"{row.question}\n\nWrite the function `{given.fn_name}`.{starter}"
        tests = CallTests(
            fn_name=given.fn_name,
            tests=[
                CallTest(args=args, expected=told, also=told if isinstance(told, list) and len(told) == 1 else [])
                for args, told in pairs
                if isinstance(args, list)
            ],
        )
    else:
        question = f"{row.question}\n\n{STDIN_NOTE}"
        tests = StdinTests(tests=[StdinTest(stdin=_text(stdin), stdout=_text(stdout)) for stdin, stdout in pairs])
    return Problem(id=f"apps/{row.problem_id}", question=question, domain="code", tests=tests, reference=row.reference)


def code_contests_problem(row: CodeContestsRow) -> Problem | None:
    """None for a row without tests, or that uses files."""
    parts = (row.public_tests, row.private_tests, row.generated_tests)
    pairs = [pair for part in parts for pair in zip(part.input, part.output, strict=True)]
    if not pairs or row.input_file or row.output_file:
        return None
    return Problem(
        id=f"code_contests/{row.name}",
        question=f"{row.description}\n\n{STDIN_NOTE}",
        domain="code",
        tests=StdinTests(tests=[StdinTest(stdin=given, stdout=told) for given, told in pairs]),
        reference=row.reference,
    )


def _text(value: JsonValue) -> str:
    """Some rows have a list of lines for a text."""
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _graded(path: Path, problems: list[Problem | None], reason: str) -> list[Problem]:
    kept = [problem for problem in problems if problem is not None]
    if len(kept) < len(problems):
        left = len(problems) - len(kept)
        warnings.warn(f"{path}: {left} of {len(problems)} rows have {reason} and are left out", stacklevel=3)
    return kept
