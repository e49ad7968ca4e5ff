"""The page of one run, and of two side by side.

Not here: which runs there are, which is the business of `viewer.runs` and of other sites.
"""

from viewer.run.compare_page import compare_page
from viewer.run.known_run import KeptRuns, stamp_of
from viewer.run.program_graphs import Describe
from viewer.run.run_page import run_page
from viewer.run.run_site import RunSite, first_row
from viewer.run.token_heat import Words

__all__ = ["Describe", "KeptRuns", "RunSite", "Words", "compare_page", "first_row", "run_page", "stamp_of"]
