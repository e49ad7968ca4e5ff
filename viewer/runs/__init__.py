"""A folder of traces: an index, the list with its search, and the tree of runs of one question of a training step.

Not here: the page of a single run (`viewer.run`), and what else a training run's folder holds (`viewer.training`).
"""

from viewer.runs.folder_walk import Walk
from viewer.runs.runs_site import RunsSite

__all__ = ["RunsSite", "Walk"]
