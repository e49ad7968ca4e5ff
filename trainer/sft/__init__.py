"""Supervised fine-tuning: chat rows to samples, and the loop of epochs, which trains models of values, too.

Not here: where rows come from (`trainer.distill`), losses and optimizers (`trainer.update`).
"""

from trainer.sft.chat_rows import ChatRow, read_rows
from trainer.sft.chat_samples import samples_of_rows
from trainer.sft.epochs import METRICS, MODEL, EpochMetrics, EpochSettings, EpochState, Lesson, run_epochs
from trainer.sft.fine_tuning import SFTResult, SFTSettings, StepMetrics, Watch, train

__all__ = [
    "METRICS",
    "MODEL",
    "ChatRow",
    "EpochMetrics",
    "EpochSettings",
    "EpochState",
    "Lesson",
    "SFTResult",
    "SFTSettings",
    "StepMetrics",
    "Watch",
    "read_rows",
    "run_epochs",
    "samples_of_rows",
    "train",
]
