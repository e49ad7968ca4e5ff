"""The comparisons of MASPRM in miniature: policies, trees, models of values and searches of several seeds, then a page.

    python -m speedrun.masprm guidance --seeds 3 [--first-seed 0] [--out runs/masprm] [--jobs 2] [--write]

Jobs are shared between comparisons (`speedrun.masprm.search_runs`); what is done is not done again, and what pages need
of it is kept beside them, for other days. With --write the page goes into `docs/results/masprm/`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from metaagent.terminal import note

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; several processes run side by side
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from speedrun.asked import asked
from speedrun.kept import read_as, write
from speedrun.masprm import search_runs as runs
from speedrun.masprm.guided_arms import COMPARISONS, NAMES, PERFECT, READ, WALL
from speedrun.masprm.search_jobs import carry_out
from speedrun.masprm.search_pages import write_page
from speedrun.masprm.search_runs import TASKS, Job, KeptRun, Settings
from speedrun.side_by_side import each, run_in_process
from trainer.disk import agree, agree_on_settings, only_writer

PAGES = Path(__file__).parents[2] / "docs" / "results" / "masprm"
KEPT, SETTINGS = "runs", "settings.json"


def jobs_of(name: str, seed: int) -> list[Job]:
    """What the page of a comparison shows."""
    if name == WALL:
        return [Job(task="wall", seed=seed)]
    if name not in COMPARISONS:
        return [Job(task="reading", seed=seed, name=read) for read in (*READ, PERFECT)]
    plays = COMPARISONS[name].plays
    return [Job(task="arm", seed=seed, name=arm, play=play) for play, arms in plays.items() for arm in arms]


def left(jobs: Iterable[Job], settings: Settings, kept: Path) -> list[Job]:
    """Those whose results are not kept; what was made otherwise is made again."""
    found = {job: read_as(runs.kept_at(job, kept), KeptRun) for job in jobs}
    return [job for job, run in found.items() if run is None or run.made_by != runs.made_by(job, settings)]


def run_all(jobs: Sequence[Job], settings: Settings, out: Path, workers: int, kept: Path) -> None:
    """The jobs, and what they need.

    Raises ValueError, before anything is run, where a folder holds results that were made otherwise, and RuntimeError
    where a job fails.
    """
    missing = left(dict.fromkeys(each for job in jobs for each in job.everything), settings, kept)
    missing = list(dict.fromkeys(each for job in missing for each in job.everything))
    for job in missing:
        folder = job.folder(out)
        folder.mkdir(parents=True, exist_ok=True)
        agree(folder / runs.MADE_BY, runs.made_by(job, settings), begun=(folder / runs.MADE_BY).exists())

    def once(job: Job) -> None:
        command = [sys.executable, "-m", "speedrun.masprm", "--one", json.dumps(asdict(job)), "--out", str(out)]
        run_in_process(job.folder(out), job.title, command)
        if (done := read_as(job.folder(out) / runs.KEPT, KeptRun)) is not None:
            write(runs.kept_at(job, kept), done)

    for task in TASKS:
        each([job for job in missing if job.task == task], once, workers)


def compare(
    name: str, seeds: Sequence[int], settings: Settings, out: Path, folder: Path, workers: int, command: str
) -> Path:
    """Make the runs that are missing, and write the page, which says by which `command`, into `folder`; returns it.

    Raises what `run_all` raises.
    """
    jobs = [job for seed in seeds for job in jobs_of(name, seed)]
    run_all(jobs, settings, out, workers, folder / KEPT)
    needed = dict.fromkeys(each for job in jobs for each in job.everything)
    found = {job: run for job in needed if (run := read_as(runs.kept_at(job, folder / KEPT), KeptRun)) is not None}
    folder.mkdir(parents=True, exist_ok=True)
    return write_page(name, found, command, folder)


def settings_in(out: Path, given: Path | None = None) -> Settings:
    """Those of the file `given`, else those that all runs in `out` have, else the defaults. ValueError for a file that
    holds none."""
    path = out / SETTINGS if given is None else given
    if given is None and not path.exists():
        return Settings()
    try:
        return Settings.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no settings of this miniature: {error}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    given = asked(arguments, "speedrun.masprm", __doc__, NAMES, out=Path("runs/masprm"), pages="docs/results/masprm/")
    if given.one is not None:
        asyncio.run(carry_out(Job(**json.loads(given.one)), settings_in(given.out), given.out))
        return
    try:
        settings = settings_in(given.out, given.settings)
        with only_writer(given.out):
            agree_on_settings(given.out / SETTINGS, settings)
            folder, command = PAGES if given.write else given.out, given.command(given.comparison)
            page = compare(given.comparison, given.seeds, settings, given.out, folder, given.jobs, command)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    note(f"written: {page}")


if __name__ == "__main__":
    main()
