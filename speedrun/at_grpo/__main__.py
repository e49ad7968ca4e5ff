"""The comparisons of AT-GRPO in miniature: arms trained from several starts, then a page.

    python -m speedrun.at_grpo training --seeds 3 [--first-seed 0] [--out runs/at-grpo] [--jobs 2] [--write]

Arms that learn have the recipe's learning rate, unless another is better on the validation levels of a seed that is not
compared; those that vary one another share it.
Runs are shared between comparisons (`speedrun.at_grpo.playing_runs`); what is done is not done again, and what pages
need of it is kept beside them, for other days. With --write the page goes into `docs/results/at-grpo/`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from metaagent.terminal import note

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; several processes run side by side
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from speedrun.asked import TUNING_SEED, asked
from speedrun.at_grpo import playing_runs as runs
from speedrun.at_grpo import result_pages as pages
from speedrun.at_grpo import start_gate
from speedrun.at_grpo.kept_runs import KeptRun, kept_at, run_all
from speedrun.at_grpo.levels import GameName
from speedrun.at_grpo.matchups import ARMS, COMPARISONS, FACTORS, START
from speedrun.at_grpo.playing_runs import VALIDATION, Job, Settings
from speedrun.intervals import Rates
from speedrun.kept import read_as
from speedrun.phases import SETTINGS
from speedrun.tuning import best_factor
from trainer.disk import agree_on_settings, only_writer

PAGES = Path(__file__).parents[2] / "docs" / "results" / "at-grpo"
KEPT = "runs"


def tuner(name: str) -> str | None:
    """The arm whose runs choose the rate of this one; None where it does not learn."""
    return (ARMS[name].rates_of or name) if ARMS[name].learns else None


def chosen(
    names: Iterable[str], game: GameName, settings: Settings, out: Path, workers: int, kept: Path
) -> dict[str, dict[float, Rates]]:
    """Of each arm that is tuned, which validation levels were solved at each factor; runs what is missing."""
    tuned = dict.fromkeys(name for arm in names if (name := tuner(arm)))
    jobs = [
        Job(name=name, game=game, seed=TUNING_SEED, factor=factor, tuning=True) for name in tuned for factor in FACTORS
    ]
    run_all(jobs, settings, out, workers, kept)
    found: dict[str, dict[float, Rates]] = {}
    for job in jobs:
        if run := read_as(kept_at(job, kept), KeptRun):
            rates = {each.problem: float(each.solved) for each in run.played[VALIDATION]}
            found.setdefault(job.name, {})[job.factor] = rates
    return found


def factor_of(name: str, found: Mapping[str, Mapping[float, Rates]]) -> float:
    """1, also for an arm that does not learn, unless another is better beyond chance."""
    return best_factor(found.get(tuner(name) or "", {}))


def compare(
    name: str, seeds: Sequence[int], settings: Settings, out: Path, folder: Path, workers: int, command: str
) -> Path:
    """Make the runs that are missing, and write the page, which says by which `command`, into `folder`; returns it.

    Raises what `run_all` raises, and ValueError, before any arm is trained, where starts solve too little or too much.
    """
    comparison, kept = COMPARISONS[name], folder / KEPT
    arms = list(comparison.systems)
    arms += [arm for system in arms for arm, _ in ARMS[system].played_by.values() if arm not in arms]
    teams = [ARMS[name].tools + 1 for name in arms]
    before: dict[GameName, start_gate.Solved] = {
        game: _before(game, seeds, teams, settings, out, workers, kept) for game in comparison.games
    }
    for game, solved in before.items():
        start_gate.check(game, solved)
    shown = []
    for game in comparison.games:
        rates = chosen(arms, game, settings, out, workers, kept)
        taken = {
            arm: tuple({name: factor_of(name, rates) for name, _ in ARMS[arm].played_by.values()}.items())
            for arm in arms
        }
        jobs = {
            arm: [
                Job(name=arm, game=game, seed=seed, factor=factor_of(arm, rates), factors=taken[arm]) for seed in seeds
            ]
            for arm in arms
        }
        run_all([job for of in jobs.values() for job in of], settings, out, workers, kept)
        systems = [
            pages.System(arm, [run for job in jobs[arm] if (run := read_as(kept_at(job, kept), KeptRun))])
            for arm in comparison.systems
        ]
        shown.append(pages.Shown(game, systems, rates, {arm: factor_of(arm, rates) for arm in rates}, before[game]))
    folder.mkdir(parents=True, exist_ok=True)
    return pages.write_page(name, shown, command, folder)


def _before(
    game: GameName, seeds: Sequence[int], teams: Sequence[int], settings: Settings, out: Path, workers: int, kept: Path
) -> start_gate.Solved:
    """What each seed's start solves."""
    starts = [Job(name=START, game=game, seed=seed) for seed in seeds]
    run_all(starts, settings, out, workers, kept)
    return start_gate.solved_before([run for job in starts if (run := read_as(kept_at(job, kept), KeptRun))], teams)


def settings_in(out: Path, given: Path | None = None) -> Settings:
    """Those of the file `given`, else those that all runs in `out` have, else the defaults. ValueError for a file that
    holds none."""
    path = out / SETTINGS if given is None else given
    if given is None and not path.exists():
        return Settings()
    try:
        return Settings.model_validate_json(path.read_bytes()).model_copy(update={"seed": 0})
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no settings of this miniature: {error}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    given = asked(
        arguments, "speedrun.at_grpo", __doc__, COMPARISONS, out=Path("runs/at-grpo"), pages="docs/results/at-grpo/"
    )
    if given.one is not None:
        asyncio.run(runs.run(Job.of(json.loads(given.one)), settings_in(given.out), given.out))
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
