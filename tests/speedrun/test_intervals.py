"""Two-level bootstrap intervals: bounds that can be worked out, and how often they cover what is true."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from speedrun.intervals import Interval, Paired, beyond_seeds, difference, interval, paired

pytest.importorskip("numpy")


def seed_of(right: int, of: int) -> dict[str, float]:
    return {f"p{number}": float(number < right) for number in range(of)}


def test_without_spread_the_interval_is_a_point() -> None:
    assert interval([dict.fromkeys("abc", 1.0)] * 3) == Interval(1.0, 1.0, 1.0)


def test_one_seed_has_the_interval_of_its_problems() -> None:
    # 200 of 400: the standard error is sqrt(0.25 / 400) = 0.025.
    found = interval([seed_of(200, 400)])
    assert found.mean == 0.5
    assert (found.low, found.high) == pytest.approx((0.5 - 1.96 * 0.025, 0.5 + 1.96 * 0.025), abs=0.005)


def test_seeds_that_differ_widen_it() -> None:
    # Two seeds at 0 and 1: both resampled are the same one half of the time, so the bounds are 0 and 1.
    assert interval([seed_of(0, 50), seed_of(50, 50)]) == Interval(0.5, 0.0, 1.0)


def test_each_seed_weighs_the_same_whatever_its_problems() -> None:
    assert interval([seed_of(10, 10), seed_of(0, 1000)]).mean == 0.5


def test_differences_are_paired_by_problem() -> None:
    # Every problem is two attempts harder for one system than for the other: there is nothing to resample.
    dice = random.Random(1)
    hard = [{f"p{number}": dice.random() for number in range(100)} for _ in range(3)]
    easy = [{name: rate + 0.1 for name, rate in seed.items()} for seed in hard]
    found = difference(easy, hard)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1), abs=1e-6)
    assert interval(easy).high - interval(easy).low > 0.05
    with pytest.raises(ValueError, match="different problems"):
        difference([{"a": 1.0}], [{"b": 1.0}])


def test_it_needs_seeds_and_problems() -> None:
    for nothing in ([], [{}]):
        with pytest.raises(ValueError, match="at least one seed"):
            interval(nothing)


@pytest.mark.thorough
def test_with_many_seeds_it_covers_the_truth_as_often_as_it_says() -> None:
    """Seeds around 0.5 with a deviation of 0.1, 50 problems each: 20 seeds, where a bootstrap is known to be fair."""
    dice = random.Random(7)
    covered = 0
    for _ in range(60):
        rates = [min(max(dice.gauss(0.5, 0.1), 0), 1) for _ in range(20)]
        covered += 0.5 in interval([{f"p{n}": float(dice.random() < rate) for n in range(50)} for rate in rates])
    assert covered / 60 == pytest.approx(0.95, abs=0.09)


def test_apart_is_without_overlap() -> None:
    assert Interval(0.5, 0.4, 0.6).apart(Interval(0.7, 0.61, 0.8))
    assert Interval(0.7, 0.61, 0.8).apart(Interval(0.5, 0.4, 0.6))
    assert not Interval(0.5, 0.4, 0.6).apart(Interval(0.7, 0.6, 0.8))


def test_a_difference_is_one_where_the_seeds_say_so_too() -> None:
    # Three seeds, t at 95 % is 4.30 with two degrees of freedom: 0.03 is 3 standard errors of 0.01, 0.06 is 6.
    spread = [-0.017321, 0.0, 0.017321]
    assert not beyond_seeds([0.03 + each for each in spread])
    assert beyond_seeds([0.06 + each for each in spread])
    assert beyond_seeds([-0.06 + each for each in spread])
    # With five seeds t is 2.78, and 0.03 is 3.9 standard errors.
    assert beyond_seeds([0.03 + each for each in spread], 5)
    assert not beyond_seeds([0.5])

    wide = Paired(Interval(0.03, 0.01, 0.05), [0.03 + each for each in spread])
    assert wide.told == "cannot tell; 4 seeds might", "the bootstrap alone sees one"
    assert replace(wide, own=[0.06 + each for each in spread]).told == "above"
    unsure = replace(wide, found=Interval(0.06, -0.01, 0.13), own=[0.06 + each for each in spread])
    assert unsure.told.startswith("cannot tell"), "the seeds alone see one"
    assert replace(wide, found=Interval(-0.06, -0.08, -0.04), own=[-0.06 + each for each in spread]).told == "below"
    assert replace(wide, own=[0.001 + 10 * each for each in spread]).told == "cannot tell; more than 300 seeds might"
    assert replace(wide, found=Interval(0.0, 0.0, 0.0), own=[0.0] * 3).told.startswith("cannot tell")
    assert (wide.shown, wide.seeds) == ("+0.030 [+0.010, +0.050]", "+0.013, +0.030, +0.047")


def test_a_pair_is_seed_by_seed() -> None:
    gap = paired([seed_of(3, 10), seed_of(5, 10)], [seed_of(1, 10), seed_of(5, 10)])
    assert gap.own == pytest.approx([0.2, 0.0])
    assert gap.found == difference([seed_of(3, 10), seed_of(5, 10)], [seed_of(1, 10), seed_of(5, 10)])


@pytest.mark.parametrize("seeds", [3, 5, 16, 30])
def test_of_systems_that_are_alike_a_twentieth_differ_by_their_seeds(seeds: int) -> None:
    """The bootstrap alone calls up to 17 % of such pairs different."""
    dice = random.Random(7)
    found = sum(beyond_seeds([dice.gauss(0, 0.05) for _ in range(seeds)]) for _ in range(4000))
    assert found / 4000 == pytest.approx(0.05, abs=0.015)
