"""Which numbers each held-out problem is made of: the same ones in another order are hardly another problem. Attempts
nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from speedrun.phases import write_all_problems
from speedrun.settings import SpeedrunSettings
from tasks import read_task
from tasks.data import read


def number_sets(settings: SpeedrunSettings, seeds: Iterable[int]) -> dict[str, str]:
    """By a problem's id, of the validation and test problems of these seeds, which are drawn anew."""
    found = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            _, test = write_all_problems(settings.model_copy(update={"seed": seed}), Path(folder))
            for problem in [*test, *read_task(f"problems:{folder}/validation.jsonl")]:
                reading = read(problem.question)
                assert reading is not None, problem.question
                found[problem.id] = f"{reading.kind} {sorted(reading.numbers)}"
    return found
