"""What ships: the newest RL checkpoint with the recipe that made it, and nothing that its users could not rely on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from metaagent.embedded import RECIPE, ROLES, WEIGHTS
from speedrun import ship
from speedrun.report import PAGE, REPORT, SpeedrunReport
from speedrun.settings import SpeedrunSettings
from tasks.data.miniature import Difficulty
from trainer.disk import checkpoint


class Nothing(BaseModel):
    pass


def speedrun(out: Path, settings: SpeedrunSettings) -> Path:
    """A finished speedrun's files, as far as they are read here; weights say whose and after which step they are."""
    for name in ship.DATA:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(f"{name}\n")
    for step in (1, 2):

        def write(folder: Path, step: int = step) -> None:
            for role in ROLES:
                (folder / role / "model").mkdir(parents=True)
                (folder / role / "model" / WEIGHTS).write_text(f"{role} after {step}")
                (folder / role / "optimizer").mkdir()

        checkpoint.save(out / "rl" / "checkpoints", step, write, Nothing())
    (out / "rl" / "config.toml").write_text(f'model = "{out.resolve()}/sft/model"\n')
    report = SpeedrunReport(
        rl={},
        machine="2 cores",
        settings=settings,
        weights=7,
        systems=[],
        differences=[],
        correct=[0.5],
        ready=[1.0],
        active=[["executor"]],
        seconds={},
    )
    (out / REPORT).write_text(report.model_dump_json())
    for name in PAGE:
        (out / name).write_text(name)
    return out


def test_the_newest_checkpoint_ships_with_its_recipe(tmp_path: Path) -> None:
    made = speedrun(tmp_path / "run", SpeedrunSettings(seed=4))
    to = tmp_path / "policy"
    to.mkdir()
    (to / "old").touch()
    ship.ship(made, to, tmp_path / "results")
    assert sorted(path.name for path in to.iterdir()) == ["designer", "executor", RECIPE]
    for role in ROLES:
        assert [path.name for path in (to / role).iterdir()] == [WEIGHTS]
        assert (to / role / WEIGHTS).read_text() == f"{role} after 2"
    assert {path.name for path in (tmp_path / "results").iterdir()} == {REPORT, *PAGE}
    text = (to / RECIPE).read_text()
    assert str(tmp_path) not in text
    recipe = json.loads(text)
    assert recipe["command"] == "python -m speedrun.__main__ --seed 4"
    assert recipe["settings"]["seed"] == 4
    assert recipe["rl"] == 'model = "SPEEDRUN/sft/model"\n'
    assert recipe["weights"] == 7
    assert recipe["sha256"][f"executor/{WEIGHTS}"] == hashlib.sha256(b"executor after 2").hexdigest()
    assert recipe["sha256"]["cold/rows.jsonl"] == hashlib.sha256(b"cold/rows.jsonl\n").hexdigest()


def test_an_unfinished_speedrun_does_not_ship(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no finished speedrun. Fix: make speedrun"):
        ship.ship(tmp_path, tmp_path / "policy", tmp_path / "results")
    assert not (tmp_path / "policy").exists()


def test_other_problems_than_the_policy_is_used_for_do_not_ship(tmp_path: Path) -> None:
    made = speedrun(tmp_path / "run", SpeedrunSettings(difficulty=Difficulty(chain_terms=9)))
    with pytest.raises(ValueError, match=r"problems of another difficulty.*chain_terms=9"):
        ship.ship(made, tmp_path / "policy", tmp_path / "results")


def test_a_policy_too_large_does_not_ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = speedrun(tmp_path / "run", SpeedrunSettings())
    monkeypatch.setattr(ship, "LARGEST", 31)
    with pytest.raises(ValueError, match="32 bytes; 31 at most are shipped"):
        ship.ship(made, tmp_path / "policy", tmp_path / "results")
    assert not (tmp_path / "policy").exists()
