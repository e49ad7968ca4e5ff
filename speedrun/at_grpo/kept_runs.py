"""What is kept of runs in the repository, and the runs that are missing: what they start from, then they, each in a
process of its own. Trains and plays nothing itself (`speedrun.at_grpo.playing_runs`), and compares nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from speedrun import starts
from speedrun.at_grpo.matchups import START
from speedrun.at_grpo.playing_runs import PLAYED, RL, SEEN, Job, Settings, in_todays_terms, made_by
from speedrun.kept import read_as, write
from speedrun.side_by_side import in_order, run_in_process
from speedrun.versions import ran_with
from trainer.disk import agree, read_records
from trainer.evaluate import RESULTS, Attempt
from trainer.run import METRICS, StepReport


class Played(NamedTuple):
    """One attempt at one level."""

    problem: str
    solved: bool
    turns: int


class KeptRun(BaseModel):
    """What pages need of a run, small enough to stay in the repository."""

    made_by: dict[str, Any]
    """All that the run was asked for (`speedrun.at_grpo.playing_runs.made_by`)."""
    start: str
    """Which policy it began from (`speedrun.starts.digest`)."""
    code: str
    """Of which version of the project it is (`speedrun.versions.ran_with`)."""
    played: dict[str, list[Played]] = {}
    """By set of levels."""
    steps: list[StepReport] = []
    """Of its RL, if it had any."""
    watched: list[StepReport] = []
    """What its checkpoints were like at validation levels, if they played."""


def kept_at(job: Job, kept: Path) -> Path:
    return kept / f"{job.folder(Path())}.json.gz"


def kept_of(job: Job, settings: Settings, out: Path, start: str) -> KeptRun:
    own = job.folder(out)
    return KeptRun(
        made_by=made_by(job, settings),
        start=start,
        code=ran_with(own),
        played={each.name: _played(each) for each in sorted((own / PLAYED).glob("*"))},
        steps=_reports(own / RL / METRICS),
        watched=_reports(own / SEEN / METRICS),
    )


def _reports(metrics: Path) -> list[StepReport]:
    return [step for _, step in read_records(metrics, StepReport)] if metrics.exists() else []


def _played(folder: Path) -> list[Played]:
    attempts = (attempt for _, attempt in read_records(folder / RESULTS, Attempt))
    return [Played(each.problem, each.correct, each.turns or 0) for each in attempts]


def kept_start(job: Job, settings: Settings, kept: Path) -> str:
    """Which policy is kept for a job to start from (`speedrun.starts.kept_digest`)."""
    return starts.kept_digest(job.start.folder(kept), made_by(job.start, settings), in_todays_terms)


def left(jobs: Iterable[Job], settings: Settings, kept: Path) -> list[Job]:
    """Those whose results are not kept. What was made otherwise, or from another policy, is made again. Raises
    ValueError for a file that holds something else."""
    found = {job: read_as(kept_at(job, kept), KeptRun) for job in jobs}
    began = {start: kept_start(start, settings, kept) for start in {job.start for job in found}}
    return [
        job
        for job, run in found.items()
        if not starts.answers(run, made_by(job, settings), in_todays_terms, began[job.start])
    ]


def run_all(jobs: Iterable[Job], settings: Settings, out: Path, workers: int, kept: Path) -> None:
    """What the jobs start from, then they, then those that play with what others have learned; in the end all is kept.

    Raises ValueError, before anything is run, where a folder holds results that were made otherwise, and RuntimeError
    where a job fails.
    """
    missing = left(jobs, settings, kept)
    missing = list(dict.fromkeys([*(each for job in missing for each in job.taken), *missing]))
    begun = list(dict.fromkeys(job.start for job in missing))
    for job in (*begun, *missing):
        folder = job.folder(out)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / starts.MADE_BY
        agree(path, made_by(job, settings), begun=path.exists(), today=in_todays_terms)
    for start in begun:
        if kept_start(start, settings, kept):
            starts.fetch(start.folder(kept), start.folder(out))

    def once(job: Job) -> None:
        folder, told = job.folder(out), json.dumps(asdict(job))
        command = [sys.executable, "-m", "speedrun.at_grpo", "--one", told, "--out", str(out)]
        run_in_process(folder, f"{job.game}, seed {job.seed}: {folder.name}", command)
        if job.name == START:
            starts.keep(folder, job.folder(kept), made_by(job, settings))
        write(kept_at(job, kept), kept_of(job, settings, out, starts.digest(job.start.folder(kept))))

    missing = dict.fromkeys([*left(begun, settings, kept), *missing])
    in_order({job: {job.start, *job.taken} & missing.keys() - {job} for job in missing}, once, workers)
