"""What carries out the parts of a training step: rollout, update, new weights. One process (`trainer.run.one_process`)
or a cluster (`trainer.cluster`); the loop (`trainer.run.loop`) is the same for both.

A runtime decides nothing: which problems, which samples, which rate and when to save is the loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from tasks.problems import Problem
from trainer.config import EngineConfig, PolicyConfig, TrainConfig
from trainer.disk import Written
from trainer.rollout import derived_seed
from trainer.run.step_report import StepReport, SyncReport
from trainer.samples import Sample
from trainer.trees import DesignResult, Execution, QuestionTree
from trainer.update import PolicyObjective, Snapshot, UpdateReport

PROBE_TOKENS = 32
"""Token ids 0, 1, ... that an engine must give the trainer's log-probabilities after each update."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a step is doing now."""

    step: int
    name: str
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Checkpoints that were found damaged when the run was resumed, each with what is wrong."""
    lines: Sequence[str] = ()
    """What else is to be told, such as what sits on which node."""


Watch = Callable[[Phase | DesignResult | Execution | StepReport], None]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy learns from in one step."""

    samples: Sequence[Sample]
    learning_rate: float
    objective: PolicyObjective


class StepsLost(RuntimeError):
    """Weights were lost with the processes that held them: the loop has the runtime recover, and goes on from its
    newest checkpoint. The message says what was lost."""


class Runtime(Protocol):
    """Policies with their engines and what runs programs. Calls are awaited one at a time, but for a `rollout`, which
    may go on beside an `update`."""

    config: TrainConfig

    def check(self) -> None:
        """Raise what stands in the way of a start, such as a missing package, before a folder is claimed."""
        ...

    def opened(self, watch: Watch, out: Path) -> AbstractAsyncContextManager[None]:
        """Policies are loaded within, and everything is closed afterwards. `watch` is told of designs and executions.
        `out` is the run's folder, for a runtime whose processes are elsewhere to try whether they see it."""
        ...

    async def load(self, folder: Path) -> None:
        """Each policy takes over its part of a checkpoint. The engines do not have it before `sync`."""
        ...

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        """One tree per problem, in their order, with the weights that were last synced; traces below `folder`."""
        ...

    async def update(self, lessons: Mapping[str, Lesson]) -> dict[str, UpdateReport]:
        """By policy. Raises `UpdateFailed`."""
        ...

    async def sync(self, versions: Mapping[str, int]) -> dict[str, SyncReport]:
        """Give the engines of these policies their weights under these versions, and have it proven."""
        ...

    async def snapshot(self) -> Callable[[Path], Iterable[Written]]:
        """Each policy as it is now: what writes it into its part of a checkpoint, in a thread, while all goes on.
        Awaited between an `update` and the `sync` that follows."""
        ...

    async def recover(self, lost: StepsLost) -> None:
        """Make anew what was lost; policies then have the weights of the start, as before a `load`."""
        ...

    async def idle_s(self) -> dict[str, float]:
        """Seconds that each pool of processes had nothing to do since this was last asked, in the mean over the pool's
        processes. Empty where there are no pools."""
        ...


class Versions(BaseModel):
    """A checkpoint's state: by policy, the version of its weights."""

    policies: dict[str, int]


def write_each(snapshots: Mapping[str, Snapshot], folder: Path) -> list[Written]:
    """Each policy into its part of a checkpoint."""
    written = []
    for name, snapshot in snapshots.items():
        (folder / name).mkdir()
        written += snapshot.write(folder / name)
    return written


def backend_settings(name: str, policy: PolicyConfig, config: TrainConfig) -> dict[str, object]:
    """What every update backend is given beside the model."""
    return {
        "learning_rate": policy.learning_rate,
        "device": policy.device,
        "dtype": policy.dtype,
        "lora": policy.lora,
        "gradient_checkpointing": policy.gradient_checkpointing,
        "max_tokens_per_micro_batch": policy.max_tokens_per_micro_batch,
        "shared_prompts": policy.shared_prompts,
        "max_gradient_norm": policy.max_gradient_norm,
        "weight_decay": policy.weight_decay,
        "keeps_reference": config.has_reference,
        "seed": derived_seed(config.seed, "policy", name),
    }


def vllm_options(engine: EngineConfig, context: int | None) -> dict[str, object]:
    """What vLLM is started with; what the configuration says goes before. `context` None is the model's own."""
    length = {} if context is None else {"max_model_len": context}
    parallel: dict[str, object] = {}
    if engine.tensor_parallel > 1:
        # In an actor of Ray's it would choose Ray, whose processes nobody here knows of and could fence.
        parallel = {"tensor_parallel_size": engine.tensor_parallel, "distributed_executor_backend": "mp"}
    return {"dtype": engine.dtype, **length, **parallel, **engine.options}
