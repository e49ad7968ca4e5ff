"""The search for one problem's answer: a program as a `Space`, trees on disk.

Not here: the methods (`search.methods`), models of values (`trainer.values`), many problems (`trainer.evaluate`).
"""

from search.problem.tree_file import (
    AnyLine,
    ChosenLine,
    NodeLine,
    SimulationLine,
    StateLine,
    TreeDamaged,
    TreeHeader,
    TreeRecord,
    line_text,
    read_lines,
    read_tree,
)

__all__ = [
    "AnyLine",
    "ChosenLine",
    "NodeLine",
    "SimulationLine",
    "StateLine",
    "TreeDamaged",
    "TreeHeader",
    "TreeRecord",
    "line_text",
    "read_lines",
    "read_tree",
]
