"""Means over seeds and problems with 95 % intervals by a two-level bootstrap. Draws nothing and decides nothing.

Seeds are resampled first, then the problems of each (Davison and Hinkley 1997, section 3.8): a seed has a cold start,
problems and samples of its own, so its problems are not independent of one another. The noise of problems is in what
seeds differ by, too: where they are alike such an interval is up to 1.3 times as wide as it should be, and where few of
them differ by more than that it is too narrow (three seeds, standard deviation 0.05: 83 % hold the truth). So
pages show each seed, and call a difference one only where a t test over the seeds agrees (`Paired.told`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, stdev

from trainer.evaluate import Interval as Interval

RESAMPLES = 2000
Rates = Mapping[str, float]
"""Of one seed: the share of right attempts at each problem, by its id."""


def interval(seeds: Sequence[Rates]) -> Interval:
    """The mean over seeds of each seed's mean over its problems. Raises ValueError without seeds or problems."""
    import numpy

    if not seeds or not all(seeds):
        raise ValueError("an interval needs at least one seed, and a problem of each")
    dice = numpy.random.default_rng(0)
    means = []
    for rates in seeds:
        values = numpy.array([rates[name] for name in sorted(rates)], dtype=numpy.float64)
        means.append([_resampled(values, len(seeds), dice) for _ in range(RESAMPLES)])
    drawn = dice.integers(len(seeds), size=(RESAMPLES, len(seeds)))
    resampled = [
        fmean(means[seed][number][slot] for slot, seed in enumerate(chosen)) for number, chosen in enumerate(drawn)
    ]
    low, high = numpy.quantile(resampled, [0.025, 0.975])
    return Interval(fmean(fmean(rates.values()) for rates in seeds), float(low), float(high))


def over_sets(seeds: Sequence[Rates], sets: Mapping[str, str]) -> Interval:
    """As `interval`, with sets of problems drawn in place of problems, the same ones for all seeds: those of one set
    are alike, whichever seed drew them. A problem that `sets` does not name is a set of its own."""
    import numpy

    names = {sets.get(problem, problem) for rates in seeds for problem in rates}
    place = {name: number for number, name in enumerate(sorted(names))}
    right, count = numpy.zeros((2, len(place), len(seeds)))
    for seed, rates in enumerate(seeds):
        for problem, rate in rates.items():
            at = place[sets.get(problem, problem)], seed
            right[at] += rate
            count[at] += 1
    dice = numpy.random.default_rng(0)
    weights = dice.multinomial(len(place), [1 / len(place)] * len(place), size=RESAMPLES)
    means = (weights @ right) / numpy.maximum(weights @ count, 1)
    drawn = dice.integers(len(seeds), size=(RESAMPLES, len(seeds)))
    low, high = numpy.quantile(numpy.take_along_axis(means, drawn, axis=1).mean(axis=1), [0.025, 0.975])
    return Interval(fmean(fmean(rates.values()) for rates in seeds), float(low), float(high))


def gaps(after: Sequence[Rates], before: Sequence[Rates]) -> list[Rates]:
    """Of two systems, seed by seed and problem by problem. Raises ValueError where their problems differ."""
    pairs = list(zip(after, before, strict=True))
    if any(one.keys() != other.keys() for one, other in pairs):
        raise ValueError("the systems attempted different problems")
    return [{name: one[name] - other[name] for name in one} for one, other in pairs]


def difference(after: Sequence[Rates], before: Sequence[Rates]) -> Interval:
    """The interval of their `gaps`."""
    return interval(gaps(after, before))


T_95 = (inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond these 2.13 is a little too large."""


@dataclass(frozen=True, slots=True)
class Paired:
    """How far one system is above another on the same problems."""

    found: Interval
    own: list[float]
    """Of each seed."""

    @property
    def shown(self) -> str:
        return signed(self.found)

    @property
    def seeds(self) -> str:
        return ", ".join(f"{value:+.3f}" for value in self.own)

    @property
    def told(self) -> str:
        """Above or below where both the interval and a t test over the seeds say so, else how many seeds might, if they
        differed as these do."""
        if 0 not in self.found and beyond_seeds(self.own):
            return "above" if self.found.mean > 0 else "below"
        most = 100 * len(self.own)
        needed = next((count for count in range(len(self.own) + 1, most + 1) if beyond_seeds(self.own, count)), None)
        return f"cannot tell; {needed or f'more than {most}'} seeds might"


def paired(after: Sequence[Rates], before: Sequence[Rates]) -> Paired:
    """Raises ValueError where their problems differ."""
    own = [fmean(one.values()) - fmean(other.values()) for one, other in zip(after, before, strict=True)]
    return Paired(difference(after, before), own)


def signed(found: Interval) -> str:
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def beyond_seeds(values: Sequence[float], count: int | None = None) -> bool:
    """Whether the mean of one value per seed is not 0, by a two-sided t test at 95 %; with another `count` of seeds,
    whether it would be, if those differed as these do."""
    if len(values) < 2:
        return False
    count = count or len(values)
    return abs(fmean(values)) * count**0.5 > T_95[min(count, len(T_95)) - 1] * stdev(values)


def _resampled(values, times: int, dice) -> list[float]:  # pyright: ignore[reportMissingParameterType]
    chosen = dice.integers(len(values), size=(times, len(values)))
    return values[chosen].mean(axis=1).tolist()
