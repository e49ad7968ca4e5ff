"""Makes the policies of a finished speedrun the embedded ones: the model files of each role, `recipe.json`, which says
how to make them, and the report in `docs/results/speedrun`.

    python -m speedrun.ship runs/speedrun

Trains and measures nothing; refuses a speedrun that is not finished, or whose problems are not of the default
difficulty, which `metaagent.embedded` takes the policies to know.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

from metaagent.embedded import FOLDER, RECIPE, ROLES, WEIGHTS
from metaagent.terminal import note
from speedrun.phases import trained
from speedrun.report import PAGE, REPORT, SpeedrunReport
from tasks.data import Difficulty
from trainer.run import CONFIG

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "speedrun"
LARGEST = 12_000_000
"""Bytes of all files together."""
DATA = (*(f"problems/{name}.jsonl" for name in ("cold", "train", "validation", "test")), "cold/rows.jsonl")
LEFT_OUT = {"settings", "rl", "machine", "seconds", "correct", "ready", "active"}
"""Of the report: what the recipe says elsewhere, and what is told by a run's own folder."""


def ship(speedrun: Path, to: Path, results: Path) -> None:
    """Put each role's model of a speedrun's newest RL checkpoint into `to`, and its report into `results`.

    Raises ValueError where it cannot be the embedded one; nothing has changed then.
    """
    if not (speedrun / REPORT).exists():
        raise ValueError(f"{speedrun} holds no finished speedrun. Fix: make speedrun, or name its folder")
    report = SpeedrunReport.model_validate_json((speedrun / REPORT).read_text(encoding="utf-8"))
    if report.settings.pretrained is not None:
        raise ValueError(f"{speedrun} began with {report.settings.pretrained}, which is not trained here")
    if report.settings.difficulty != Difficulty():
        raise ValueError(f"{speedrun} learned problems of another difficulty: {report.settings.difficulty}")
    models = trained(speedrun / "rl", ROLES)
    size = sum(file.stat().st_size for model in models.values() for file in model.iterdir())
    if size > LARGEST:
        raise ValueError(f"the models have {size} bytes; {LARGEST} at most are shipped. Fix: a smaller architecture")
    weights = {f"{role}/{WEIGHTS}": sha256(model / WEIGHTS) for role, model in models.items()}
    recipe = {
        "command": "python -m speedrun.__main__ --seed " + str(report.settings.seed),
        "settings": report.settings.model_dump(mode="json"),
        "rl": (speedrun / "rl" / CONFIG).read_text(encoding="utf-8").replace(str(speedrun.resolve()), "SPEEDRUN"),
        "sha256": {name: sha256(speedrun / name) for name in DATA} | weights,
        **report.model_dump(mode="json", exclude=LEFT_OUT),
    }
    beside = to.with_name(f".tmp-{to.name}")
    shutil.rmtree(beside, ignore_errors=True)
    for role, model in models.items():
        shutil.copytree(model, beside / role, copy_function=shutil.copyfile)
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
    note(f"{FOLDER} holds the policies of {sys.argv[1]}")
