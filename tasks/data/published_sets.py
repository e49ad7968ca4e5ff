"""The training sets of MetaAgent-X (section 4.1) as they are published, and which of their rows are of use.

A row is of use if it belongs to the part that the paper trains on, if it asks something, if the reader of the prepared
file takes it, and if a program that does nothing would fail its tests. Not here: files, and whether answers grade
(`tasks.data.prepare`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from tasks.data import rows
from tasks.data.hub import Published
from tasks.data.rows import parsed
from tasks.data.training_sets import (
    AppsRow,
    CodeContestsRow,
    PolarisRow,
    apps_problem,
    code_contests_problem,
    polaris_problem,
)
from tasks.problems import CallTests, Problem, StdinTests


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """One published set: where it is, and which of its rows become what."""

    published: Published
    file: str
    """What the recipes call it."""
    row: type[BaseModel]
    fields: Sequence[str]
    """What is kept of a row."""
    question: str
    """Which of these asks."""
    also_called: Mapping[str, str] = field(default_factory=dict)
    """Field to its name in other editions."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Values that a row must have."""
    problem: Callable[[Any], Problem | None]
    ungradable: str = ""
    """Why there is no problem."""
    solutions: str = ""
    """The field with known solutions."""

    @property
    def columns(self) -> list[str]:
        """What has to be read, but for solutions."""
        return [*self.fields, *self.also_called.values(), *self.only]


TRAINING_SETS = {
    "polaris": TrainingSet(
        published=Published("POLARIS-Project/Polaris-Dataset-53K", "polaris-data-53K.jsonl"),
        file="polaris_53k.jsonl",
        row=PolarisRow,
        fields=("problem", "answer", "difficulty"),
        question="problem",
        problem=lambda row: polaris_problem(row, 1),
    ),
    "apps": TrainingSet(
        published=Published("codeparrot/apps", "train.jsonl"),
        file="apps_introductory.jsonl",
        row=AppsRow,
        fields=("problem_id", "question", "starter_code", "input_output"),
        question="question",
        also_called={"problem_id": "id"},
        only={"difficulty": "introductory"},
        problem=apps_problem,
        ungradable="no tests",
        solutions="solutions",
    ),
    "code_contests": TrainingSet(
        published=Published("deepmind/code_contests", "data/train-*"),
        file="code_contests.jsonl",
        row=CodeContestsRow,
        fields=(
            "name", "description", "public_tests", "private_tests", "generated_tests", "input_file", "output_file",
        ),
        question="description",
        problem=code_contests_problem,
        ungradable="no tests or uses files",
        solutions="solutions",
    ),
}  # fmt: skip
"""By the names of their readers."""


class NotUsable(Exception):
    """Why a row is left out."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail.encode(errors="backslashreplace").decode()


def usable(wanted: TrainingSet, fields: Mapping[str, Any]) -> tuple[bytes, Problem]:
    """The line to write for a row as published, and the problem that its reader makes of it. Raises `NotUsable`."""
    for name, value in wanted.only.items():
        if fields.get(name) != value:
            raise NotUsable(f"{name} is not {value}", f"{name} is {str(fields.get(name))[:40]!r}")
    named = {name: _either(fields, name, wanted.also_called.get(name, name)) for name in wanted.fields}
    try:
        text = json.dumps({name: value for name, value in named.items() if value is not None}, ensure_ascii=False)
        line = text.encode() + b"\n"
    except (TypeError, ValueError) as error:  # a type that JSON does not have, half a character
        raise NotUsable("values that JSON does not have", str(error)) from None
    _check_length(line)
    try:
        problem = wanted.problem(wanted.row.model_validate(parsed(text)))
    except ValidationError as error:
        raise _invalid(error) from None
    except ValueError as error:
        raise NotUsable(short(str(error)), str(error)) from None
    if problem is None:
        raise NotUsable(wanted.ungradable)
    if not str(named[wanted.question]).strip():
        raise NotUsable("no question")
    if _expects_nothing(problem):
        raise NotUsable("tests that expect nothing")
    return line, problem


def with_reference(line: bytes, reference: str) -> bytes:
    """A row's line with a solution beside it, as the readers take it. Raises `NotUsable`."""
    longer = json.dumps({**json.loads(line), "reference": reference}, ensure_ascii=False).encode() + b"\n"
    _check_length(longer)
    return longer


def _check_length(line: bytes) -> None:
    if len(line) > rows.LONGEST_LINE:
        raise NotUsable(f"longer than {rows.LONGEST_LINE:,} bytes", f"{len(line):,} bytes")


def _either(fields: Mapping[str, Any], name: str, other: str) -> Any:
    value = fields.get(name)
    return fields.get(other) if value is None else value


def _expects_nothing(problem: Problem) -> bool:
    """Whether a program that does nothing would be right."""
    if isinstance(problem.tests, StdinTests):
        return not any(test.stdout.strip() for test in problem.tests.tests)
    return isinstance(problem.tests, CallTests) and all(test.expected in (None, [None]) for test in problem.tests.tests)


_KINDS = {"missing": "missing", "string_too_short": "empty", "too_short": "empty"}


def _invalid(error: ValidationError) -> NotUsable:
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
    message = first["msg"].removeprefix("Value error, ")
    kind = _KINDS.get(first["type"]) or (
        "wrong type" if first["type"].endswith(("_type", "_parsing")) else short(message)
    )
    return NotUsable(f"{place}: {kind}" if place else kind, message)


def short(message: str) -> str:
    """A reason that many rows can share."""
    if "Exceeds the limit" in message:
        return "an integer of more digits than Python reads"
    return re.sub(r"(?<![\w-])\d+", "N", message.partition(":")[0])[:80]
