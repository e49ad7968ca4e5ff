"""The search for one problem's answer: a program as a `Space`, models as guides, trees on disk.

Not here: the methods (`search.methods`), models of values (`trainer.values`), many problems (`trainer.evaluate`).
"""

from search.problem.model_guides import ModelGuide, OutcomeGuide
from search.problem.program_space import Grade, ProgramSpace
from search.problem.searching import (
    ORACLE,
    Found,
    Method,
    SearchReport,
    SearchSettings,
    grow_labels,
    guide_of,
    label_header_settings,
    search,
)
from search.problem.tree_file import (
    LABEL,
    AnyLine,
    ChosenLine,
    NodeLine,
    SimulationLine,
    StateLine,
    TreeDamaged,
    TreeHeader,
    TreeRecord,
    line_text,
    read_header,
    read_lines,
    read_tree,
)
from search.problem.tree_writer import TreeUnsteady, TreeWriter, is_whole

__all__ = [
    "LABEL",
    "ORACLE",
    "AnyLine",
    "ChosenLine",
    "Found",
    "Grade",
    "Method",
    "ModelGuide",
    "NodeLine",
    "OutcomeGuide",
    "ProgramSpace",
    "SearchReport",
    "SearchSettings",
    "SimulationLine",
    "StateLine",
    "TreeDamaged",
    "TreeHeader",
    "TreeRecord",
    "TreeUnsteady",
    "TreeWriter",
    "grow_labels",
    "guide_of",
    "is_whole",
    "label_header_settings",
    "line_text",
    "read_header",
    "read_lines",
    "read_tree",
    "search",
]
