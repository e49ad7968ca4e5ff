"""A training run from its first step to its last: the loop, its folder, its reports, and the dry run before it.

Not here: what a step is made of (`trainer.rollout`, `trainer.credit`, `trainer.update`), and what a terminal shows
(`metaagent.terminal`).
"""

from trainer.run.cast import check_program, fixed_program
from trainer.run.curves import scalars
from trainer.run.gpus import GPUS, Gpu
from trainer.run.loop import train
from trainer.run.memory import BadOption, Memory, engine_number_bytes, trained_parameters
from trainer.run.needs import ClusterNeeds, GpuNeeds, PolicyNeeds, known_sizes, needs_on
from trainer.run.one_process import OneProcess, local_engine
from trainer.run.planning import Plan, PolicyPlan, SamplePlan, SourcePlan, plan
from trainer.run.run_folder import CHECKPOINTS, CONFIG, METRICS, TRACES
from trainer.run.runtime import (
    PROBE_TOKENS,
    Lesson,
    Phase,
    Runtime,
    StepsLost,
    Watch,
    backend_settings,
    vllm_options,
    write_each,
)
from trainer.run.sizes import NUMBER_BYTES, ModelSize, UnknownSize, model_folder, model_size
from trainer.run.step_report import StepReport, SyncReport, Timings, generated_tokens, step_report

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "GPUS",
    "METRICS",
    "NUMBER_BYTES",
    "PROBE_TOKENS",
    "TRACES",
    "BadOption",
    "ClusterNeeds",
    "Gpu",
    "GpuNeeds",
    "Lesson",
    "Memory",
    "ModelSize",
    "OneProcess",
    "Phase",
    "Plan",
    "PolicyNeeds",
    "PolicyPlan",
    "Runtime",
    "SamplePlan",
    "SourcePlan",
    "StepReport",
    "StepsLost",
    "SyncReport",
    "Timings",
    "UnknownSize",
    "Watch",
    "backend_settings",
    "check_program",
    "engine_number_bytes",
    "fixed_program",
    "generated_tokens",
    "known_sizes",
    "local_engine",
    "model_folder",
    "model_size",
    "needs_on",
    "plan",
    "scalars",
    "step_report",
    "train",
    "trained_parameters",
    "vllm_options",
    "write_each",
]
