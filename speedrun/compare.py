"""The paper's comparisons in miniature: each variant trained from one checkpoint with several seeds, then a page.

    python -m speedrun.compare tree --speedrun runs/speedrun --out runs/comparisons [--seeds 3] [--write]

Runs are shared between comparisons, each in `OUT/VARIANT/seed-S`; what is done is not done again. All start from the
speedrun's SFT checkpoint and are tested on its held-out problems. With --write the page goes into `docs/results/`.
`python -m speedrun.compare cross` swaps trained and untrained roles: which of them brings the gain.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from metaagent.opening import open_sandbox
from metaagent.terminal import note

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; several processes run side by side
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from speedrun import phases as stages
from speedrun.plots import points
from speedrun.report import pattern
from speedrun.settings import SpeedrunSettings
from speedrun.variants import ALONE, BASE, BEFORE, COMPARISONS, CROSS, OVERRIDES, SHARED, Comparison
from tasks import read_task
from tasks.data import KINDS
from trainer.disk import read_records
from trainer.evaluate import RESULTS, Attempt, shares
from trainer.sft import MODEL

PAGES = Path(__file__).parents[1] / "docs" / "results"
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
"""97.5 % quantile of Student's t for a number of seeds (that less one degrees of freedom)."""
RUN_TIMEOUT_S = 4 * 3600
RL, SFT, ATTEMPTS = "rl", "sft", "attempts"


@dataclass(frozen=True, slots=True)
class System:
    """One row of a comparison: the attempts of each seed."""

    name: str
    seeds: Sequence[Sequence[Attempt]]

    def rates(self, kind: str | None = None) -> list[float]:
        """Each seed's share of correct attempts, of one kind or of all."""
        chosen = [[each.correct for each in seed if kind in (None, each.task)] for seed in self.seeds]
        return [fmean(grades) for grades in chosen]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % confidence interval over seeds by Student's t; the seeds are the sample, problems are not."""
    if len(values) not in T95:
        raise ValueError(f"{len(values)} seeds: intervals are given for {min(T95)} to {max(T95)}")
    mean, half = fmean(values), T95[len(values)] * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


# Runs


def variant_settings(variant: str, seed: int, speedrun: Path) -> SpeedrunSettings:
    """The speedrun's own settings with the variant's changes on top."""
    own = SpeedrunSettings.model_validate_json((speedrun / stages.SETTINGS).read_text(encoding="utf-8"))
    overrides = (*own.overrides, *OVERRIDES[variant])
    return own.model_copy(update={"seed": seed, "shared": variant == SHARED, "overrides": overrides})


async def run_variant(variant: str, seed: int, speedrun: Path, out: Path) -> None:
    """Train one variant with one seed (where it has a run of its own), then attempt the held-out problems."""
    tuned = speedrun / SFT / MODEL
    test = read_task(f"problems:{speedrun / 'problems' / 'test.jsonl'}")
    executor = designer = tuned
    program = None
    async with open_sandbox("process", grading=True) as sandbox:
        if variant in OVERRIDES:
            settings = variant_settings(variant, seed, speedrun)
            data = (speedrun / "problems" / "train.jsonl").resolve()
            config = settings.rl(tuned.resolve(), data)
            models = await stages.reinforce(settings, tuned.resolve(), data, sandbox, out / RL, lambda _: None)
            executor, designer = models[config.roles.executor], models[config.roles.designer]
        elif variant in CROSS:
            base = stages.trained(out.parents[1] / BASE / out.name / RL, ["designer", "executor"]).values()
            designer, executor = (mine if swap else tuned for swap, mine in zip(CROSS[variant], base, strict=True))
        elif variant == ALONE:
            designer, program = None, stages.programs()[stages.SINGLE].program
        await stages.measure(
            SpeedrunSettings(),
            test,
            executor,
            sandbox,
            out / ATTEMPTS,
            lambda _: None,
            designer=designer,
            program=program,
            seed=seed,
        )


def run_all(variants: Sequence[str], seeds: int, speedrun: Path, out: Path, jobs: int) -> None:
    """Every variant with every seed, `jobs` at a time, each in a process of one thread."""

    def run(place: tuple[str, int]) -> None:
        variant, seed = place
        folder = out / variant / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        note(f"{variant}, seed {seed}")
        command = [sys.executable, "-m", "speedrun.compare", "--one", variant, "--seed", str(seed)]
        command += ["--speedrun", str(speedrun), "--out", str(out)]
        with (folder / "log").open("w") as log:
            ended = subprocess.run(command, stdout=log, stderr=log, timeout=RUN_TIMEOUT_S)
        if ended.returncode != 0:
            raise RuntimeError(
                f"{variant}, seed {seed} failed; see {folder / 'log'}. The same command goes on from there"
            )

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, [(variant, seed) for variant in variants for seed in range(seeds)]))


def attempts_of(folder: Path) -> list[Attempt]:
    return [attempt for _, attempt in read_records(folder / ATTEMPTS / RESULTS, Attempt)]


# Pages


def page_of(name: str, comparison: Comparison, systems: Sequence[System], seeds: int) -> str:
    """The page for people: means over seeds with 95 % intervals, the seeds' own values, and designs by kind."""
    lines = [
        f"# {comparison.title}",
        "",
        f"`python -m speedrun.compare {name} --seeds {seeds}`; all from one checkpoint, {seeds} seeds each; share "
        "of held-out problems answered correctly, mean over seeds [95 % interval by Student's t over seeds].",
        "",
        f"In the paper: {comparison.paper}",
        "",
        f"| | all | seeds | {' | '.join(KINDS)} |",
        f"|---|---|---|{'---|' * len(KINDS)}",
    ]
    for system in systems:
        mean, low, high = interval(system.rates())
        own = ", ".join(f"{rate:.3f}" for rate in system.rates())
        kinds = " | ".join(f"{fmean(system.rates(kind)):.2f}" for kind in KINDS)
        lines.append(f"| {system.name} | {mean:.3f} [{low:.3f}, {high:.3f}] | {own} | {kinds} |")
    lines += ["", f"![Accuracy]({name}.png)", "", "Designs by kind of problem, all seeds together:", ""]
    by_kind = {
        (system.name, kind): shares(pattern(each.graph) for seed in system.seeds for each in seed if each.task == kind)
        for system in systems
        for kind in KINDS
    }
    patterns = sorted({each for found in by_kind.values() for each in found})
    lines += [f"| | kind | {' | '.join(patterns)} |", f"|---|---|{'---|' * len(patterns)}"]
    lines += [
        f"| {system} | {kind} | {' | '.join(f'{found.get(each, 0):.0%}' for each in patterns)} |"
        for (system, kind), found in by_kind.items()
    ]
    return "\n".join([*lines, ""])


def compare(name: str, seeds: int, speedrun: Path, out: Path, pages: Path, jobs: int) -> Path:
    """Make the runs that are missing and write the page into `pages`; returns it."""
    comparison = COMPARISONS[name]
    needed = comparison.systems.values()
    run_all([variant for variant in needed if variant not in CROSS], seeds, speedrun, out, jobs)
    run_all([variant for variant in needed if variant in CROSS], seeds, speedrun, out, jobs)
    systems = [
        System(shown, [attempts_of(out / variant / f"seed-{seed}") for seed in range(seeds)])
        for shown, variant in comparison.systems.items()
    ]
    pages.mkdir(parents=True, exist_ok=True)
    points({system.name: system.rates() for system in systems}, comparison.title, pages / f"{name}.png")
    page = pages / f"{name}.md"
    page.write_text(page_of(name, comparison, systems, seeds), encoding="utf-8")
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", nargs="?", choices=COMPARISONS)
    parser.add_argument("--speedrun", type=Path, default=Path("runs/speedrun"))
    parser.add_argument("--out", type=Path, default=Path("runs/comparisons"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="into docs/results/, not OUT")
    parser.add_argument("--one", choices=[BEFORE, ALONE, *OVERRIDES, *CROSS], help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        asyncio.run(run_variant(given.one, given.seed, given.speedrun, given.out / given.one / f"seed-{given.seed}"))
        return
    if given.comparison is None:
        parser.error(f"which comparison? Fix: name one of {', '.join(COMPARISONS)}")
    if given.seeds not in T95:
        parser.error(f"--seeds {given.seeds}: intervals are given for {min(T95)} to {max(T95)}")
    if not (given.speedrun / SFT / MODEL).is_dir():
        parser.error(f"{given.speedrun} holds no speedrun. Fix: make speedrun, or name its folder with --speedrun")
    page = compare(
        given.comparison, given.seeds, given.speedrun, given.out, PAGES if given.write else given.out, given.jobs
    )
    note(f"written: {page}")


if __name__ == "__main__":
    main()
