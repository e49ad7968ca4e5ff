"""Measures policies: k attempts at each problem, straight or searched for, pass rates with intervals, structures,
costs; label trees of many problems.

Not here: anything that trains; the command is `metaagent.commands.eval`.
"""

from trainer.evaluate.attempts import RESULTS, SETTINGS, Attempt
from trainer.evaluate.evaluation import Attempts, EvalSettings, MakeAttempt, asked_nobody, evaluate
from trainer.evaluate.evaluation_report import NO_PROGRAM, EvalReport, EvalSums, SearchMeans, StructureRow, report_of
from trainer.evaluate.label_trees import LabelledTree, LabelSettings, label_problems
from trainer.evaluate.metrics import (
    Diversity,
    PassRate,
    Spread,
    diversity,
    grouped,
    pass_rate,
    shares,
    spread,
    structure_shares,
)
from trainer.evaluate.paired import Interval, mcnemar, mean_interval
from trainer.evaluate.searched import Searcher

__all__ = [
    "NO_PROGRAM",
    "RESULTS",
    "SETTINGS",
    "Attempt",
    "Attempts",
    "Diversity",
    "EvalReport",
    "EvalSettings",
    "EvalSums",
    "Interval",
    "LabelSettings",
    "LabelledTree",
    "MakeAttempt",
    "PassRate",
    "SearchMeans",
    "Searcher",
    "Spread",
    "StructureRow",
    "asked_nobody",
    "diversity",
    "evaluate",
    "grouped",
    "label_problems",
    "mcnemar",
    "mean_interval",
    "pass_rate",
    "report_of",
    "shares",
    "spread",
    "structure_shares",
]
