"""Measures policies: k attempts at each problem, pass rates with intervals, structures, costs.

Not here: anything that trains; the command is `metaagent.commands.eval`.
"""

from trainer.evaluate.attempts import RESULTS, Attempt
from trainer.evaluate.evaluation import Attempts, EvalSettings, MakeAttempt, evaluate
from trainer.evaluate.evaluation_report import NO_PROGRAM, EvalReport, EvalSums, StructureRow, report_of
from trainer.evaluate.metrics import Diversity, PassRate, Spread, diversity, shares, spread, structure_shares
from trainer.evaluate.paired import Interval, mcnemar, mean_interval

__all__ = [
    "NO_PROGRAM",
    "RESULTS",
    "Attempt",
    "Attempts",
    "Diversity",
    "EvalReport",
    "EvalSettings",
    "EvalSums",
    "Interval",
    "MakeAttempt",
    "PassRate",
    "Spread",
    "StructureRow",
    "diversity",
    "evaluate",
    "mcnemar",
    "mean_interval",
    "report_of",
    "shares",
    "spread",
    "structure_shares",
]
