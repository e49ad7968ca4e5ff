"""The runtime of one process: plain torch updates, an engine beside it, one sandbox. No Ray.

What it does for a step is said in `trainer.run.runtime`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.by_agent import ByAgent
from engine.local import TransformersEngine
from engine.protocol import Engine, LiveEngine
from engine.vllm import Transfer, VLLMEngine
from sandbox.protocol import Sandbox
from search.scoring import Scorer
from tasks.problems import Problem
from trainer.config import PolicyConfig, TrainConfig
from trainer.credit import SINGLE_TURNS, RewardFunction, paper_reward
from trainer.disk import Written
from trainer.rollout import Rollout
from trainer.run.cast import check_program, fixed_program
from trainer.run.runtime import PROBE_TOKENS, Lesson, StepsLost, Watch, backend_settings, vllm_options, write_each
from trainer.run.step_report import SyncReport
from trainer.trees import QuestionTree
from trainer.update import Backend, UpdateReport
from trainer.values import value_reward

WEIGHTS_S = 1800.0
"""For new weights to go into an engine, after what was asked before."""

if TYPE_CHECKING:
    from trainer.update import TorchBackend


@dataclass(slots=True)
class _Policy:
    backend: Backend
    engine: LiveEngine


class OneProcess:
    """See `trainer.run.runtime.Runtime`. `reward` is Eq. 10 unless given."""

    def __init__(self, config: TrainConfig, sandbox: Sandbox, *, reward: RewardFunction | None = None) -> None:
        self.config = config
        self._sandbox = sandbox
        self._reward = reward or partial(paper_reward, format_weight=config.format_weight)
        self._policies: dict[str, _Policy] = {}
        self._watch: Watch = lambda _: None
        self._turn_reward = config.reward.of_turns

    def check(self) -> None:
        layout = self.config.cluster.layout
        if layout != "one-process":
            raise ValueError(
                f'cluster.layout = "{layout}" is not for one process. Fix: cluster.layout = "one-process", or the '
                "runtime of a cluster"
            )
        _torch_backend()

    @asynccontextmanager
    async def opened(self, watch: Watch, out: Path) -> AsyncIterator[None]:
        self._watch = watch
        await check_program(self.config, self._sandbox)
        async with AsyncExitStack() as stack:
            for name in self.config.policies:
                self._policies[name] = _policy(name, self.config, stack)
            if self.config.reward.prm is not None:
                scorer = _scorer(self.config.reward.prm)
                stack.push_async_callback(scorer.close)
                self._turn_reward = value_reward(scorer)
            yield

    async def load(self, folder: Path) -> None:
        for name, policy in self._policies.items():
            await asyncio.to_thread(policy.backend.load, folder / name)

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        config, roles = self.config.rollout, self.config.roles
        executor: Engine = self._policies[roles.executor].engine
        if roles.agents:
            own = {agent: self._policies[name].engine for agent, name in roles.agents.items()}
            executor = ByAgent(own, executor)
        rollout = Rollout(
            config=config,
            designer=self._policies[roles.designer].engine,
            executor=executor,
            sandbox=self._sandbox,
            reward=self._reward,
            turn_reward=self._turn_reward,
            program=fixed_program(self.config),
            single_turns=self.config.credit in SINGLE_TURNS,
            watch=self._watch,
        )
        return await rollout.step(problems, seed, folder)

    async def update(self, lessons: Mapping[str, Lesson]) -> dict[str, UpdateReport]:
        reports = {}
        for name, lesson in lessons.items():
            backend = self._policies[name].backend
            backend.learning_rate = lesson.learning_rate
            reports[name] = await asyncio.to_thread(backend.update, lesson.samples, lesson.objective)
        return reports

    async def sync(self, versions: Mapping[str, int]) -> dict[str, SyncReport]:
        reports = {}
        for name, version in versions.items():
            began, policy = time.perf_counter(), self._policies[name]
            weights = await asyncio.to_thread(policy.backend.weights)
            probe = await asyncio.to_thread(policy.backend.probe, list(range(PROBE_TOKENS)))
            await policy.engine.update_weights(version, weights, probe)
            reports[name] = SyncReport(
                version=version,
                bytes=sum(tensor.nbytes for tensor in weights.values()),
                seconds=round(time.perf_counter() - began, 3),
                gap=policy.engine.probe_gap,
                device=next(iter(weights.values())).device.type,
            )
        return reports

    async def snapshot(self) -> Callable[[Path], Iterable[Written]]:
        policies = self._policies
        copies = {name: await asyncio.to_thread(policy.backend.snapshot) for name, policy in policies.items()}
        return partial(write_each, copies)

    async def recover(self, lost: StepsLost) -> None:
        raise lost

    async def idle_s(self) -> dict[str, float]:
        return {}


def _scorer(folder: Path) -> Scorer:
    """Raises `ScorerRefused`, a ValueError."""
    from trainer.values import TorchScorer

    return TorchScorer.load(folder)


def _torch_backend() -> type[TorchBackend]:
    from trainer.update import TorchBackend

    return TorchBackend


def _policy(name: str, config: TrainConfig, stack: AsyncExitStack) -> _Policy:
    settings = config.policies[name]
    backend = _torch_backend()(settings.model, **backend_settings(name, settings, config))  # pyright: ignore[reportArgumentType]
    stack.callback(backend.close)
    rollout = config.rollout
    engine = local_engine(settings, rollout.max_prompt_tokens + rollout.max_tokens, rollout.limits.reply_s)
    stack.push_async_callback(engine.close)
    return _Policy(backend, engine)


def local_engine(
    policy: PolicyConfig, context: int | None, reply_s: float, transfer: Transfer | None = None
) -> LiveEngine:
    """An engine in this process, for prompts and completions of `context` tokens together; None is the model's own.
    It fails where a reply, or new weights, take longer than `reply_s` seconds and than `WEIGHTS_S`. `transfer` is how
    vLLM is to take weights from other processes."""
    settings = policy.engine
    timeout_s = max(reply_s, WEIGHTS_S)
    if settings.kind == "vllm":
        return VLLMEngine(
            policy.model,
            thinking=settings.thinking,
            max_concurrency=settings.max_batch,
            options=vllm_options(settings, context),
            timeout_s=timeout_s,
            transfer=transfer,
        )
    return TransformersEngine(
        policy.model,
        policy.device,
        settings.dtype,
        thinking=settings.thinking,
        max_batch=settings.max_batch,
        max_context=context,
        timeout_s=timeout_s,
    )
