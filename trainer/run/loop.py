"""The training loop: rollout, credit, update, new weights into the engines, checkpoint; step by step, resumable.

    out/
      config.toml       what the run was started with, or last gone on with
      inputs.json       sha256 of each data file and of a fixed program
      metrics.jsonl     one `StepReport` per step
      traces/step-.../  the Designer's turns and a Trace per execution, of the last `traces_kept` steps
      checkpoints/      see `trainer.disk.checkpoint`

A step is a function of the configuration, the step's number, the weights and the optimizers; all else (order of the
data, seeds) follows from them, so that a run resumed from a checkpoint repeats what was lost. With a staleness of S,
step t is rolled out with the weights of step max(0, t - S), always, while earlier steps update; then the rollouts that
wait for their update are part of a checkpoint. A checkpoint is copied between an update and its sync, and written
while the steps go on. The loop knows policies by name and no paper; who does the work is a
`Runtime`'s business. It opens no sandbox and prints nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tasks.data import read_as
from trainer.config import TrainConfig
from trainer.credit import active_roles, samples_by_policy
from trainer.disk import CheckpointError, CheckpointWriter, Written, checkpoint, metrics_file, read_records, to_its_end
from trainer.rollout import Batches, Source, derived_seed
from trainer.run import pending
from trainer.run.run_folder import CHECKPOINTS, METRICS, TRACES, claim, forget_after, prune_traces, record
from trainer.run.runtime import Lesson, Phase, Runtime, StepsLost, Versions, Watch
from trainer.run.step_report import StepReport, Timings, generated_tokens, step_report, usage_by_role
from trainer.samples import Sample
from trainer.trees import QuestionTree
from trainer.update import UpdateReport
from workflow.failures import EngineFailed
from workflow.usage import PolicyRole

One = TypeVar("One")
Other = TypeVar("Other")
Policies = Callable[[Path], Iterable[Written]]
"""What writes all of them as they were, see `Runtime.snapshot`."""


async def train(
    runtime: Runtime,
    out: Path,
    *,
    resume: bool = False,
    watch: Watch = lambda _: None,
) -> None:
    """Run or continue `runtime.config` in `out` until its `steps` are done, or its `generated_tokens` generated.

    Raises `RunChanged` where `out` holds another run (or any run, without `resume`), `ModelUnusable` or another
    ValueError for data, a configuration in `out` or a checkpoint that does not fit, `CheckpointError`, `UpdateFailed`,
    `NoTokens`, `EngineFailed` or `SandboxUnavailable`; earlier checkpoints stay, and `resume` goes on from the newest.
    """
    config = runtime.config
    batches = _batches(config)
    with ExitStack() as stack:
        runtime.check()
        stack.enter_context(checkpoint.writing(out / CHECKPOINTS))
        claim(config, out, resume=resume)
        writer = CheckpointWriter(out / CHECKPOINTS, config.checkpoints_kept)
        async with runtime.opened(watch, out), writer:
            run = _Run(runtime, out, batches, watch, writer)
            lost: StepsLost | None = None
            while True:
                try:
                    await run.restore(lost)
                    await run.to_the_end()
                    return
                except StepsLost as error:
                    lost = error  # and again, as long as the runtime recovers


@dataclass(slots=True)
class _Run:
    """A run between two steps."""

    runtime: Runtime
    out: Path
    batches: Batches
    watch: Watch
    writer: CheckpointWriter
    step: int = 0
    """The next one to update."""
    versions: dict[str, int] = field(default_factory=dict)
    """By policy: of the weights that its engines have."""
    ahead: deque[list[QuestionTree]] = field(default_factory=deque)
    """Rollouts of the steps from `step` on that wait for their update; as many as the staleness."""
    begun: int = -1
    """The checkpoint's step that was last gone on from."""
    returns: int = 0
    """To it, in a row."""
    generated: int = 0
    """Tokens, by the roles that learned, in the steps before `step`; counted where there is a budget."""

    @property
    def config(self) -> TrainConfig:
        return self.runtime.config

    async def restore(self, lost: StepsLost | None) -> None:
        """Begin where the newest checkpoint ends, or at step 0."""
        if lost is not None:
            self.watch(Phase(self.step, f"going back to the last checkpoint: {lost}"))
            self.returns += 1
            if self.returns > self.config.cluster.restarts_per_hour:
                raise EngineFailed(
                    "cluster",
                    f"the steps after checkpoint {self.begun} were lost {self.returns} times in a row, more than "
                    f"cluster.restarts_per_hour={self.config.cluster.restarts_per_hour}: {lost}. Fix: what that says; "
                    "then --resume",
                )
            await self.runtime.recover(lost)
            with contextlib.suppress(StepsLost):  # what was being written is lost with the steps
                await self._written()
        found = await asyncio.to_thread(checkpoint.latest, self.out / CHECKPOINTS)
        self.step, self.ahead = 0, deque()
        self.versions = dict.fromkeys(self.config.policies, 0)
        begun = 0 if found is None else found.step
        if begun != self.begun:
            self.returns, self.begun = 0, begun
        if found is not None:
            self.step, self.versions = found.step, dict(found.state(Versions).policies)
            self.watch(Phase(self.step, f"loading {found.folder.name}", found.passed_over))
            await self.runtime.load(found.folder)
            self.ahead.extend(pending.read(found.folder, self.config.cluster.staleness))
        await self.runtime.sync(self.versions)
        forget_after(self.out, self.step, rolled_out=self.step + len(self.ahead))
        self.generated = 0 if self.config.generated_tokens is None else _generated(self.out / METRICS)
        record(self.config, self.out)

    async def to_the_end(self) -> None:
        config = self.config
        if self._over_at(self.step):
            return
        await self.runtime.idle_s()
        while len(self.ahead) < config.cluster.staleness:
            self.ahead.append(await self._rollout(self.step + len(self.ahead)))
        while not self._over_at(self.step):
            report, policies = await self._step()
            # Before the checkpoint: what is written twice is cut off on resuming, what is not written would be missing.
            metrics_file.append(self.out / METRICS, report)
            self.watch(report)
            await asyncio.to_thread(prune_traces, self.out, self.step, config.traces_kept)
            self.step += 1
            with _losses_told():
                self.writer.check()
                if policies is not None:
                    write = partial(_checkpoint, policies, list(self.ahead))
                    self.writer.begin(self.step, write, Versions(policies=self.versions))
        await self._written()

    def _over_at(self, step: int) -> bool:
        """Whether training has ended before this step: by its number, or by what was generated up to it."""
        budget = self.config.generated_tokens
        return step >= self.config.steps or (budget is not None and self.generated >= budget)

    async def _written(self) -> None:
        """Wait for the checkpoint that is being written."""
        with _losses_told():
            await self.writer.wait()

    async def _copied(self) -> Policies:
        """The policies as they are, for a checkpoint; there is never more than one copy."""
        self.watch(Phase(self.step, "saving"))
        await self._written()
        copying = asyncio.ensure_future(self.runtime.snapshot())
        await to_its_end(copying)
        return copying.result()

    async def _rollout(self, step: int) -> list[QuestionTree]:
        self.watch(Phase(step, "rollout"))
        seed = derived_seed(self.config.seed, "rollout", step)
        trees = await self.runtime.rollout(self.batches.at(step), seed, self.out / TRACES / f"step-{step:06}")
        _check_versions(trees, lambda role, agent: self.versions[self.config.policy_of(role, agent)])
        return trees

    async def _step(self) -> tuple[StepReport, Policies | None]:
        """One step: its rollout, where it is not ahead already, its update, beside which the rollout of a later step
        may run, and new weights. Returns the policies too, where a checkpoint is due."""
        config, step, began = self.config, self.step, time.perf_counter()
        rollout_s = 0.0
        if not config.cluster.staleness:
            self.ahead.append(await self._rollout(step))
            rollout_s = time.perf_counter() - began
        active = active_roles(step, config.schedule, config.stage_length)
        samples = samples_by_policy(
            self.ahead[0],
            config.credit,
            config.role_policies,
            active,
            anchored=config.kl_roles == "all",
            agents=config.roles.agents,
        )
        lessons = {
            name: Lesson(
                _shuffled(each, derived_seed(config.seed, "deal", step, name)),
                config.learning_rate(name, active),
                config.objective_of(name, active),
            )
            for name, each in samples.items()
        }

        async def update() -> tuple[dict[str, UpdateReport], float]:
            for name in lessons:
                self.watch(Phase(step, f"updating {name}"))
            at = time.perf_counter()
            return await self.runtime.update(lessons), time.perf_counter() - at

        async def later() -> tuple[list[QuestionTree], float]:
            at = time.perf_counter()
            return await self._rollout(step + config.cluster.staleness), time.perf_counter() - at

        if config.cluster.staleness:
            (updates, update_s), (trees, rollout_s) = await _side_by_side(update(), later())
            self.ahead.append(trees)
        else:
            updates, update_s = await update()
        learned = self.ahead.popleft()
        self.generated += generated_tokens(usage_by_role(learned), active)
        copied = time.perf_counter()
        due = (step + 1) % config.checkpoint_every == 0 or self._over_at(step + 1)
        policies = await self._copied() if due else None
        synced = time.perf_counter()
        changed = {name: step + 1 for name, update in updates.items() if update.steps}
        for name in changed:
            self.watch(Phase(step, f"new weights for {name}"))
        syncs = await self.runtime.sync(changed) if changed else {}
        self.versions |= changed
        done = time.perf_counter()
        report = step_report(
            step,
            sorted(active),
            learned,
            config.credit,
            updates,
            self.versions,
            Timings(
                rollout_s=round(rollout_s, 3),
                update_s=round(update_s, 3),
                save_s=round(synced - copied, 3),
                sync_s=round(done - synced, 3),
                idle_s=await self.runtime.idle_s(),
            ),
            syncs=syncs,
            age=min(step, config.cluster.staleness),
        )
        tokens = sum(usage.completion_tokens for usage in report.usage.values())
        report.timings.tokens_per_s = round(tokens / (done - began), 1)
        return report, policies


@contextlib.contextmanager
def _losses_told() -> Iterator[None]:
    """Steps that were lost while their checkpoint was written are what has failed then."""
    try:
        yield
    except CheckpointError as error:
        raise error.__cause__ if isinstance(error.__cause__, StepsLost) else error from None


def _checkpoint(policies: Policies, ahead: Sequence[list[QuestionTree]], folder: Path) -> Iterable[Written]:
    pending.write(folder, ahead)
    return policies(folder)


def _generated(metrics: Path) -> int:
    if not metrics.exists():
        return 0
    return sum(generated_tokens(report.usage, report.active) for _, report in read_records(metrics, StepReport))


def _batches(config: TrainConfig) -> Batches:
    sources = [
        Source(f"{each.format}:{each.path.name}", read_as(each.format, each.path), each.share) for each in config.data
    ]
    return Batches(sources, config.rollout.questions, config.seed)


async def _side_by_side(one: Coroutine[Any, Any, One], other: Coroutine[Any, Any, Other]) -> tuple[One, Other]:
    """What both return. Fails one, the other is stopped, and the failure raised."""
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        await asyncio.gather(first, second)
        return first.result(), second.result()
    finally:
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


def _shuffled(samples: Sequence[Sample], seed: int) -> list[Sample]:
    dealt = list(samples)
    random.Random(seed).shuffle(dealt)
    return dealt


def _check_versions(trees: Sequence[QuestionTree], version: Callable[[PolicyRole, str], int]) -> None:
    """Every trajectory must come from the weights that its policy was to be rolled out with: `version` by role and
    agent."""
    for design in (design for tree in trees for design in tree.designs):
        drawn = [t for run in design.executions for t in run.trajectories]
        drawn += [candidate.trajectory for run in design.executions for candidate in run.candidates]
        for trajectory in [*design.trajectories, *drawn]:
            expected = version(trajectory.role, trajectory.coordinates.agent)
            if trajectory.weights_version != expected:
                raise RuntimeError(
                    f"a trajectory of {trajectory.coordinates} was drawn with {trajectory.weights_version}, not "
                    f"with weights {expected}"
                )
