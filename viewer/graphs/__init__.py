"""The graph of what ran of a program: in what order, how often, by which branch, and what was never asked.

Not here: drawing, which the page's script does, and programs that have not run.
"""

from viewer.graphs.run_graph import run_graph
from viewer.graphs.run_order import span
from viewer.graphs.run_places import times, turn_numbers

__all__ = ["run_graph", "span", "times", "turn_numbers"]
