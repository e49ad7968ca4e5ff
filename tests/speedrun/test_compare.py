"""Comparisons: intervals worked by hand, every variant a valid configuration, pages that show each seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from attempts import ENSEMBLE, attempts

from speedrun.compare import System, interval, page_of
from speedrun.settings import SpeedrunSettings
from speedrun.variants import ALONE, BASE, BEFORE, COMPARISONS, CROSS, OVERRIDES, SHARED
from tasks.data.miniature import KINDS
from trainer.config.schema import TrainConfig
from trainer.config.toml_file import ConfigError


def config(name: str) -> TrainConfig:
    return SpeedrunSettings(seed=7, shared=name == SHARED, overrides=OVERRIDES[name]).rl(Path("/m"), Path("/d.jsonl"))


@pytest.mark.parametrize("name", OVERRIDES)
def test_every_variant_is_a_run_with_as_many_executions(name: str) -> None:
    found, base = config(name), config(BASE)
    executions = [each.rollout.questions * each.rollout.designs * each.rollout.executions for each in (found, base)]
    assert executions[0] == executions[1]
    assert (found.steps, found.seed, found.data[0].path) == (base.steps, 7, Path("/d.jsonl"))
    assert {policy.model for policy in found.policies.values()} == {"/m"}
    for role in ("designer", "executor"):
        rates = [each.learning_rate(each.role_policies[role], {role}) for each in (found, base)]
        assert rates[0] == rates[1]


def test_variants_differ_in_what_their_names_say() -> None:
    assert (config("flat").rollout.designs, config("flat").rollout.executions, config("flat").credit) == (8, 1, "flat")
    assert [config(name).schedule for name in ("coupled", "designer-only", "executor-only")] == [
        "coupled",
        "designer-only",
        "executor-only",
    ]
    assert config(BASE).role_policies == {"designer": "designer", "executor": "executor"}
    assert config(SHARED).role_policies == {"designer": "shared", "executor": "shared"}
    rates = {"learning_rate", "designer_learning_rate"}
    (shared,) = config(SHARED).policies.values()
    for policy in config(BASE).policies.values():
        assert policy.model_dump(exclude=rates) == shared.model_dump(exclude=rates)
    assert [config(name).stage_length for name in ("K1", BASE, "K10")] == [1, 5, 10]


def test_comparisons_name_known_systems_and_a_wrong_override_is_said() -> None:
    known = {BEFORE, ALONE, *OVERRIDES, *CROSS}
    assert all(set(comparison.systems.values()) <= known for comparison in COMPARISONS.values())
    with pytest.raises(ConfigError, match=r"rollout\.design"):
        SpeedrunSettings(overrides=("rollout.design=3",)).rl(Path("/m"), Path("/d"))


def test_intervals_are_students_t_over_seeds() -> None:
    # mean 0.6, deviation 0.1, 3 seeds: 4.303 * 0.1 / sqrt(3) = 0.2484
    assert interval([0.5, 0.6, 0.7]) == pytest.approx((0.6, 0.6 - 0.2484, 0.6 + 0.2484), abs=1e-4)
    with pytest.raises(ValueError, match="1 seeds: intervals are given for 2 to 8"):
        interval([0.5])


def test_a_page_shows_means_seeds_kinds_and_designs() -> None:
    rates = ([0, 10, 0, 10], [10, 10, 0, 10])
    seeds = [attempts(dict(zip(KINDS, each, strict=True)), of=10, graph=ENSEMBLE) for each in rates]
    systems = [System("stagewise", seeds), System("coupled", seeds[:1] * 2)]
    page = page_of("schedule", COMPARISONS["schedule"], systems, 2)
    assert "| stagewise | 0.625 [-0.963, 2.213] | 0.500, 0.750 | 0.50 | 1.00 | 0.00 | 1.00 |" in page
    assert "| coupled | 0.500 [0.500, 0.500] |" in page
    assert "| stagewise | chain | 100% |" in page
    assert COMPARISONS["schedule"].paper in page
