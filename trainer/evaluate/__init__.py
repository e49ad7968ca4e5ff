"""Measures policies: k attempts at each problem, pass rates with intervals, structures, costs.

Not here: anything that trains; the command is `metaagent.commands.eval`.
"""

from trainer.evaluate.attempts import RESULTS, SETTINGS, Attempt
from trainer.evaluate.evaluation import Attempts, EvalSettings, MakeAttempt, evaluate
from trainer.evaluate.evaluation_report import NO_PROGRAM, EvalReport, EvalSums, StructureRow, report_of
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
    "MakeAttempt",
    "PassRate",
    "Spread",
    "StructureRow",
    "diversity",
    "evaluate",
    "grouped",
    "mcnemar",
    "mean_interval",
    "pass_rate",
    "report_of",
    "shares",
    "spread",
    "structure_shares",
]
