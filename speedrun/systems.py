"""One row of a comparison's page: attempts, steps and fixed programs of an arm, by seed. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import fmean

from speedrun.intervals import Interval, Rates, interval
from speedrun.kept import Result
from trainer.run import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One row of a comparison; each list has an entry per seed."""

    name: str
    sampled: Sequence[Sequence[Result]]
    """Attempts at the held-out problems, sampled as in training."""
    greedy: Sequence[Sequence[Result]]
    steps: Sequence[Sequence[StepReport]] = ()
    """Of its RL, if it had any."""
    fixed: Mapping[str, Sequence[Sequence[Result]]] = field(default_factory=dict)
    """By a program's name, attempts at the validation problems with this system's Executor."""
    codes: frozenset[str] = frozenset()
    """Which versions of the project ran it."""

    def rates(self, kind: str | None = None) -> list[Rates]:
        return rates_of(self.sampled, kind)

    @property
    def accuracy(self) -> Interval:
        return interval(self.rates())


def rates_of(seeds: Sequence[Sequence[Result]], kind: str | None = None) -> list[Rates]:
    """Of each seed, the attempts' grades by problem, of one kind or of all."""
    return [{each.problem: float(each.correct) for each in seed if kind in (None, each.kind)} for seed in seeds]


def mean_of(seeds: Sequence[Rates]) -> float:
    """NaN where no seed has a problem of this kind."""
    means = [fmean(rates.values()) for rates in seeds if rates]
    return fmean(means) if means else nan
