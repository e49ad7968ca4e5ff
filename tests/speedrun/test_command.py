"""`python -m speedrun.__main__`: what is wrong is said before anything is begun, and a folder holds one speedrun."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from speedrun.__main__ import main, speedrun
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
