"""What a probe finds wrong with the log-probabilities that an engine now gives."""

from __future__ import annotations

import math

import pytest

from engine.protocol import Probe


@pytest.mark.parametrize(
    ("seen", "gap"),
    [([-1.0, -2.0], None), ([-1.0, -2.001], None), ([-1.0, -2.1], "0.1"), ([-1.0, math.nan], "nan"),
     ([math.nan, -2.0], "nan"), ([-1.0, -math.inf], "inf")],
)  # fmt: skip
def test_a_gap_above_the_tolerance_is_told(seen: list[float], gap: str | None) -> None:
    told = f"the probe's log-probabilities are off by {gap}, more than the tolerance 0.01"
    assert Probe([1, 2], [-1.0, -2.0], 0.01).difference(seen) == (told if gap else "")


def test_the_gap_is_the_largest_difference_and_no_number_where_one_is_none() -> None:
    probe = Probe([1, 2, 3], [-1.0, -2.0])
    assert probe.gap([-1.25, -2.0]) == 0.25
    assert probe.gap([-1.0, -1.5]) == 0.5
    assert math.isnan(probe.gap([-1.0, math.nan]))
