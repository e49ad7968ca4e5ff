"""Makes a finished speedrun's policy the embedded one: its model files, `recipe.json`, which says how to make them, and
its report in `docs/results/speedrun`.

    python -m speedrun.ship runs/speedrun

Trains and measures nothing; refuses a speedrun that is not finished, or whose problems are not of the default
difficulty, which `metaagent.embedded` takes the policy to know.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

from metaagent.console import note
from metaagent.embedded import FOLDER, RECIPE, WEIGHTS
from speedrun.report import PAGE, REPORT, SpeedrunReport
from speedrun.stages import trained
from tasks.miniature import Difficulty
from trainer.run_folder import CONFIG

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "speedrun"
LARGEST = 12_000_000
"""Bytes of all files together."""
DATA = ("problems/cold.jsonl", "problems/train.jsonl", "problems/test.jsonl", "cold/rows.jsonl")
LEFT_OUT = {"settings", "seconds", "correct", "active"}
"""Of the report: what the recipe says elsewhere, and what is told by a run's own folder."""


def ship(speedrun: Path, to: Path, results: Path) -> None:
    """Put the newest RL checkpoint of a speedrun into `to` and its report into `results`.

    Raises ValueError where it cannot be the embedded one; nothing has changed then.
    """
    if not (speedrun / REPORT).exists():
        raise ValueError(f"{speedrun} holds no finished speedrun. Fix: make speedrun, or name its folder")
    report = SpeedrunReport.model_validate_json((speedrun / REPORT).read_text(encoding="utf-8"))
    if report.settings.difficulty != Difficulty():
        raise ValueError(f"{speedrun} learned problems of another difficulty: {report.settings.difficulty}")
    (model,) = trained(speedrun / "rl", ["p0"]).values()
    size = sum(file.stat().st_size for file in model.iterdir())
    if size > LARGEST:
        raise ValueError(f"{model} has {size} bytes; {LARGEST} at most are shipped. Fix: train a smaller architecture")
    recipe = {
        "command": "python -m speedrun.run --seed " + str(report.settings.seed),
        "settings": report.settings.model_dump(mode="json"),
        "rl": (speedrun / "rl" / CONFIG).read_text(encoding="utf-8").replace(str(speedrun.resolve()), "SPEEDRUN"),
        "sha256": {name: sha256(speedrun / name) for name in DATA} | {WEIGHTS: sha256(model / WEIGHTS)},
        **report.model_dump(mode="json", exclude=LEFT_OUT),
    }
    beside = to.with_name(f".tmp-{to.name}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(model, beside, copy_function=shutil.copyfile)
    (beside / RECIPE).write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(to, ignore_errors=True)
    beside.rename(to)
    results.mkdir(parents=True, exist_ok=True)
    for name in (REPORT, *PAGE):
        shutil.copy(speedrun / name, results)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m speedrun.ship FOLDER_OF_A_SPEEDRUN")
    try:
        ship(Path(sys.argv[1]), FOLDER, RESULTS)
    except ValueError as error:
        sys.exit(str(error))
    note(f"{FOLDER} holds the policy of {sys.argv[1]}")
