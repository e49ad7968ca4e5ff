"""Rollouts that wait for their update, as part of a checkpoint: trees as JSON, with nothing pickled.

There are some where a run's staleness is above 0. What happens to them is the loop's business (`trainer.run.loop`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainer.disk import plain_files
from trainer.trees import QuestionTree

PENDING = "pending.json"
MAX_BYTES = 8 << 30
_TREES = TypeAdapter(list[list[QuestionTree]])


def write(folder: Path, rollouts: Sequence[list[QuestionTree]]) -> None:
    """One list of trees per step. Writes nothing where there are none."""
    if rollouts:
        (folder / PENDING).write_bytes(_TREES.dump_json(list(rollouts)))


def read(folder: Path, steps: int) -> list[list[QuestionTree]]:
    """What `write` wrote, of as many steps. Raises ValueError for anything else."""
    if not steps:
        return []
    try:
        rollouts = _TREES.validate_json(plain_files.read(folder / PENDING, MAX_BYTES))
    except (OSError, ValidationError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise ValueError(f"{folder / PENDING} cannot be read: {said}. Fix: load another checkpoint") from error
    if len(rollouts) != steps:
        raise ValueError(
            f"{folder / PENDING} has the rollouts of {len(rollouts)} steps, and cluster.staleness is {steps}. Fix: "
            "load another checkpoint"
        )
    return rollouts
