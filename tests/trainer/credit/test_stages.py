"""Which roles learn at which step, worked out from MetaAgent-X, Eq. 9."""

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.credit.stages import STAGE_LENGTH, active_roles


def alphas(step: int, stage_length: int) -> tuple[int, int]:
    """(alpha_D, alpha_E) of Eq. 9."""
    roles = active_roles(step, stage_length=stage_length)
    return int("designer" in roles), int("executor" in roles)


@pytest.mark.parametrize(
    ("stage_length", "step", "expected"),
    [
        (1, 0, (0, 1)),  # floor(0 / 1) = 0
        (1, 1, (1, 0)),
        (1, 2, (0, 1)),
        (1, 999, (1, 0)),
        (2, 0, (0, 1)),
        (2, 1, (0, 1)),
        (2, 2, (1, 0)),  # floor(2 / 2) = 1
        (2, 3, (1, 0)),
        (2, 4, (0, 1)),
        (30, 0, (0, 1)),
        (30, 29, (0, 1)),  # floor(29 / 30) = 0
        (30, 30, (1, 0)),
        (30, 59, (1, 0)),
        (30, 60, (0, 1)),  # floor(60 / 30) mod 2 = 0
        (30, 89, (0, 1)),
        (30, 90, (1, 0)),
        (10**9, 10**9 - 1, (0, 1)),
    ],
)
def test_metaagent_x_eq_9(stage_length: int, step: int, expected: tuple[int, int]) -> None:
    assert alphas(step, stage_length) == expected


def test_metaagent_x_eq_9_with_the_papers_stage_length() -> None:
    stages = [(role, len(list(steps))) for role, steps in groupby(range(150), lambda step: tuple(active_roles(step)))]
    assert stages == [(("executor",), 30), (("designer",), 30)] * 2 + [(("executor",), 30)]
    assert STAGE_LENGTH == 30


@given(st.integers(0, 10_000), st.integers(1, 100))
def test_stages_hold_one_role_and_alternate(step: int, stage_length: int) -> None:
    assert sum(alphas(step, stage_length)) == 1
    assert alphas(step + stage_length, stage_length) == alphas(step, stage_length)[::-1]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("coupled", {"designer", "executor"}), ("designer-only", {"designer"}), ("executor-only", {"executor"})],
)
@pytest.mark.parametrize("step", [0, 29, 30, 31, 60])
def test_the_ablations_are_the_same_at_every_step(schedule: Any, expected: set[str], step: int) -> None:
    assert active_roles(step, schedule) == expected
    assert active_roles(step, schedule, stage_length=1) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1,), "step -1 must be at least 0"),
        ((0, "stagewise", 0), "stage_length 0 at least 1"),
        ((0, "coupled", -30), "stage_length -30 at least 1"),
        ((0, "alternating"), "there is no schedule 'alternating'. Fix: choose one of stagewise, coupled, "),
    ],
)
def test_bad_values_are_named(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        active_roles(*arguments)
