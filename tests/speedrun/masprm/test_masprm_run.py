"""MASPRM's miniature from its cold start to its pages, as small as it can be; nothing is done twice."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from speedrun.masprm import __main__ as command
from speedrun.masprm import kept_runs
from speedrun.masprm.search_jobs import carry_out
from speedrun.masprm.search_runs import Job, Settings
from speedrun.side_by_side import DONE
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
    train=3,
    test=4,
    states=4,
    runs=2,
    sft=SFTSettings(epochs=1, batch=32, learning_rate=3e-3, held_out=0.1),
    values=ValueSettings(epochs=1, batch=64, learning_rate=1e-3, held_out=0.3),
)
OF_EACH = {"start": 1, "labels": 3, "model": 5, "states": 1, "reading": 6, "wall": 1}
"""Jobs of a seed, of `guidance`, `values` and `wall` together, without the arms."""


def test_from_nothing_to_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Job] = []

    def here(folder: Path, title: str, told: Sequence[str]) -> None:
        if (folder / DONE).exists():
            return
        done.append(Job(**json.loads(told[told.index("--one") + 1])))
        asyncio.run(carry_out(done[-1], command.settings_in(tmp_path / "out"), tmp_path / "out"))
        (folder / DONE).touch()

    monkeypatch.setattr(kept_runs, "run_in_process", here)
    (tmp_path / "small.json").write_text(SMALL.model_dump_json())
    asked = ["--seeds", "3", "--out", str(tmp_path / "out"), "--settings", str(tmp_path / "small.json"), "--jobs", "1"]
    for name in ("guidance", "values", "wall"):
        command.main([name, *asked])
        assert f"python -m speedrun.masprm {name} --seeds 3" in (tmp_path / "out" / f"{name}.md").read_text()
    for task, count in OF_EACH.items():
        assert sum(job.task == task for job in done) == 3 * count, task
    assert len(set(done)) == len(done)
    made = len(done)
    command.main(["guidance", *asked])
    assert len(done) == made, "what is done is not done again"
