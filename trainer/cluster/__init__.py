"""A run on several processes and machines: what sits where, its runtime on Ray, what a step is predicted to take.

Not here: the loop (`trainer.run`), what memory a run needs (`trainer.run.needs`), and what a terminal shows.
"""

from trainer.cluster.crew_worker import Job, Player
from trainer.cluster.layout import Bundle, Layout, Node, Process, Unplaceable, layout, shown
from trainer.cluster.runtime import ClusterRuntime
from trainer.cluster.session import ClusterError
from trainer.cluster.spread import Crew

__all__ = [
    "Bundle",
    "ClusterError",
    "ClusterRuntime",
    "Crew",
    "Job",
    "Layout",
    "Node",
    "Player",
    "Process",
    "Unplaceable",
    "layout",
    "shown",
]
