"""Supervised fine-tuning: chat rows to samples, and the loop over a backend.

Not here: where rows come from (`trainer.distill`), losses and optimizers (`trainer.update`).
"""

from trainer.sft.chat_rows import ChatRow, read_rows
from trainer.sft.chat_samples import samples_of_rows
from trainer.sft.fine_tuning import METRICS, MODEL, SFTResult, SFTSettings, StepMetrics, Watch, train

__all__ = [
    "METRICS",
    "MODEL",
    "ChatRow",
    "SFTResult",
    "SFTSettings",
    "StepMetrics",
    "Watch",
    "read_rows",
    "samples_of_rows",
    "train",
]
