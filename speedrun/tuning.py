"""Learning rates for each arm of a comparison: the recipe's, times one of `FACTORS`, by what is right most often.

One seed of its own, whose held-out problems are never looked at; its validation problems choose. Compares no arms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

from speedrun.arms import Job, kept_at, run_all
from speedrun.asked import TUNING_SEED
from speedrun.kept import read
from speedrun.settings import SpeedrunSettings
from speedrun.variants import ARMS, FACTORS


def tried(names: Iterable[str]) -> list[Job]:
    """The runs that choose the rates of these arms."""
    tuned = dict.fromkeys(tuner(name) for name in names)
    return [
        Job(name=name, seed=TUNING_SEED, factor=factor, tuning=True)
        for name in tuned
        if name is not None
        for factor in FACTORS
    ]


def chosen(
    names: Iterable[str], settings: SpeedrunSettings, out: Path, workers: int, kept: Path
) -> dict[str, dict[float, float]]:
    """Of each arm that is tuned, the share of validation problems right at each factor; runs what is missing."""
    jobs = tried(names)
    run_all(jobs, settings, out, workers, kept)
    found: dict[str, dict[float, float]] = {}
    for job in jobs:
        if run := read(kept_at(job, kept)):
            found.setdefault(job.name, {})[job.factor] = fmean(each.correct for each in run.sampled)
    return found


def tuner(name: str) -> str | None:
    """The arm whose runs choose the rates of this one; None where its rates are given, or it has no RL."""
    if name not in ARMS or not ARMS[name].tuned:
        return None
    return ARMS[name].rates_of or name


def factor_of(name: str, found: Mapping[str, Mapping[float, float]]) -> float:
    """The best factor for an arm, the lower of two alike; 1 where it is not tuned."""
    rates = found.get(tuner(name) or "", {1.0: 0.0})
    return max(sorted(rates), key=lambda factor: rates[factor])
