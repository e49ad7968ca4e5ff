"""The paper's comparisons in miniature: arms trained from several starts, then a page.

    python -m speedrun.compare gate --seeds 3 [--first-seed 0] [--out runs/comparisons] [--jobs 2] [--write]

The gate is made before any other comparison: does either role learn at all, and neither where rewards are shuffled?
Where it fails, no other comparison is made; where `gate.json` beside the pages says that it holds for the same
instrument, it is not made again. Each arm has learning rates of its own choice (`speedrun.tuning`). Runs are shared
between comparisons (`speedrun.arms`); what is done is not done again, and what pages need of it is kept beside them
(`speedrun.kept`), for other days. With --write the page goes into `docs/results/`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, Field

from metaagent.terminal import note

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded; several processes run side by side
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from speedrun.arms import (
    Job,
    in_todays_terms,
    kept_at,
    left,
    made_by,
    run,
    run_all,
)
from speedrun.asked import asked
from speedrun.intervals import Rates
from speedrun.kept import read
from speedrun.number_sets import number_sets
from speedrun.pages import gate, page_of
from speedrun.phases import SETTINGS
from speedrun.settings import SpeedrunSettings
from speedrun.systems import System
from speedrun.tuning import chosen, factor_of, tried
from speedrun.variants import COMPARISONS, CONTROL, GATE, START
from trainer.disk import agree_on_settings, only_writer
from trainer.run import StepReport
from viewer.charts import Series, Spec, Steps, dots, lines, png

PAGES = Path(__file__).parents[1] / "docs" / "results"
VERDICT, KEPT = "gate.json", "runs"
"""Beside the pages: a `Verdict`, and what is kept of each run."""


def system_of(shown: str, jobs: Sequence[Job], kept: Path) -> System:
    """What is kept of the runs of an arm, one for each seed."""
    runs = [run for job in jobs if (run := read(kept_at(job, kept)))]
    return System(
        name=shown,
        sampled=[run.sampled for run in runs],
        greedy=[run.greedy for run in runs],
        steps=[run.steps for run in runs],
        fixed={name: [run.fixed[name] for run in runs] for name in runs[0].fixed},
        codes=frozenset(run.code for run in runs),
    )


def systems_of(name: str, jobs: Mapping[str, Sequence[Job]], kept: Path) -> list[System]:
    return [system_of(shown, jobs[arm], kept) for shown, arm in COMPARISONS[name].systems.items()]


def file_of(name: str, seeds: Sequence[int]) -> str:
    """How a comparison's page and pictures are called: those of other seeds stand beside those of the first."""
    return f"{name}-from-{seeds[0]}" if seeds[0] else name


def draw(name: str, file: str, systems: Sequence[System], pages: Path) -> None:
    """The comparison's pictures: of each seed the share of correct answers, and of valid programs over the steps."""
    means = {system.name: [fmean(each.values()) for each in system.rates()] for system in systems}
    about = "share of held-out problems answered correctly (dots: seeds, line: mean)"
    png(dots(means, title=COMPARISONS[name].title, value_title=about), pages / f"{file}.png")
    png(_valid_programs(systems), pages / f"valid-programs-{file}.png")


def _valid_programs(systems: Sequence[System]) -> Spec:
    shares = {
        system.name: [fmean(each.ready for each in of_seeds) for of_seeds in zip(*system.steps, strict=True)]
        for system in systems
        if any(system.steps)
    }
    most = max(map(len, shares.values()), default=0)
    series = [Series(name=name, values=[*of, *[None] * (most - len(of))]) for name, of in shares.items()]
    return lines(
        Steps.single(most),
        series,
        title="Valid programs",
        value_title="share of designs that are valid programs, mean over seeds",
    )


class Try(BaseModel):
    seeds: list[int]
    holds: bool
    runs: str
    """SHA-256 of what it was told by: the same seeds made again, which never give quite the same, are another try."""


class Verdict(BaseModel):
    """Whether the gate holds, and of what instrument. Neither more seeds mend a try that failed nor the same ones once
    more: whoever tries until it holds would find that it does."""

    tries: list[Try] = Field(min_length=1)
    instrument: dict[str, Any]

    @property
    def holds(self) -> bool:
        return all(each.holds for each in self.tries)

    def is_of(self, settings: SpeedrunSettings) -> bool:
        return {name: in_todays_terms(made) for name, made in self.instrument.items()} == instrument(settings)


class Verdicts(BaseModel):
    """Of all instruments that were ever tried here."""

    verdicts: list[Verdict]


def instrument(settings: SpeedrunSettings) -> dict[str, Any]:
    """What the gate is about: all that its runs depend on, but for the seed (`speedrun.arms.made_by`)."""
    return {name: made_by(Job(name=name, seed=0), settings) for name in COMPARISONS[GATE].systems.values()}


def verdict_in(pages: Path, settings: SpeedrunSettings) -> Verdict | None:
    """That of earlier runs on the same instrument. Raises ValueError where the file holds something else."""
    return next((each for each in _verdicts(pages) if each.is_of(settings)), None)


def _verdicts(pages: Path) -> list[Verdict]:
    path = pages / VERDICT
    if not path.exists():
        return []
    try:
        return Verdicts.model_validate_json(path.read_bytes()).verdicts
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no verdicts of the gate: {error}. Fix: remove it") from None


def add_try(new: Try, pages: Path, settings: SpeedrunSettings) -> None:
    """To those of this instrument, once. None is ever taken away."""
    verdicts = _verdicts(pages)
    known = next((each for each in verdicts if each.is_of(settings)), None)
    if known is None:
        verdicts.append(Verdict(tries=[new], instrument=instrument(settings)))
    elif new not in known.tries:
        known.tries.append(new)
    (pages / VERDICT).write_text(Verdicts(verdicts=verdicts).model_dump_json(indent=1) + "\n", encoding="utf-8")


def compare(
    name: str,
    seeds: Sequence[int],
    settings: SpeedrunSettings,
    out: Path,
    pages: Path,
    workers: int,
    command: Callable[[str], str],
) -> Path:
    """Make the runs that are missing, and those of the gate first unless it is known to hold or not asked, and write
    the page into `pages`, which says by which `command`; returns it.

    Raises ValueError where the gate fails and the page is another's, and what `run_all` raises.
    """
    if name != GATE and not COMPARISONS[name].validity:
        if (known := verdict_in(pages, settings)) is None:
            compare(GATE, seeds, settings, out, pages, workers, command)
            known = verdict_in(pages, settings)
        if known is None or not known.holds:
            raise ValueError(f"the gate fails, so {name} would say nothing. See: {pages / VERDICT} and its pages")
    arms, kept = COMPARISONS[name].systems.values(), pages / KEPT
    if untuned := left(tried(arms), settings, kept):
        # What they start from would take one core alone, so that of the seeds is taught beside it.
        run_all([*untuned, *(Job(name=START, seed=seed) for seed in seeds)], settings, out, workers, kept)
    rates = chosen(arms, settings, out, workers, kept)
    jobs = {arm: [Job(name=arm, seed=seed, factor=factor_of(arm, rates)) for seed in seeds] for arm in arms}
    run_all(chain.from_iterable(jobs.values()), settings, out, workers, kept)
    systems = systems_of(name, jobs, kept)
    pages.mkdir(parents=True, exist_ok=True)
    file = file_of(name, seeds)
    draw(name, file, systems, pages)
    page = pages / f"{file}.md"
    sets, steps = number_sets(settings, seeds), _control(seeds, rates, settings, kept)
    text = page_of(name, systems, command(name), rates, file=file, sets=sets, control=steps)
    page.write_text(text, encoding="utf-8")
    if name == GATE:
        told_by = json.dumps([[system.name, system.sampled, system.fixed] for system in systems])
        runs = hashlib.sha256(told_by.encode()).hexdigest()
        add_try(Try(seeds=list(seeds), holds=gate(systems)[0], runs=runs), pages, settings)
    return page


def _control(
    seeds: Sequence[int], rates: Mapping[str, Mapping[float, Rates]], settings: SpeedrunSettings, kept: Path
) -> list[list[StepReport]]:
    """The steps of the Executor whose rewards were shuffled, of each seed; nothing where they are not all kept."""
    jobs = [Job(name=CONTROL, seed=seed, factor=factor_of(CONTROL, rates)) for seed in seeds]
    if left(jobs, settings, kept):
        return []
    return [run.steps for job in jobs if (run := read(kept_at(job, kept)))]


def settings_in(out: Path, given: Path | None = None) -> SpeedrunSettings:
    """Those of the file `given`, else those that all seeds in `out` have, else the defaults.

    Raises ValueError where a file holds none, or none that arms can be made of.
    """
    path = out / SETTINGS if given is None else given
    if given is None and not path.exists():
        return SpeedrunSettings()
    try:
        settings = SpeedrunSettings.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no settings of a speedrun: {error}") from None
    if settings.pretrained is not None or settings.shared:
        raise ValueError(f"{path}: arms begin with random weights, two policies of them. Fix: no pretrained, no shared")
    return settings.model_copy(update={"seed": 0})


def main(arguments: Sequence[str] | None = None) -> None:
    given = asked(
        arguments, "speedrun.compare", __doc__, COMPARISONS, out=Path("runs/comparisons"), pages="docs/results/"
    )
    if given.one is not None:
        asyncio.run(run(Job(**json.loads(given.one)), settings_in(given.out), given.out))
        return
    try:
        settings = settings_in(given.out, given.settings)
        other = settings != SpeedrunSettings()
        pages, command = given.folder(PAGES, other), partial(given.command, other=other)
        with only_writer(given.out):
            agree_on_settings(given.out / SETTINGS, settings)
            page = compare(given.comparison, given.seeds, settings, given.out, pages, given.jobs, command)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    note(f"written: {page}")


if __name__ == "__main__":
    main()
