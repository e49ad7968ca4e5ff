"""Two evaluations of the same problems: how sure their difference is.

Pure functions over numbers, with the standard library alone. Whose attempts are paired with whose is decided
elsewhere (`viewer.changes`); intervals over several seeds are `speedrun.intervals`'s.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def apart(self, other: Interval) -> bool:
        return self.low > other.high or self.high < other.low

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(values: Iterable[float]) -> Interval:
    """The mean of one number per problem with its percentile bootstrap interval over problems (Efron and Tibshirani
    1993, chapter 13). Raises ValueError without values.

    The numbers are differences between two systems where it is to be a paired interval. Only how often each number
    occurs is drawn, which is the same as drawing problems and takes no longer for 100,000 of them; the same numbers
    always have the same interval. Where all are equal it is a point: nothing is known of how they vary.
    """
    counts = Counter(values)
    problems = counts.total()
    if not problems:
        raise ValueError("an interval needs the number of at least one problem")
    numbers = sorted(counts)
    dice = random.Random(0)
    means = []
    for _ in range(RESAMPLES):
        left, rest, addends = problems, problems, []
        for number in numbers:
            drawn = _binomial(left, counts[number], rest, dice)
            addends.append(drawn * number)
            left -= drawn
            rest -= counts[number]
        means.append(math.fsum(addends) / problems)
    means.sort()
    mean = math.fsum(number * count for number, count in counts.items()) / problems
    return Interval(mean, _quantile(means, 0.025), _quantile(means, 0.975))


def mcnemar(one: int, other: int) -> float:
    """The two-sided p-value of McNemar's exact test: the chance that of `one + other` pairs which disagree the smaller
    part is no larger than it was, where either way is as likely (McNemar 1947; exact by the binomial distribution).

    The pairs are to be independent of each other: one attempt per problem. 1 where no pair disagrees.
    """
    pairs, smaller = one + other, min(one, other)
    if 2 * smaller == pairs:
        return 1.0
    logs = (_log_comb(pairs, k) - pairs * math.log(2) for k in range(smaller + 1))
    return min(2 * math.fsum(map(math.exp, logs)), 1.0)


def _binomial(trials: int, success: int, of: int, dice: random.Random) -> int:
    """How many of `trials` uniform numbers lie below success / of, an exact draw.

    All numbers are compared with it bit by bit, from the first: half of those that are still undecided have the other
    bit, and are decided by it.
    """
    if success == of:
        return trials
    below, remainder = 0, success
    while trials and remainder:
        remainder *= 2
        zeros = dice.getrandbits(trials).bit_count()
        if remainder >= of:  # this bit of success / of is 1: what has a 0 here is below
            remainder -= of
            below += zeros
            trials -= zeros
        else:
            trials = zeros
    return below


def _quantile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation between the two nearest."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
