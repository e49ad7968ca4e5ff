"""The training loop: rollout, credit, update, new weights into the engines, checkpoint; step by step, resumable.

    out/
      config.toml       what the run was started with, or last gone on with
      inputs.json       sha256 of each data file and of a fixed program
      metrics.jsonl     one `StepReport` per step
      traces/step-.../  the Designer's turns and a Trace per execution, from step 0
      checkpoints/      see `trainer.disk.checkpoint`

A step is a function of the configuration, the step's number, the weights and the optimizers; all else (order of the
data, seeds) follows from them, so that a run resumed from a checkpoint repeats what was lost. The loop knows policies
by name and no paper; what it draws on is in the modules beside it. It opens no sandbox and prints nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from engine.local import TransformersEngine
from engine.protocol import LiveEngine
from engine.vllm import VLLMEngine
from sandbox.protocol import Sandbox
from tasks.data import read_as
from trainer.config import PolicyConfig, TrainConfig
from trainer.credit import RewardFunction, active_roles, paper_reward, samples_by_policy
from trainer.disk import checkpoint, metrics_file
from trainer.rollout import Batches, Rollout, Source, derived_seed
from trainer.run.run_folder import CHECKPOINTS, METRICS, TRACES, claim, forget_after, record
from trainer.run.step_report import StepReport, Timings, step_report
from trainer.samples import Sample
from trainer.trees import DesignResult, Execution, QuestionTree
from trainer.update import Backend, UpdateReport

if TYPE_CHECKING:
    from trainer.update import TorchBackend

PROBE_TOKENS = 32
"""Token ids 0, 1, ... that an engine must give the trainer's log-probabilities after each update."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a step is doing now."""

    step: int
    name: str
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Checkpoints that were found damaged when the run was resumed, each with what is wrong."""


Watch = Callable[[Phase | DesignResult | Execution | StepReport], None]


class _State(BaseModel):
    policies: dict[str, int]
    """By name, the version of the weights."""


@dataclass(slots=True)
class _Policy:
    name: str
    config: PolicyConfig
    backend: Backend
    engine: LiveEngine
    version: int = 0

    async def sync(self, version: int) -> None:
        """Give the engine the backend's weights, and have it prove that it serves them."""
        weights = await asyncio.to_thread(self.backend.weights)
        probe = await asyncio.to_thread(self.backend.probe, list(range(PROBE_TOKENS)))
        await self.engine.update_weights(version, weights, probe)
        self.version = version


async def train(
    config: TrainConfig,
    out: Path,
    sandbox: Sandbox,
    *,
    resume: bool = False,
    watch: Watch = lambda _: None,
    reward: RewardFunction | None = None,
) -> None:
    """Run or continue a training run in `out` until `config.steps` are done. `reward` is Eq. 10 unless given.

    Raises `RunChanged` where `out` holds another run (or any run, without `resume`), `ModelUnusable` or another
    ValueError for data, a configuration in `out` or a checkpoint that does not fit, `CheckpointError`, `UpdateFailed`,
    `NoTokens`, `EngineFailed` or `SandboxUnavailable`; earlier checkpoints stay, and `resume` goes on from the newest.
    """
    batches = _batches(config)
    program = config.rollout.program.read_text(encoding="utf-8") if config.rollout.program else None
    checkpoints = out / CHECKPOINTS
    async with AsyncExitStack() as stack:
        _torch_backend()  # where torch is missing, the folder is not claimed
        stack.enter_context(checkpoint.writing(checkpoints))
        claim(config, out, resume=resume)
        found = checkpoint.latest(checkpoints)
        start = found.step if found else 0
        policies = {name: _policy(name, config, stack) for name in config.policies}
        versions = found.state(_State).policies if found else dict.fromkeys(policies, 0)
        for policy in policies.values():
            if found is not None:
                watch(Phase(start, f"loading {found.folder.name}", found.passed_over))
                await asyncio.to_thread(policy.backend.load, found.folder / policy.name)
            await policy.sync(versions[policy.name])
        forget_after(out, start)
        record(config, out)
        roles = config.role_policies
        rollout = Rollout(
            config=config.rollout,
            designer=policies[roles["designer"]].engine,
            executor=policies[roles["executor"]].engine,
            sandbox=sandbox,
            reward=reward or partial(paper_reward, format_weight=config.format_weight),
            program=program,
            watch=watch,
        )
        for step in range(start, config.steps):
            report = await _step(config, step, batches, policies, rollout, out, watch)
            # Before the checkpoint: what is written twice is cut off on resuming, what is not written would be missing.
            metrics_file.append(out / METRICS, report)
            watch(report)
            done = step + 1
            if done % config.checkpoint_every == 0 or done == config.steps:
                watch(Phase(step, "saving"))
                state = _State(policies={name: policy.version for name, policy in policies.items()})
                await _to_its_end(
                    asyncio.to_thread(
                        checkpoint.save, checkpoints, done, partial(_write, policies), state, config.checkpoints_kept
                    )
                )


async def _step(
    config: TrainConfig,
    step: int,
    batches: Batches,
    policies: dict[str, _Policy],
    rollout: Rollout,
    out: Path,
    watch: Watch,
) -> StepReport:
    began = time.perf_counter()
    active = active_roles(step, config.schedule, config.stage_length)
    watch(Phase(step, "rollout"))
    trees = await rollout.step(
        batches.at(step), derived_seed(config.seed, "rollout", step), out / TRACES / f"step-{step:06}"
    )
    rolled = time.perf_counter()
    _check_versions(trees, {role: policies[name] for role, name in config.role_policies.items()})
    updates: dict[str, UpdateReport] = {}
    for name, samples in samples_by_policy(trees, config.credit, config.role_policies, active).items():
        watch(Phase(step, f"updating {name}"))
        dealt = _shuffled(samples, derived_seed(config.seed, "deal", step, name))
        policies[name].backend.learning_rate = config.learning_rate(name, active)
        updates[name] = await asyncio.to_thread(policies[name].backend.update, dealt, config.objective)
    updated = time.perf_counter()
    for name, update in updates.items():
        if update.steps:
            watch(Phase(step, f"new weights for {name}"))
            await policies[name].sync(step + 1)
    synced = time.perf_counter()
    report = step_report(
        step,
        sorted(active),
        trees,
        config.credit,
        updates,
        {name: policy.version for name, policy in policies.items()},
        Timings(
            rollout_s=round(rolled - began, 3), update_s=round(updated - rolled, 3), sync_s=round(synced - updated, 3)
        ),
    )
    tokens = sum(usage.completion_tokens for usage in report.usage.values())
    report.timings.tokens_per_s = round(tokens / (synced - began), 1)
    return report


def _torch_backend() -> type[TorchBackend]:
    from trainer.update import TorchBackend

    return TorchBackend


def _policy(name: str, config: TrainConfig, stack: AsyncExitStack) -> _Policy:
    settings = config.policies[name]
    backend = _torch_backend()(
        settings.model,
        learning_rate=settings.learning_rate,
        device=settings.device,
        dtype=settings.dtype,
        lora=settings.lora,
        gradient_checkpointing=settings.gradient_checkpointing,
        max_tokens_per_micro_batch=settings.max_tokens_per_micro_batch,
        shared_prompts=settings.shared_prompts,
        max_gradient_norm=settings.max_gradient_norm,
        weight_decay=settings.weight_decay,
        keeps_reference=config.objective.kl_coefficient > 0,
        seed=derived_seed(config.seed, "policy", name),
    )
    stack.callback(backend.close)
    engine = _engine(settings, config.rollout.max_prompt_tokens + config.rollout.max_tokens)
    stack.push_async_callback(engine.close)
    return _Policy(name, settings, backend, engine)


def _engine(policy: PolicyConfig, context: int) -> LiveEngine:
    settings = policy.engine
    if settings.kind == "vllm":
        options = {"dtype": settings.dtype, "max_model_len": context, **settings.options}
        return VLLMEngine(policy.model, thinking=settings.thinking, max_concurrency=settings.max_batch, options=options)
    return TransformersEngine(
        policy.model,
        policy.device,
        settings.dtype,
        thinking=settings.thinking,
        max_batch=settings.max_batch,
        max_context=context,
    )


def _batches(config: TrainConfig) -> Batches:
    sources = [
        Source(f"{each.format}:{each.path.name}", read_as(each.format, each.path), each.share) for each in config.data
    ]
    return Batches(sources, config.rollout.questions, config.seed)


def _write(policies: dict[str, _Policy], folder: Path) -> None:
    for name, policy in policies.items():
        (folder / name).mkdir()
        policy.backend.save(folder / name)


async def _to_its_end(work: Coroutine[None, None, object]) -> None:
    """Wait for work also when this is cancelled meanwhile, before what it uses is closed."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def _shuffled(samples: Sequence[Sample], seed: int) -> list[Sample]:
    dealt = list(samples)
    random.Random(seed).shuffle(dealt)
    return dealt


def _check_versions(trees: Sequence[QuestionTree], policies: dict[str, _Policy]) -> None:
    """Every trajectory must come from the weights that are about to be updated."""
    for design in (design for tree in trees for design in tree.designs):
        for trajectory in [*design.trajectories, *(t for run in design.executions for t in run.trajectories)]:
            policy = policies[trajectory.role]
            if trajectory.weights_version != policy.version:
                raise RuntimeError(
                    f"a trajectory of {trajectory.coordinates} was drawn with weights {trajectory.weights_version} of "
                    f"{policy.name}, whose weights are {policy.version}"
                )
