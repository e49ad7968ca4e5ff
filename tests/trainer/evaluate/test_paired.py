"""Paired intervals and McNemar's test against numbers worked out otherwise, and what must always hold of them."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.evaluate import Interval, mcnemar, mean_interval
from trainer.evaluate.paired import _binomial

DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=60)


def test_equal_numbers_have_a_point() -> None:
    assert mean_interval([0.25] * 7) == Interval(0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match="at least one problem"):
        mean_interval([])


def test_it_is_as_wide_as_the_standard_error_says() -> None:
    # 60 problems gained and 20 lost of 400: mean 0.1; sd of one is sqrt(80/400 - 0.01) = 0.43589, of the mean 0.021794.
    found = mean_interval([1.0] * 60 + [-1.0] * 20 + [0.0] * 320)
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((0.1 - 1.96 * 0.021794, 0.1 + 1.96 * 0.021794), abs=0.004)


def test_two_problems_are_drawn_as_two_coins() -> None:
    # Both are drawn twice, or either one: 0 in a quarter of the cases, 1 in another.
    assert mean_interval([0.0, 1.0]) == Interval(0.5, 0.0, 1.0)


def test_a_hundred_thousand_problems_take_no_longer() -> None:
    found = mean_interval([1.0] * 30_000 + [-1.0] * 20_000 + [0.0] * 50_000)
    assert (found.low, found.high) == pytest.approx((0.1 - 0.00434, 0.1 + 0.00434), abs=0.0004)


@pytest.mark.parametrize(("trials", "success", "of"), [(12, 1, 3), (40, 7, 8), (9, 5, 5), (7, 0, 4), (0, 1, 2)])
def test_draws_are_binomial(trials: int, success: int, of: int) -> None:
    dice = random.Random(5)
    drawn = Counter(_binomial(trials, success, of, dice) for _ in range(20_000))
    p = success / of
    for k in range(trials + 1):
        chance = math.comb(trials, k) * p**k * (1 - p) ** (trials - k)
        assert drawn[k] / 20_000 == pytest.approx(chance, abs=0.012)


@given(DIFFERENCES, st.integers(0, 10**6))
def test_order_changes_nothing_and_the_mean_lies_within(values: list[float], seed: int) -> None:
    found = mean_interval(values)
    assert min(values) <= found.low <= found.high <= max(values)
    assert found.low - 1e-9 <= found.mean <= found.high + 1e-9
    assert found == mean_interval(random.Random(seed).sample(values, len(values)))


def test_mcnemar_by_hand() -> None:
    # 2 of 10: 2 (1 + 10 + 45) / 1024.
    assert mcnemar(2, 8) == pytest.approx(112 / 1024)
    assert mcnemar(0, 6) == pytest.approx(2 / 64)
    assert (mcnemar(0, 0), mcnemar(4, 4), mcnemar(1, 2)) == (1.0, 1.0, 1.0)
    # As the normal distribution has it for many: (1000 - 0) / sqrt(101000) = 3.1466.
    assert mcnemar(50_000, 51_000) == pytest.approx(math.erfc(3.1466 / math.sqrt(2)), rel=0.02)


@given(st.integers(0, 300), st.integers(0, 300))
def test_either_way_is_as_likely(one: int, other: int) -> None:
    assert mcnemar(one, other) == mcnemar(other, one)
    assert 0 < mcnemar(one, other) <= 1


def test_one_seed_has_the_same_interval_in_the_speedruns_pages() -> None:
    pytest.importorskip("numpy")
    from speedrun.intervals import interval

    values = [1.0] * 60 + [-1.0] * 20 + [0.0] * 320
    one, other = mean_interval(values), interval([{str(place): value for place, value in enumerate(values)}])
    assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high), abs=0.004)
