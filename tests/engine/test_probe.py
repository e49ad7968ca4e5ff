"""What a probe finds wrong with the log-probabilities that an engine now gives, and how far they may be off."""

from __future__ import annotations

import math

import pytest

from engine.protocol import Probe, least_rounding


@pytest.mark.parametrize(
    ("seen", "told"),
    [([-1.0, -2.0], None), ([-1.0, -2.03], None), ([-1.0, -2.1], "0.1 at token 2, 10 times"),
     ([-1.0, math.nan], "nan at token 2, nan times"), ([math.nan, -2.0], "nan at token 1, nan times"),
     ([-1.0, -math.inf], "inf at token 2, inf times")],
)  # fmt: skip
def test_what_rounding_does_not_do_is_told(seen: list[float], told: str | None) -> None:
    whole = f"the probe's log-probabilities are off by {told} what rounding does there; 8 may be"
    assert Probe([1, 2, 3], [-1.0, -2.0], [0.01, 0.01]).difference(seen) == (whole if told else "")


def test_each_token_is_held_to_its_own_rounding() -> None:
    probe = Probe([1, 2, 3], [-1.0, -2.0], [0.01, 1.0])
    assert probe.difference([-1.0, -4.0]) == ""
    assert "off by 0.2 at token 1, 20 times" in probe.difference([-1.2, -4.0])
    assert probe.gap([-1.2, -4.0]) == 2.0


def test_small_differences_everywhere_are_told() -> None:
    probe = Probe([1, 2, 3, 4], [-1.0, -2.0, -3.0], [0.02, 0.02, 0.02])
    assert probe.difference([-1.09, -2.0, -3.0]) == ""
    assert probe.difference([-1.06, -1.94, -3.06]) == (
        "the probe's log-probabilities are off by 3 times what rounding does, in the mean; 2 may be"
    )


def test_without_more_it_is_held_to_what_nobody_minds() -> None:
    assert Probe([1, 2], [-1.0]).difference([-1.0003]) == ""
    assert Probe([1, 2], [-1.0]).difference([-1.002])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float32_is_held_to_next_to_nothing(dtype: str) -> None:
    assert least_rounding(dtype, 96, spread=10, size=100) == 2e-4


def test_half_precision_is_held_to_what_rounding_makes() -> None:
    """SmolLM2-135M on ordinary text: 2^-8 times the root of 0.7 * 30 * 3.46^2 + 0.35 * 22.6^2."""
    least = least_rounding("bfloat16", 30, spread=3.46, size=22.6)
    assert least == pytest.approx(0.0809, rel=0.01)
    assert least_rounding("float16", 30, 3.46, 22.6) == pytest.approx(least / 8)
    assert least_rounding("bfloat16", 120, 3.46, 0) == pytest.approx(2 * least_rounding("bfloat16", 30, 3.46, 0))
    assert least_rounding("bfloat16", 30, 6.92, 45.2) == pytest.approx(2 * least)
    assert least < least_rounding("bfloat16", 30) < 2 * least, "where logits are not known"


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype 'int8' must be one of bfloat16"):
        least_rounding("int8", 30)
