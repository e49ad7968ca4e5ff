"""The page of a training run, and of its steps.

Not here: its traces, which are shown by `viewer.runs`.
"""

from viewer.training.training_site import TrainingSite

__all__ = ["TrainingSite"]
