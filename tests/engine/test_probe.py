"""What a probe finds wrong with the log-probabilities that an engine now gives, and how far they may be off."""

from __future__ import annotations

import math

import pytest

from engine.protocol import Probe, probe_tolerance


@pytest.mark.parametrize(
    ("seen", "gap"),
    [([-1.0, -2.0], None), ([-1.0, -2.001], None), ([-1.0, -2.1], "0.1"), ([-1.0, math.nan], "nan"),
     ([math.nan, -2.0], "nan"), ([-1.0, -math.inf], "inf")],
)  # fmt: skip
def test_a_gap_above_the_tolerance_is_told(seen: list[float], gap: str | None) -> None:
    told = f"the probe's log-probabilities are off by {gap}, more than the tolerance 0.01"
    assert Probe([1, 2], [-1.0, -2.0], 0.01).difference(seen) == (told if gap else "")


def test_small_differences_everywhere_are_told() -> None:
    probe = Probe([1, 2, 3, 4], [-1.0, -2.0, -3.0], 0.1, 0.05)
    assert probe.difference([-1.09, -2.0, -3.0]) == ""
    assert probe.difference([-1.06, -1.94, -3.06]) == (
        "the probe's log-probabilities are off by 0.06 in the mean, more than the tolerance 0.05"
    )
    assert Probe([1, 2], [-1.0, -2.0], 0.1).difference([-1.09, -2.09]) == ""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float32_is_held_to_a_thousandth(dtype: str) -> None:
    assert probe_tolerance(dtype, 96, spread=10, size=100) == (1e-3, 1e-3)


def test_half_precision_is_held_to_what_rounding_makes() -> None:
    """SmolLM2-135M on ordinary text: an expected difference of 0.081, of which a mean of 0.051 was seen."""
    largest, mean = probe_tolerance("bfloat16", 30, spread=3.46, size=22.6)
    assert (largest, mean) == pytest.approx((10 * 0.0809, 3 * 0.0809), rel=0.01)
    assert probe_tolerance("float16", 30, 3.46, 22.6) == pytest.approx((largest / 8, mean / 8))
    assert probe_tolerance("bfloat16", 120, 3.46, 0) == pytest.approx(
        [2 * x for x in probe_tolerance("bfloat16", 30, 3.46, 0)]
    )
    assert probe_tolerance("bfloat16", 30, 6.92, 45.2) == pytest.approx((2 * largest, 2 * mean))
    assert mean < probe_tolerance("bfloat16", 30)[1] < 2 * mean, "where logits are not known"


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype 'int8' must be one of bfloat16"):
        probe_tolerance("int8", 30)
