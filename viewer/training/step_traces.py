"""What a step's traces say in a word each: reward, failure, tool calls of every run, question by question.

Looks at the few lines of each trace that say so, and never at more than a bounded part of a file. Whole traces are
read by the pages of single runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer.disk import plain_files
from viewer.means import mean
from viewer.reading import kind_of, kind_of_failure, stamp
from workflow.failures import Failure

WHOLE = 4 << 20
"""Bytes of a trace that is read whole; of a longer one, its beginning and its end."""
BEGINNING, END = 1 << 16, 1 << 18
_QUESTION = re.compile(r"question-(\d{1,12})")
_RUN = re.compile(r"design-(\d{1,6})-execution-(\d{1,6})\.jsonl")
_DESIGN = re.compile(r"design-(\d{1,6})\.json")
_KINDS = ("run_started", "tool_call", "run_ended", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    name: str
    """Its file's, within its question."""
    design: int
    execution: int
    reward: float | None = None
    """None where it was not rewarded, or not yet."""
    correct: bool = False
    ended: bool = False
    failure: str = ""
    """Its kind; empty where it did not fail."""
    message: str = ""
    """Of the failure."""
    tool_calls: int | None = None
    """None where the trace is too long to count them."""
    unreadable: str = ""
    """Why nothing is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """A design that could not run."""

    design: int
    failure: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSummary:
    number: int
    text: str = ""
    """As a run was asked it; empty where none was."""
    runs: Sequence[RunSummary] = ()
    not_run: Sequence[NotRun] = ()

    def rewards(self, executions: int) -> list[float]:
        """Of all runs that were rewarded; a design that could not run stands for so many runs of reward 0."""
        return [run.reward for run in self.runs if run.reward is not None] + [0.0] * executions * len(self.not_run)

    @property
    def best(self) -> RunSummary | None:
        return max((run for run in self.runs if run.reward is not None), key=_reward, default=None)

    @property
    def worst(self) -> RunSummary | None:
        return min((run for run in self.runs if run.reward is not None), key=_reward, default=None)

    @property
    def tool_calls(self) -> float | None:
        """Per run."""
        known = [run.tool_calls for run in self.runs if run.tool_calls is not None]
        return mean(known) if known else None


def _reward(run: RunSummary) -> float:
    return run.reward or 0.0


def step_folder(traces: Path, step: int) -> Path:
    return traces / f"step-{step:06}"


def version(folder: Path) -> str:
    """Another text once there is something else in a step's folder. Raises OSError where there is none."""
    told = hashlib.blake2b(f"{os.stat(folder).st_mtime_ns}".encode(), digest_size=12)
    for _, place in _questions(folder):
        with os.scandir(place) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                told.update(f"{os.fsencode(entry.name)!r} {stamp(entry.stat(follow_symlinks=False))}\n".encode())
    return told.hexdigest()


def questions_of(folder: Path) -> list[QuestionSummary]:
    """All of a step. Raises OSError where its folder cannot be read."""
    return [read_question(place, number) for number, place in _questions(folder)]


def read_question(folder: Path, number: int) -> QuestionSummary:
    """Raises OSError where the folder cannot be read."""
    runs: list[RunSummary] = []
    not_run: list[NotRun] = []
    text = ""
    for name in sorted(os.listdir(folder)):
        if match := _RUN.fullmatch(name):
            run, asked = read_summary(folder / name, int(match[1]), int(match[2]))
            runs.append(run)
            text = text or asked
        elif (match := _DESIGN.fullmatch(name)) and (wrong := _not_run(folder / name, int(match[1]))):
            not_run.append(wrong)
    return QuestionSummary(number=number, text=text, runs=runs, not_run=not_run)


def read_summary(path: Path, design: int, execution: int) -> tuple[RunSummary, str]:
    """Of one run, and the question that it was asked."""
    found: dict[str, Any] = {"name": path.name, "design": design, "execution": execution}
    try:
        data, whole = _part(path)
    except OSError as error:
        return RunSummary(**found, unreadable=error.strerror or str(error)), ""
    question, tools = "", 0
    for line in data.split(b"\n"):
        if kind_of(line) not in _KINDS:
            continue
        event = _event(line)
        match event.get("type"):
            case "run_started":
                question = question or str(event.get("question", ""))
            case "tool_call":
                tools += 1
            case "run_ended":
                found |= {"ended": True, **_failed(event.get("failure"))}
            case "reward":
                found |= _rewarded(event)
            case _:
                pass
    return RunSummary(**found, tool_calls=tools if whole else None), question


def sampled(folder: Path, most: int) -> list[Path]:
    """At most so many runs of a step, taken evenly from all of them. Raises OSError."""
    paths = [
        place / name for _, place in _questions(folder) for name in sorted(os.listdir(place)) if _RUN.fullmatch(name)
    ]
    return paths[:: max(1, -(-len(paths) // most))]


def version_of(paths: Iterable[Path]) -> str:
    """Another text once these are other files, or hold something else. Raises OSError where one is gone."""
    return "/".join(f"{path} {stamp(path.lstat())}" for path in paths)


def tool_calls_in(paths: Iterable[Path]) -> tuple[int, int]:
    """Tool calls in those of the runs that have ended, and how many runs that were."""
    found = [read_summary(path, 0, 0)[0] for path in paths]
    counted = [run.tool_calls for run in found if run.ended and run.tool_calls is not None]
    return sum(counted), len(counted)


def _questions(folder: Path) -> Iterator[tuple[int, Path]]:
    with os.scandir(folder) as entries:
        found = [
            (_QUESTION.fullmatch(entry.name), Path(entry)) for entry in entries if entry.is_dir(follow_symlinks=False)
        ]
    yield from sorted((int(match[1]), place) for match, place in found if match)


def _part(path: Path) -> tuple[bytes, bool]:
    """What is looked at of a file, and whether that is all of it."""
    with open(plain_files.opened(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= WHOLE:
            return file.read(WHOLE), True
        beginning = file.read(BEGINNING)
        file.seek(size - END)
        return beginning + b"\n" + file.read(END), False


def _event(line: bytes) -> dict[str, Any]:
    """Empty for what is none, such as a line that is torn."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _failed(failure: Any) -> dict[str, str]:
    if not isinstance(failure, dict):
        return {}
    told = {"failure": str(failure.get("kind", "unknown")), "message": str(failure.get("message", ""))}
    try:
        return told | {"failure": kind_of_failure(Failure.model_validate(failure))}
    except ValidationError:
        return told


def _rewarded(event: dict[str, Any]) -> dict[str, Any]:
    total, terms = event.get("total"), event.get("terms")
    if not isinstance(total, int | float) or isinstance(total, bool) or not abs(total) <= sys.float_info.max:
        return {}
    correct = isinstance(terms, list) and any(
        isinstance(term, dict) and term.get("name") == "correct" and term.get("value") == 1 for term in terms
    )
    return {"reward": float(total), "correct": correct}


def _not_run(path: Path, design: int) -> NotRun | None:
    """None for a design that could run, and for one of which that is not known."""
    try:
        found = _event(plain_files.read(path, WHOLE))
    except OSError:
        return None
    wrong = _failed(found.get("error"))
    return NotRun(design=design, **wrong) if wrong else None
