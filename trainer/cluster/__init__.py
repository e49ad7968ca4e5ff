"""A run on several processes and machines: what sits where, its runtime on Ray, what a step is predicted to take.

Not here: the loop (`trainer.run`), what memory a run needs (`trainer.run.needs`), and what a terminal shows.
"""

from trainer.cluster.actors import RunWorker, Work
from trainer.cluster.costs import CPU_CORE, PARAMETERS, Seen, costs_of
from trainer.cluster.crew_worker import Job, Player
from trainer.cluster.division import Divided, best_division, described, unplaceable
from trainer.cluster.fit import WORKLOAD, Fit, NotFittable, fit, read_run
from trainer.cluster.layout import Bundle, Layout, Node, Process, Unplaceable, layout, shown
from trainer.cluster.ray_session import ClusterError, Limit, Session
from trainer.cluster.rollout_model import NeverDone
from trainer.cluster.runtime import ClusterRuntime
from trainer.cluster.simulate import Prediction, simulate
from trainer.cluster.spread import Crew
from trainer.cluster.workload import Workload, assumed_workload

__all__ = [
    "CPU_CORE",
    "PARAMETERS",
    "WORKLOAD",
    "Bundle",
    "ClusterError",
    "ClusterRuntime",
    "Crew",
    "Divided",
    "Fit",
    "Job",
    "Layout",
    "Limit",
    "NeverDone",
    "Node",
    "NotFittable",
    "Player",
    "Prediction",
    "Process",
    "RunWorker",
    "Seen",
    "Session",
    "Unplaceable",
    "Work",
    "Workload",
    "assumed_workload",
    "best_division",
    "costs_of",
    "described",
    "fit",
    "layout",
    "read_run",
    "shown",
    "simulate",
    "unplaceable",
]
