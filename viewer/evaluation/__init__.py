"""The page of an evaluation, its attempts, and what has changed between two.

Not here: measuring, which is the business of `trainer.evaluate`, and the pages of runs (`viewer.run`).
"""

from viewer.evaluation.evaluation_site import EvaluationSite

__all__ = ["EvaluationSite"]
