"""Measures policies: k attempts at each problem, pass rates with intervals, structures, costs.

Not here: anything that trains; the command is `metaagent.commands.eval`.
"""

from trainer.evaluate.attempts import RESULTS, Attempt
from trainer.evaluate.evaluation import EvalSettings, evaluate
from trainer.evaluate.evaluation_report import EvalReport, report_of
from trainer.evaluate.metrics import Diversity, PassRate, Spread, diversity, shares, spread, structure_shares

__all__ = [
    "RESULTS",
    "Attempt",
    "Diversity",
    "EvalReport",
    "EvalSettings",
    "PassRate",
    "Spread",
    "diversity",
    "evaluate",
    "report_of",
    "shares",
    "spread",
    "structure_shares",
]
