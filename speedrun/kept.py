"""What pages need of an arm's run, small enough to stay in the repository: comparisons can be made on different days
and machines, and pages made again by anybody. Weights and programs are not kept.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from speedrun.report import pattern
from speedrun.versions import ran_with
from trainer.disk import read_records
from trainer.evaluate import RESULTS, Attempt
from trainer.run import METRICS, StepReport

RL, ATTEMPTS, GREEDY, FIXED = "rl", "attempts", "greedy", "fixed"
"""Folders of a run."""
Kept = TypeVar("Kept", bound=BaseModel)


class Result(NamedTuple):
    """One attempt at one problem."""

    problem: str
    kind: str
    correct: bool
    pattern: str
    """How the agents of its program work together (`speedrun.report.pattern`)."""


class KeptRun(BaseModel):
    made_by: dict[str, Any]
    """All that the run was asked for (`speedrun.arms.made_by`)."""
    start: str
    """Which policy it began from, itself the one that others begin from (`speedrun.starts.digest`)."""
    code: str
    """Of which version of the project it is (`speedrun.versions.ran_with`)."""
    sampled: list[Result]
    """Attempts at the held-out problems (of the tuning: validation problems), sampled as in training."""
    greedy: list[Result] = []
    fixed: dict[str, list[Result]] = {}
    """By a program's name, attempts at validation problems with it in the Designer's place."""
    steps: list[StepReport] = []
    """Of its RL, if it had any."""


def kept_of(folder: Path, made_by: dict[str, Any], start: str) -> KeptRun:
    """Of a run's folder."""
    return KeptRun(
        made_by=made_by,
        start=start,
        code=ran_with(folder),
        sampled=_results(folder / ATTEMPTS),
        greedy=_results(folder / GREEDY) if (folder / GREEDY).exists() else [],
        fixed={each.name: _results(each) for each in sorted((folder / FIXED).glob("*"))},
        steps=_steps(folder / RL / METRICS),
    )


def write(path: Path, kept: BaseModel) -> None:
    """The same run gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(gzip.compress(kept.model_dump_json(exclude_none=True).encode(), mtime=0))
    beside.rename(path)


def read(path: Path) -> KeptRun | None:
    """None where there is none. Raises ValueError where the file holds something else."""
    return read_as(path, KeptRun)


def read_as(path: Path, kind: type[Kept]) -> Kept | None:
    """The same of another kind of run."""
    if not path.exists():
        return None
    try:
        return kind.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValidationError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{path} holds no run that was kept: {said}. Fix: remove it") from None


def _results(folder: Path) -> list[Result]:
    attempts = (attempt for _, attempt in read_records(folder / RESULTS, Attempt))
    return [Result(each.problem, each.task, each.correct, pattern(each.graph, each.program)) for each in attempts]


def _steps(path: Path) -> list[StepReport]:
    return [step for _, step in read_records(path, StepReport)] if path.exists() else []
