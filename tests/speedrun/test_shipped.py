"""The policy that ships is the one that its recipe tells of, and does what the recipe says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metaagent.commands.run import open_sandbox
from metaagent.embedded import FOLDER, RECIPE, ROLES, WEIGHTS
from speedrun import phases as stages
from speedrun.settings import SpeedrunSettings
from speedrun.ship import LARGEST, sha256
from tasks.data.miniature import problems
from trainer.config.toml_file import read_config, to_toml


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return json.loads((FOLDER / RECIPE).read_text(encoding="utf-8"))


def test_the_files_are_small_and_the_ones_that_were_measured(recipe: dict[str, Any]) -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) <= LARGEST
    for role in ROLES:
        assert sha256(FOLDER / role / WEIGHTS) == recipe["sha256"][f"{role}/{WEIGHTS}"]


def test_the_recipe_is_the_one_of_this_version_and_draws_the_same_problems(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    settings = SpeedrunSettings.model_validate(recipe["settings"])
    # Validation problems are no part of it: arms of comparisons are tried on them.
    assert settings == SpeedrunSettings(seed=settings.seed, validation_problems=settings.validation_problems)
    run = tmp_path / "run"
    rl = to_toml(settings.rl(run / "sft" / "model", run / "problems" / "train.jsonl"))
    for name, text in (("then", recipe["rl"]), ("now", rl.replace(str(run), "SPEEDRUN"))):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    assert read_config(tmp_path / "then.toml") == read_config(tmp_path / "now.toml")  # what is new since is at rest
    stages.write_all_problems(settings, tmp_path)
    for name in ("cold", "train", "test"):
        assert sha256(tmp_path / f"{name}.jsonl") == recipe["sha256"][f"problems/{name}.jsonl"], name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_as_good_as_the_recipe_says(recipe: dict[str, Any], tmp_path: Path) -> None:
    """On other problems than the recipe's: 40 of each kind, drawn with another seed."""
    pytest.importorskip("torch")
    other = [each for kind in recipe["systems"][-1]["by_kind"] for each in problems(kind, 40, seed=12345, split="test")]

    async def measured() -> float:
        async with open_sandbox("process", grading=True) as sandbox:
            attempts = await stages.measure(
                SpeedrunSettings(),
                other,
                FOLDER / "executor",
                sandbox,
                tmp_path / "out",
                lambda _: None,
                designer=FOLDER / "designer",
            )
        return sum(each.correct for each in attempts) / len(attempts)

    found, stated = asyncio.run(measured()), recipe["systems"][-1]["accuracy"]["estimate"]
    assert abs(found - stated) < 0.13, "three and a half standard deviations"
