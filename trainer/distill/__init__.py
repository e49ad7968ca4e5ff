"""Makes chat rows for supervised fine-tuning: a teacher or the template bank designs, runs are executed and graded, the
right ones become rows.

Not here: learning from them (`trainer.sft`).
"""

from trainer.distill.distill_log import ROWS, DistillReport
from trainer.distill.distillation import DistillSettings, MakeQuestion, Questions, distill

__all__ = [
    "ROWS",
    "DistillReport",
    "DistillSettings",
    "MakeQuestion",
    "Questions",
    "distill",
]
