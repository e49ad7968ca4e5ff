"""What a run would take on nodes that it has not seen: a step as discrete events, its costs, and both fitted to a run.

Not here: what sits where (`trainer.cluster`), bytes (`trainer.run`), and anything that is run: all of it is predicted.
"""

from trainer.predict.costs import CPU_CORE, PARAMETERS, Seen, costs_of
from trainer.predict.division import Divided, best_division, described, unplaceable
from trainer.predict.fit import Fit, NotFittable, carried_over, fit, on_gpus, read_run, work_of
from trainer.predict.rollout_model import NeverDone
from trainer.predict.simulate import Prediction, simulate
from trainer.predict.workload import Workload, assumed_workload

__all__ = [
    "CPU_CORE",
    "PARAMETERS",
    "Divided",
    "Fit",
    "NeverDone",
    "NotFittable",
    "Prediction",
    "Seen",
    "Workload",
    "assumed_workload",
    "best_division",
    "carried_over",
    "costs_of",
    "described",
    "fit",
    "on_gpus",
    "read_run",
    "simulate",
    "unplaceable",
    "work_of",
]
