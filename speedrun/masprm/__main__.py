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
from collections.abc import Sequence
from pathlib import Path

from metaagent.terminal import note

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; several processes run side by side
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from speedrun.asked import asked
from speedrun.kept import read_as
from speedrun.masprm.guided_arms import COMPARISONS, NAMES, PERFECT, READ, WALL
from speedrun.masprm.kept_runs import kept_at, run_all
from speedrun.masprm.search_jobs import carry_out
from speedrun.masprm.search_pages import write_page
from speedrun.masprm.search_runs import Job, KeptRun, Settings
from speedrun.phases import SETTINGS
from trainer.disk import agree_on_settings, only_writer

PAGES = Path(__file__).parents[2] / "docs" / "results" / "masprm"
KEPT = "runs"


def jobs_of(name: str, seed: int) -> list[Job]:
    """What the page of a comparison shows."""
    if name == WALL:
        return [Job(task="wall", seed=seed)]
    if name not in COMPARISONS:
        return [Job(task="reading", seed=seed, name=read) for read in (*READ, PERFECT)]
    plays = COMPARISONS[name].plays
    return [Job(task="arm", seed=seed, name=arm, play=play) for play, arms in plays.items() for arm in arms]


def compare(
    name: str, seeds: Sequence[int], settings: Settings, out: Path, folder: Path, workers: int, command: str
) -> Path:
    """Make the runs that are missing, and write the page, which says by which `command`, into `folder`; returns it.

    Raises what `run_all` raises.
    """
    jobs = [job for seed in seeds for job in jobs_of(name, seed)]
    if name == WALL:
        workers = 1  # seconds are what it is about
    run_all(jobs, settings, out, workers, folder / KEPT)
    needed = dict.fromkeys(each for job in jobs for each in job.everything)
    found = {job: run for job in needed if (run := read_as(kept_at(job, folder / KEPT), KeptRun)) is not None}
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
        other = settings != Settings()
        folder, command = given.folder(PAGES, other), given.command(given.comparison, other)
        with only_writer(given.out):
            agree_on_settings(given.out / SETTINGS, settings)
            page = compare(given.comparison, given.seeds, settings, given.out, folder, given.jobs, command)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    note(f"written: {page}")


if __name__ == "__main__":
    main()
