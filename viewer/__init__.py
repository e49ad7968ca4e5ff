"""See it: a run, a tree of runs, a training run or an evaluation as pages of HTML.

Reads what is on disk: traces, `metrics.jsonl`, `results.jsonl`. A page is asked for by its route (`viewer.sites`), and
goes into one self-contained file (`viewer.document`) or over a server on loopback (`viewer.server`). Not here: the same
in a terminal (`metaagent.terminal`), and anything that runs, grades or trains.
"""

from viewer.document import Written, write
from viewer.run import Words
from viewer.server import serving
from viewer.site_of_path import NothingToShow, open_site
from viewer.sites import NoSuchPage, Site
from viewer.training import TrainingSite
from viewer.work_site import Designed, WorkSite

__all__ = [
    "Designed",
    "NoSuchPage",
    "NothingToShow",
    "Site",
    "TrainingSite",
    "Words",
    "WorkSite",
    "Written",
    "open_site",
    "serving",
    "write",
]
