"""`python -m speedrun.run`: what is wrong is said before anything is begun, and a folder holds one speedrun."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from speedrun.run import claim, main
from speedrun.settings import SpeedrunSettings


def test_a_wrong_override_is_named_and_nothing_is_begun(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    ended = CliRunner().invoke(app, ["rollout.desings=3", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2
    assert "unknown key rollout.desings; did you mean rollout.designs?" in " ".join(ended.output.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_holds_one_speedrun(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    claim(SpeedrunSettings(seed=1), path)
    claim(SpeedrunSettings(seed=1), path)
    with pytest.raises(ValueError, match=r"holds a speedrun with seed=1, not 2. Fix: choose another folder"):
        claim(SpeedrunSettings(seed=2), path)
    with pytest.raises(ValueError, match="test_problems=400, not 10"):
        claim(SpeedrunSettings(seed=1, test_problems=10), path)
