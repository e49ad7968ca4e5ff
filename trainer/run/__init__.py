"""A training run from its first step to its last: the loop, its folder, its reports, and the dry run before it.

Not here: what a step is made of (`trainer.rollout`, `trainer.credit`, `trainer.update`), and what a terminal shows
(`metaagent.terminal`).
"""

from trainer.run.curves import scalars
from trainer.run.loop import Phase, Watch, train
from trainer.run.planning import Memory, Plan, PolicyPlan, SourcePlan, plan
from trainer.run.run_folder import CHECKPOINTS, CONFIG, METRICS
from trainer.run.sizes import model_size
from trainer.run.step_report import StepReport

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "METRICS",
    "Memory",
    "Phase",
    "Plan",
    "PolicyPlan",
    "SourcePlan",
    "StepReport",
    "Watch",
    "model_size",
    "plan",
    "scalars",
    "train",
]
