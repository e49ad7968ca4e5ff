"""Measures policies: k attempts at each problem, pass rates with intervals, structures, costs.

Not here: anything that trains; the command is `metaagent.commands.eval`.
"""

from trainer.evaluate.attempts import RESULTS, Attempt
from trainer.evaluate.evaluation import Attempts, EvalSettings, MakeAttempt, evaluate
from trainer.evaluate.evaluation_report import EvalReport, report_of
from trainer.evaluate.metrics import Diversity, PassRate, Spread, diversity, shares, spread, structure_shares

__all__ = [
    "RESULTS",
    "Attempt",
    "Attempts",
    "Diversity",
    "EvalReport",
    "EvalSettings",
    "MakeAttempt",
    "PassRate",
    "Spread",
    "diversity",
    "evaluate",
    "report_of",
    "shares",
    "spread",
    "structure_shares",
]
