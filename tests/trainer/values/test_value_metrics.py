"""Figures of predicted values, worked by hand."""

from __future__ import annotations

import math

import pytest

from trainer.values.value_metrics import accuracy, calibration, value_metrics


def test_figures_by_hand() -> None:
    """Gaps 0.5, 0, -0.5, 1; y has mean 0.25 and squares around it of 2.75; V has mean 0.5 and squares of 0.5."""
    found = accuracy([0.5, 1.0, 0.5, 0.0], [0.0, 1.0, 1.0, -1.0])
    assert found.count == 4
    assert found.rmse == pytest.approx(math.sqrt(1.5 / 4))
    assert found.mae == pytest.approx(0.5)
    assert found.bias == pytest.approx(0.25)
    assert found.r2 == pytest.approx(1 - 1.5 / 2.75)
    assert found.pearson == pytest.approx((0.5 * 0.75 + 0.5 * 1.25) / math.sqrt(0.5 * 2.75))
    assert found.sign == pytest.approx(2 / 3), "of 1, 1 and -1; V = 0 has the sign of none"


def test_what_has_no_spread_has_no_r2_or_correlation() -> None:
    assert accuracy([0.1, 0.3], [0.7, 0.7]).r2 is None
    assert accuracy([0.7] * 3, [0.1, 0.2, 0.3]).pearson is None
    assert accuracy([0.1], [0.0]).sign is None
    with pytest.raises(ValueError, match="no values"):
        accuracy([], [])


def test_by_agent_and_by_depth() -> None:
    found = value_metrics([1.0, 0.5, -1.0], [1.0, -0.5, -1.0], ["b", "a", "b"], [1, 2, 2])
    assert {name: (each.count, each.rmse) for name, each in found.by_agent.items()} == {"a": (1, 1.0), "b": (2, 0.0)}
    assert {depth: (each.count, each.mae) for depth, each in found.by_depth.items()} == {1: (1, 0.0), 2: (2, 0.5)}


def test_calibration_has_ten_bins_over_all_values() -> None:
    found = calibration([-1.0, -0.81, -0.8, 0.0, 0.19, 1.0], [-1.0, 0.0, 1.0, 0.5, -0.5, 1.0])
    assert [(each.low, each.high) for each in found][:2] == [(-1.0, -0.8), (-0.8, -0.6)]
    assert [each.count for each in found] == [2, 1, 0, 0, 0, 2, 0, 0, 0, 1]
    assert found[0].mean_value == pytest.approx(-0.905)
    assert found[5].mean_target == 0.0
    assert found[2].mean_value is None
