"""MASPRM's miniature from its cold start to its pages, as small as it can be; nothing is done twice."""

# pyright: reportMissingImports=false

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speedrun.masprm import __main__ as command
from speedrun.masprm.guided_arms import COMPARISONS, NAMES
from speedrun.masprm.search_runs import Settings
from speedrun.tiny_policy import Architecture
from trainer.sft import SFTSettings
from trainer.values import ValueSettings

for needed in ("torch", "transformers", "vl_convert", "numpy"):
    pytest.importorskip(needed)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = Settings(
    architecture=Architecture(layers=1, width=32, inner=64, heads=1, key_value_heads=1, vocabulary=600, context=640),
    cold=6,
    check=2,
    train=4,
    test=2,
    states=4,
    runs=2,
    sft=SFTSettings(epochs=1, batch=32, learning_rate=3e-3, held_out=0.1),
    values=ValueSettings(epochs=1, batch=64, learning_rate=1e-3, held_out=0.3),
)


@pytest.mark.parametrize("name", ["guidance", "values"])
def test_from_nothing_to_a_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    )
    settings = tmp_path / "small.json"
    settings.write_text(SMALL.model_dump_json())
    out = tmp_path / "out"
    asked = [name, "--seeds", "3", "--out", str(out), "--settings", str(settings), "--jobs", "2"]
    command.main(asked)
    page = (out / f"{name}.md").read_text()
    assert "python -m speedrun.masprm" in page
    done = {path: path.stat().st_mtime_ns for path in out.rglob("kept.json.gz")}
    assert done
    command.main(asked)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("kept.json.gz")} == done
    assert name in NAMES
    assert (out / f"{name}.png").exists() == (name in COMPARISONS or name == "values")
