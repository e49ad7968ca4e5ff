"""A training run from its first step to its last: the loop, its folder, its reports, and the dry run before it.

Not here: what a step is made of (`trainer.rollout`, `trainer.credit`, `trainer.update`), and what a terminal shows
(`metaagent.terminal`).
"""

from trainer.run.curves import scalars
from trainer.run.loop import train
from trainer.run.one_process import OneProcess, local_engine
from trainer.run.planning import Memory, Plan, PolicyPlan, SourcePlan, plan
from trainer.run.run_folder import CHECKPOINTS, CONFIG, METRICS
from trainer.run.runtime import (
    PROBE_TOKENS,
    Lesson,
    Phase,
    Runtime,
    StepsLost,
    Watch,
    backend_settings,
    vllm_options,
)
from trainer.run.sizes import model_size
from trainer.run.step_report import StepReport, SyncReport

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "METRICS",
    "PROBE_TOKENS",
    "Lesson",
    "Memory",
    "OneProcess",
    "Phase",
    "Plan",
    "PolicyPlan",
    "Runtime",
    "SourcePlan",
    "StepReport",
    "StepsLost",
    "SyncReport",
    "Watch",
    "backend_settings",
    "local_engine",
    "model_size",
    "plan",
    "scalars",
    "train",
    "vllm_options",
]
