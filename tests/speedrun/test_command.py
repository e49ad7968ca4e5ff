"""`python -m speedrun.__main__`: what is wrong is said before anything is begun, and a folder holds one speedrun."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from speedrun.__main__ import Clock, main, speedrun
from speedrun.settings import SpeedrunSettings


def test_a_wrong_override_is_named_and_nothing_is_begun(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    ended = CliRunner().invoke(app, ["rollout.desings=3", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2
    assert "unknown key rollout.desings; did you mean rollout.designs?" in " ".join(ended.output.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_holds_one_speedrun(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(SpeedrunSettings(seed=1).model_dump_json())
    with pytest.raises(ValueError, match=r"seed=1, not 2. Fix: use another folder"):
        asyncio.run(speedrun(SpeedrunSettings(seed=2), tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_seconds_of_a_step_that_is_killed_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves what stood in the file while the step was under way; the next one counts on from there."""
    monkeypatch.setattr(Clock, "EVERY_S", 0.05)
    path = tmp_path / "times.json"
    with Clock(path).step("training"):
        time.sleep(0.4)
        killed = path.read_bytes()
    assert 0.2 <= json.loads(killed)["training"] <= 0.5
    path.write_bytes(killed)
    with Clock(path).step("training"):
        time.sleep(0.2)
    with Clock(path).step("evaluation"):
        pass
    took = json.loads(path.read_text())
    assert took["training"] >= json.loads(killed)["training"] + 0.15
    assert took["evaluation"] <= 0.1
