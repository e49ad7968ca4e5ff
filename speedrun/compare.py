"""The paper's comparisons in miniature: arms trained from several starts, then a page.

    python -m speedrun.compare gate --seeds 3 [--out runs/comparisons] [--jobs 2] [--write]

The gate is made before any other comparison, with the same seeds: does either role learn at all, and neither where
rewards are shuffled? Where it fails, no other comparison is made. Each arm has learning rates of its own choice
(`speedrun.tuning`). Runs are shared between comparisons (`speedrun.arms`); what is done is not done again. With --write
the page goes into `docs/results/`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from metaagent.terminal import note

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; several processes run side by side
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from speedrun.arms import ATTEMPTS, FIXED, GREEDY, Job, attempts_of, run, run_all, steps_of
from speedrun.pages import System, gate, page_of
from speedrun.phases import SETTINGS
from speedrun.plots import points
from speedrun.settings import SpeedrunSettings
from speedrun.tuning import chosen, factor_of
from speedrun.variants import ALONE, ARMS, COMPARISONS, GATE, STARTS
from trainer.disk import agree

PAGES = Path(__file__).parents[1] / "docs" / "results"


def system_of(shown: str, arm: str, seeds: int, out: Path) -> System:
    """What the runs of an arm left behind."""
    folders = [out / f"seed-{seed}" / arm for seed in range(seeds)]
    programs = sorted(each.name for each in (folders[0] / FIXED).glob("*"))
    return System(
        name=shown,
        sampled=[attempts_of(folder / ATTEMPTS) for folder in folders],
        greedy=[attempts_of(folder / GREEDY) for folder in folders],
        steps=[steps_of(folder) for folder in folders],
        fixed={name: [attempts_of(folder / FIXED / name) for folder in folders] for name in programs},
    )


def systems_of(name: str, seeds: int, out: Path) -> list[System]:
    return [system_of(shown, arm, seeds, out) for shown, arm in COMPARISONS[name].systems.items()]


def compare(name: str, seeds: int, out: Path, pages: Path, workers: int) -> Path:
    """Make the runs that are missing, those of the gate first, and write the page into `pages`; returns it.

    Raises ValueError where the gate fails and the page is another's.
    """

    def make(comparison: str) -> dict[str, dict[float, float]]:
        arms = COMPARISONS[comparison].systems.values()
        rates = chosen(arms, out, workers)
        jobs = [Job(name=arm, seed=seed, factor=factor_of(arm, rates)) for seed in range(seeds) for arm in arms]
        run_all(jobs, out, workers)
        return rates

    make(GATE)
    if name != GATE and not gate(systems_of(GATE, seeds, out))[0]:
        raise ValueError(f"the gate fails, so {name} would say nothing. See: python -m speedrun.compare gate")
    rates = make(name)
    systems = systems_of(name, seeds, out)
    pages.mkdir(parents=True, exist_ok=True)
    means = {system.name: [fmean(each.values()) for each in system.rates()] for system in systems}
    points(means, COMPARISONS[name].title, pages / f"{name}.png")
    page = pages / f"{name}.md"
    page.write_text(page_of(name, systems, seeds, rates), encoding="utf-8")
    return page


def settings_in(out: Path) -> SpeedrunSettings:
    """Those that all seeds in `out` have, but for the seed; the defaults where nothing was begun."""
    path = out / SETTINGS
    return SpeedrunSettings.model_validate_json(path.read_bytes()) if path.exists() else SpeedrunSettings()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", nargs="?", choices=COMPARISONS)
    parser.add_argument("--out", type=Path, default=Path("runs/comparisons"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="into docs/results/, not OUT")
    parser.add_argument("--settings", type=Path, help="a speedrun's settings.json, for other sizes than the default")
    parser.add_argument("--one", choices=[*STARTS, ALONE, *ARMS], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--factor", type=float, default=1.0, help=argparse.SUPPRESS)
    parser.add_argument("--tuning", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        job = Job(name=given.one, seed=given.seed, factor=given.factor, tuning=given.tuning)
        asyncio.run(run(job, settings_in(given.out), given.out))
        return
    if given.comparison is None:
        parser.error(f"which comparison? Fix: name one of {', '.join(COMPARISONS)}")
    if given.seeds < 2:
        parser.error(f"--seeds {given.seeds}: intervals over seeds need two at least")
    given.out.mkdir(parents=True, exist_ok=True)
    settings = settings_in(given.out)
    if given.settings is not None:
        settings = SpeedrunSettings.model_validate_json(given.settings.read_bytes())
    try:
        agree(given.out / SETTINGS, settings.model_dump(mode="json"), begun=(given.out / SETTINGS).exists())
        page = compare(given.comparison, given.seeds, given.out, PAGES if given.write else given.out, given.jobs)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    note(f"written: {page}")


if __name__ == "__main__":
    main()
