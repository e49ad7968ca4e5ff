"""Means over seeds and problems with 95 % intervals by a two-level bootstrap. Draws nothing and decides nothing.

Seeds are resampled first, then the problems of each (Davison and Hinkley 1997, section 3.8): a seed has a cold start,
problems and samples of its own, so its problems are not independent of one another. The noise of problems is in what
seeds differ by, too: where they are alike such an interval is up to 1.3 times as wide as it should be, and where few of
them differ by more than that it is too narrow (three seeds, standard deviation 0.05: 0.8 times). Pages show each seed.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

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


def difference(after: Sequence[Rates], before: Sequence[Rates]) -> Interval:
    """Of two systems, seed by seed and problem by problem. Raises ValueError where their problems differ."""
    pairs = list(zip(after, before, strict=True))
    if any(one.keys() != other.keys() for one, other in pairs):
        raise ValueError("the systems attempted different problems")
    return interval([{name: one[name] - other[name] for name in one} for one, other in pairs])


def _resampled(values, times: int, dice) -> list[float]:  # pyright: ignore[reportMissingParameterType]
    chosen = dice.integers(len(values), size=(times, len(values)))
    return values[chosen].mean(axis=1).tolist()
