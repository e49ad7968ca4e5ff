"""Reads the problems that a run trains on, and refuses those that its rewards are not for.

Formats are `tasks.data`'s; which problems a step takes is said by `trainer.rollout.batches`.
"""

from __future__ import annotations

from typing import Literal

from tasks.data import read_as
from tasks.problems import Problem
from trainer.config import DataConfig


def problems_of(source: DataConfig, rewarded: Literal["run", "turns"]) -> list[Problem]:
    """Those of a file. Raises ValueError for one whose turns cannot be rewarded, and what `read_as` raises."""
    problems = read_as(source.format, source.path)
    other = next((problem for problem in problems if problem.environment is None), None)
    if rewarded == "turns" and other is not None:
        raise ValueError(
            f'{source.format}:{source.path.name}: problem {other.id!r} is no game, and reward.kind = "turns" rewards '
            'what is done in games. Fix: reward.kind = "run" and rollout.branching.score = "end"'
        )
    return problems
