"""What is kept of MASPRM's jobs in the repository, and the jobs that are missing, each in a process of its own. Knows
nothing of what a job does (`speedrun.masprm.search_jobs`), and compares nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speedrun import starts
from speedrun.kept import read_as, write
from speedrun.masprm.search_runs import KEPT, MADE_BY, Job, KeptRun, Settings, made_by
from speedrun.side_by_side import in_order, run_in_process
from speedrun.versions import ran_with
from trainer.disk import agree


def kept_at(job: Job, kept: Path) -> Path:
    folder = job.folder(kept)
    return folder.with_name(f"{folder.name}.json.gz")


def began(job: Job, settings: Settings, kept: Path) -> str:
    """Which of the weights that are kept it goes back to, its own included; "" where some are missing or were made
    otherwise."""
    found = [_kept_weights(each, settings, kept) for each in job.everything if each.weights]
    return " ".join(found) if all(found) else ""


def left(jobs: Iterable[Job], settings: Settings, kept: Path) -> list[Job]:
    """Those whose results are not kept. What was made otherwise, or with other weights, is made again. Raises
    ValueError for a file that holds something else."""
    return [job for job in jobs if not _answers(job, settings, kept)]


def run_all(jobs: Sequence[Job], settings: Settings, out: Path, workers: int, kept: Path) -> None:
    """The jobs, and what they need; in the end all is kept.

    Raises ValueError, before anything is run, where a folder holds results that were made otherwise, and RuntimeError
    where a job fails.
    """
    missing, fetched = dict[Job, None](), dict[Job, None]()

    def add(job: Job) -> None:
        for each in job.taken:
            if each.weights and _kept_weights(each, settings, kept):
                fetched[each] = None
            elif each not in missing:
                add(each)
        missing[job] = None

    needed = dict.fromkeys(before for job in jobs for before in job.everything)
    for lacking in left(needed, settings, kept):
        add(lacking)
    for job in (*fetched, *missing):
        folder = job.folder(out)
        folder.mkdir(parents=True, exist_ok=True)
        agree(folder / MADE_BY, made_by(job, settings), begun=(folder / MADE_BY).exists())
    for job in fetched:
        assert job.weights is not None
        starts.fetch(job.folder(kept), job.folder(out), job.weights)

    def once(job: Job) -> None:
        folder = job.folder(out)
        run_in_process(
            folder,
            job.title,
            [sys.executable, "-m", "speedrun.masprm", "--one", json.dumps(asdict(job)), "--out", str(out)],
        )
        if job.weights:
            starts.keep(folder, job.folder(kept), made_by(job, settings), job.weights)
        done = read_as(folder / KEPT, KeptRun)
        if done is None:
            raise RuntimeError(f"{job.title} left no {folder / KEPT}. Fix: remove {folder}, and try again")
        update = {"start": began(job, settings, kept), "code": ran_with(folder)}
        write(kept_at(job, kept), done.model_copy(update=update))

    in_order({job: [each for each in job.taken if each in missing] for job in missing}, once, workers)


def _kept_weights(job: Job, settings: Settings, kept: Path) -> str:
    assert job.weights is not None
    return starts.kept_digest(job.folder(kept), made_by(job, settings), _as_written, job.weights)


def _answers(job: Job, settings: Settings, kept: Path) -> bool:
    run, start = read_as(kept_at(job, kept), KeptRun), began(job, settings, kept)
    return bool(start) and starts.answers(run, made_by(job, settings), _as_written, start)


def _as_written(found: Any) -> Any:
    """No earlier version's results are taken for today's."""
    return found
