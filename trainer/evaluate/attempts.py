"""The record of an evaluation: one graded attempt per line of `results.jsonl`, and a Trace per run.

It survives a kill, as all `trainer.disk.records` do. Making attempts is `trainer.evaluate.evaluation`'s business,
summing them up `trainer.evaluate.evaluation_report`'s.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field

from search.problem import SearchReport
from trainer.disk import agree, has_lines, line_of, only_writer, plain_files, read_records
from workflow.answers import Domain
from workflow.failures import FailureKind
from workflow.graph import GraphNode, Structure
from workflow.usage import PolicyRole, Tally

SETTINGS, RESULTS, TRACES, TREES = "evaluation.json", "results.jsonl", "traces", "trees"
LABELS = "labels.json"
"""What label trees of a folder were made with."""


def refuse_other(folder: Path, other: str) -> None:
    """ValueError where a folder has the settings file of other work: trees of searches and of labels are kept apart."""
    if (folder / other).exists():
        held = "label trees" if other == LABELS else "an evaluation"
        raise ValueError(f"{folder} holds {held} ({other}). Fix: use another folder")


def file_name(problem: str) -> str:
    """Of a problem's file: readable, and another one for each id."""
    readable = re.sub(r"[^\w.-]+", "_", problem, flags=re.ASCII)[:80]
    return f"{readable}-{zlib.crc32(problem.encode(errors='replace')):08x}"


class Attempt(BaseModel):
    """One graded attempt at a problem."""

    model_config = ConfigDict(frozen=True)

    problem: str
    """The problem's id."""
    attempt: int
    """Which of the problem's attempts, from 0."""
    problem_digest: str
    task: str = ""
    domain: Domain
    seed: int
    correct: bool
    answered: bool
    """Whether the run ended with an answer in the form that the domain asks for."""
    verdict: str
    """Why it is correct or not, in a few words."""
    failure: FailureKind | None = None
    message: str = ""
    """Of the failure."""
    designer: Literal["policy", "bank", "program"]
    template: str | None = None
    """Which one the bank chose."""
    program: str | None = None
    structure: Structure | None = None
    """None where no program passed the check."""
    graph: GraphNode | None = None
    usage: dict[PolicyRole, Tally] = {}
    reply_tokens: dict[PolicyRole, list[int]] = {}
    """Completion tokens of each reply, in the order of their keys, whichever came first."""
    turns: int | None = None
    """Actions in a game; None where there is none."""
    duration_s: float
    """Design, run and grade."""
    search: SearchReport | None = Field(default=None, exclude_if=lambda value: value is None)
    """Where the run was searched for."""
    trace: str | None = None
    """File of the run's Trace, relative to the folder."""


class AttemptLog:
    """The attempts in `folder`, which is made if need be; without a folder it keeps nothing.

    `made_by` says how attempts are made. Raises ValueError for a folder whose attempts were made in another way, or
    that holds something else or is being written by another process, and OSError for one that cannot be written.
    """

    def __init__(self, folder: Path | None, made_by: Mapping[str, Any]) -> None:
        self.folder = folder
        self.kept: list[Attempt] = []
        """What the folder held when it was opened."""
        self._file: BinaryIO | None = None
        self._open = ExitStack()
        if folder is None:
            return
        with ExitStack() as opened:
            opened.enter_context(only_writer(folder))
            refuse_other(folder, LABELS)
            (folder / TRACES).mkdir(exist_ok=True)
            results = folder / RESULTS
            agree(folder / SETTINGS, made_by, begun=has_lines(results))
            if results.exists():
                self.kept = [attempt for _, attempt in read_records(results, Attempt)]
            self._file = opened.enter_context(plain_files.appended(results))
            self._open = opened.pop_all()

    def add(self, attempt: Attempt) -> None:
        if self._file is not None:
            self._file.write(line_of(attempt).encode())
            self._file.flush()

    def trace(self, problem: str, attempt: int) -> Path | None:
        """Where the Trace of an attempt's run goes."""
        if self.folder is None:
            return None
        return self.folder / TRACES / f"{file_name(problem)}-{attempt}.jsonl"

    def tree(self, problem: str, attempt: int) -> Path | None:
        """Where the tree of an attempt that is a search goes."""
        if self.folder is None:
            return None
        (self.folder / TREES).mkdir(exist_ok=True)
        return self.folder / TREES / f"{file_name(problem)}-{attempt}.jsonl"

    def __enter__(self) -> AttemptLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()
