"""A run on several processes and machines: what sits where, and its runtime on Ray.

Not here: the loop (`trainer.run`), what memory a run needs (`trainer.run.needs`), how long it will take
(`trainer.predict`), and what a terminal shows.
"""

from trainer.cluster.actors import RunWorker, Work
from trainer.cluster.advice import Unplaceable
from trainer.cluster.crew_worker import Job, Player
from trainer.cluster.layout import layout, placeable
from trainer.cluster.places import Bundle, Layout, Node, Process, shown
from trainer.cluster.ray_session import ClusterError, Limit, Session
from trainer.cluster.runtime import ClusterRuntime
from trainer.cluster.spread import Crew

__all__ = [
    "Bundle",
    "ClusterError",
    "ClusterRuntime",
    "Crew",
    "Job",
    "Layout",
    "Limit",
    "Node",
    "Player",
    "Process",
    "RunWorker",
    "Session",
    "Unplaceable",
    "Work",
    "layout",
    "placeable",
    "shown",
]
