"""From problems to trees of runs: which problems a step takes, M designs of each, N runs of each design.

Not here: what a run is worth (`trainer.credit`), and jails (`sandbox`).
"""

from trainer.rollout.batches import Batches, Source, apportioned
from trainer.rollout.rollout import (
    Question,
    Rollout,
    derived_seed,
    first_failure,
    not_run,
    question_folder,
)
from trainer.rollout.trace_file import TraceFile

__all__ = [
    "Batches",
    "Question",
    "Rollout",
    "Source",
    "TraceFile",
    "apportioned",
    "derived_seed",
    "first_failure",
    "not_run",
    "question_folder",
]
