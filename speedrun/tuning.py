"""Learning rates for the arms of a comparison: the recipe's, unless another of `FACTORS` times them is better.

One seed of its own, whose held-out problems are never looked at; its validation problems choose, and only where they
can tell: a factor is taken that beats the recipe's rates on the same problems with 95 %. Compares no arms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

from speedrun.arms import Job, kept_at, run_all
from speedrun.asked import TUNING_SEED
from speedrun.intervals import Rates, difference
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
) -> dict[str, dict[float, Rates]]:
    """Of each arm that is tuned, what was right of the validation problems at each factor; runs what is missing."""
    jobs = tried(names)
    run_all(jobs, settings, out, workers, kept)
    found: dict[str, dict[float, Rates]] = {}
    for job in jobs:
        if run := read(kept_at(job, kept)):
            rates = {each.problem: float(each.correct) for each in run.sampled}
            found.setdefault(job.name, {})[job.factor] = rates
    return found


def tuner(name: str) -> str | None:
    """The arm whose runs choose the rates of this one; None where its rates are given, or it has no RL."""
    if name not in ARMS or not ARMS[name].tuned:
        return None
    return ARMS[name].rates_of or name


def factor_of(name: str, found: Mapping[str, Mapping[float, Rates]]) -> float:
    """1 for an arm that is not tuned, else the `best_factor`."""
    return best_factor(found.get(tuner(name) or "", {}))


def best_factor(rates: Mapping[float, Rates]) -> float:
    """1, or of the factors that are better than that, beyond chance, the best."""
    better = [factor for factor in rates if factor != 1 and difference([rates[factor]], [rates[1.0]]).low > 0]
    return max(better, key=lambda factor: fmean(rates[factor].values()), default=1.0)
