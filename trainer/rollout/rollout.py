"""The rollout tree (MetaAgent-X, section 3.2): for each question M designs, for each design N executions, all at once.

Runs are paced, never dropped: at most `max_concurrent` are under way, slow ones end by their limits, and every bad end
is data. What fails in the engine or the sandbox itself is tried again, then stops the step loudly. Traces go to disk
event by event; in memory stays only what training needs. Nothing here computes advantages or touches weights.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from designer.sample import Design, sample_designs
from engine.guarded import MINDS_S, forgotten
from engine.protocol import Engine
from engine.retries import retried
from engine.session import Run
from sandbox.protocol import Sandbox
from search import Branching, Decision, OpenRuns, jailed
from search.branching import Position
from tasks.environments import begins
from tasks.problems import Problem
from trainer.config import RolloutConfig
from trainer.credit import RewardFunction, TurnReward
from trainer.rollout.trace_file import TraceFile, writing
from trainer.rollout.turn_sampling import TurnSampling
from trainer.samples import designer_trajectories, executor_trajectories
from trainer.trees import DesignResult, Execution, QuestionTree
from workflow.completion import Sampling
from workflow.failures import EngineFailed, Failure, LimitExceeded, SandboxUnavailable, raise_infrastructure
from workflow.trace import Rewarded, RewardTerm

REWARD_S = 3600.0
"""Beyond which a reward, or what it asks, hangs: a hundred tests of ten processor seconds take less."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What every step of a training run has in common. `watch` is told of each design and each execution that is
    done; `program` is the source of `config.program`."""

    config: RolloutConfig
    designer: Engine
    executor: Engine
    sandbox: Sandbox
    reward: RewardFunction
    program: str | None = None
    watch: Callable[[DesignResult | Execution], None] = lambda _: None
    turn_reward: TurnReward | None = None
    """Of single turns, where these are rewarded: of the replies to each call at which a run parts, or else of all."""
    single_turns: bool = False
    """Whether each turn of an agent is a trajectory by itself."""
    engine_of_run: Callable[[Engine, int], Engine] = lambda engine, seed: engine
    """What a run with this seed asks, where several engines stand behind one name."""
    open_runs: OpenRuns | None = field(init=False)
    """Of all questions together, where turns are sampled or scored one by one."""

    def __post_init__(self) -> None:
        open_runs = None
        if self.config.branching is not None:
            open_runs = OpenRuns(self.config.branching.max_open)
        elif self.turn_reward is not None:  # runs that do not part are never dropped, as far as there are jails
            open_runs = OpenRuns(min(self.config.max_concurrent, self.sandbox.max_jails))
        object.__setattr__(self, "open_runs", open_runs)

    async def step(self, problems: Sequence[Problem], seed: int, folder: Path | None = None) -> list[QuestionTree]:
        """One tree per problem, in their order. `folder` gets a subfolder per problem with the Designer's turns and a
        Trace per execution. Raises `EngineFailed` or `SandboxUnavailable` when retries did not help, `NoTokens`, and
        OSError for what cannot be written; everything else is stopped then."""
        turns = asyncio.Semaphore(self.config.max_concurrent)
        questions = [
            Question(self, problem, seed, question_folder(folder, number), turns)
            for number, problem in enumerate(problems)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(question.grow()) for question in questions]
        except ExceptionGroup as failures:
            raise first_failure(failures) from None
        return [task.result() for task in tasks]


def question_folder(folder: Path | None, number: int) -> Path | None:
    """Where the traces of a step's question `number` go."""
    return None if folder is None else folder / f"question-{number:04}"


class Question:
    """One question's tree while it grows: all of it (`grow`), or its designs and then each of them, which may be in
    several processes. At most as many runs as `turns` has are under way."""

    def __init__(
        self, rollout: Rollout, problem: Problem, seed: int, folder: Path | None, turns: asyncio.Semaphore
    ) -> None:
        self.rollout, self.config = rollout, rollout.config
        self.problem, self.seed, self.folder, self.turns = problem, seed, folder, turns

    async def grow(self) -> QuestionTree:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.design(design)) for design in await self.designs()]
        return QuestionTree(problem=self.problem, designs=[task.result() for task in tasks])

    async def designs(self) -> list[Design]:
        """M of them, or the program that is given M times."""
        if self.folder is not None:
            with writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
        if self.rollout.program is not None:
            return [Design(index=index, source=self.rollout.program) for index in range(self.config.designs)]
        sampling = Sampling(
            temperature=self.config.designer_temperature, max_tokens=self.config.max_tokens, logprobs=True
        )

        seed = derived_seed(self.seed, self.problem.id, "designer")

        async def sample() -> list[Design]:
            async with self.turns:
                designs = await sample_designs(
                    self.problem.question,
                    self.rollout.engine_of_run(self.rollout.designer, seed),
                    self.rollout.sandbox,
                    m=self.config.designs,
                    sampling=sampling,
                    style=self.config.style,
                    repair=self.config.repair,
                    seed=seed,
                    reply_s=self.config.limits.reply_s,
                )
            for design in designs:
                if design.error is not None and design.error.is_infrastructure:
                    raise EngineFailed(self.rollout.designer.name, design.error.message)
            return designs

        try:
            return await self._retried(sample)
        except LimitExceeded as outgrown:  # the prompt alone is too long for the model: nothing can be designed
            return [Design(index=index, error=outgrown.record()) for index in range(self.config.designs)]

    async def design(self, design: Design) -> DesignResult:
        """A design with its N executions."""
        place = None if self.folder is None else self.folder / f"design-{design.index:02}.json"
        if place is not None and design.turns:
            with writing(place):
                place.write_text(design.model_dump_json(indent=1), encoding="utf-8")
        turns = ((turn.completion, turn.request.sampling) for turn in design.turns)
        trajectories = designer_trajectories(turns, question=self.problem.id, design=design.index)
        usage = design.usage
        design = design.model_copy(update={"turns": []})  # prompts and replies are on disk, and the runs take long
        if design.error is not None or design.source is None:
            failure = design.error or Failure(kind="program_rejected", message="there is no program")
            executions = [not_run(index, failure) for index in range(self.config.executions)]
        else:
            source = design.source
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._retried(lambda index=index: self._execution(design.index, source, index)))
                    for index in range(self.config.executions)
                ]
            executions = [task.result() for task in tasks]
        result = DesignResult(
            index=design.index,
            program=design.source,
            graph=design.graph,
            failure=None if design.error is None else design.error.kind,
            trajectories=trajectories,
            executions=executions,
            usage=usage,
        )
        self.rollout.watch(result)
        return result

    async def _execution(self, design: int, program: str, index: int) -> Execution:
        sampling = Sampling(
            temperature=self.config.executor_temperature, max_tokens=self.config.max_tokens, logprobs=True
        )
        name = f"design-{design:02}-execution-{index:02}.jsonl"
        trace = TraceFile(None if self.folder is None else self.folder / name)
        seed = derived_seed(self.seed, self.problem.id, design, index)
        if self.rollout.open_runs is not None:
            return await self._turn_by_turn(design, program, index, sampling, seed, trace)
        async with self.turns:
            run = await self.rollout.sandbox.run_program(
                program,
                self.problem.question,
                engine=self.rollout.engine_of_run(self.rollout.executor, seed),
                limits=self.config.limits,
                sampling=sampling,
                seed=seed,
                sink=trace,
                game=begins(self.problem),
            )
            raise_infrastructure(run.failure)
            reward = await self._rewarded(run)
        trace(reward)
        execution = Execution(
            index=index,
            reward=reward,
            failure=None if run.failure is None else run.failure.kind,
            trajectories=executor_trajectories(
                run.trace.agent_turns,
                question=self.problem.id,
                design=design,
                execution=index,
                single_turns=self.rollout.single_turns,
            ),
            usage=run.usage,
            duration_s=run.duration_s,
        )
        self.rollout.watch(execution)
        return execution

    async def _turn_by_turn(
        self, design: int, program: str, index: int, sampling: Sampling, seed: int, trace: TraceFile
    ) -> Execution:
        """An execution that parts at agents' calls, or whose turns are scored one by one. What the run itself earned is
        its reward; its candidates have their own."""
        rollout = self.rollout
        asked = jailed(
            rollout.sandbox,
            program,
            self.problem.question,
            limits=self.config.limits,
            sampling=sampling,
            seed=seed,
            game=begins(self.problem),
        )
        executor = rollout.engine_of_run(rollout.executor, seed)

        async def score_turn(decision: Decision, position: Position) -> Rewarded:
            assert rollout.turn_reward is not None
            return await in_time(rollout.turn_reward(self.problem, decision, position, rollout.sandbox))

        async with self.turns:
            sampling_turns = TurnSampling(
                Branching(asked, engine=rollout.executor.name, open_runs=rollout.open_runs),
                executor,
                self.config.branching,
                self._rewarded,
                None if rollout.turn_reward is None else score_turn,
                question=self.problem.id,
                design=design,
                execution=index,
            )
            grown = await sampling_turns.grow()
        run = grown.run
        for event in (*run.trace.events, *grown.events, grown.reward):
            trace(event)
        execution = Execution(
            index=index,
            reward=grown.reward,
            failure=None if run.failure is None else run.failure.kind,
            candidates=grown.candidates,
            usage=grown.usage,
            duration_s=run.duration_s,
        )
        rollout.watch(execution)
        return execution

    async def _rewarded(self, run: Run) -> Rewarded:
        reward = await in_time(self.rollout.reward(self.problem, run, self.rollout.sandbox))
        return replace(reward, timed_out=reward.timed_out or run.timed_out)

    async def _retried(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        return await retried(attempt, self.config.retries)


async def in_time(reward: Awaitable[Rewarded]) -> Rewarded:
    """Raises `SandboxUnavailable` where it has not come within `REWARD_S` seconds, whether or not it minds being
    cancelled."""
    asked = asyncio.ensure_future(reward)
    try:
        await asyncio.wait({asked}, timeout=REWARD_S)
        if asked.done() and not asked.cancelled():
            return asked.result()
    finally:
        if not asked.done():
            asked.cancel()
            asked.add_done_callback(forgotten)
            await asyncio.wait({asked}, timeout=MINDS_S)
    raise SandboxUnavailable(
        f"a reward did not come within {REWARD_S:g} s.", "see what the reward function waits for, and give that a limit"
    )


def not_run(index: int, failure: Failure) -> Execution:
    """The execution of a design that cannot run: reward 0."""
    reason = f"the design cannot run: {failure.kind}"
    terms = [RewardTerm(name="correct", value=0.0, weight=1.0, reason=reason)]
    return Execution(index=index, reward=Rewarded(total=0.0, terms=terms), failure=failure.kind)


def derived_seed(seed: int, *parts: str | int) -> int:
    """A seed in [0, 2^31) for one place in a training run: depends on nothing but its arguments."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) & 0x7FFFFFFF


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, those of groups within it included."""
    first = failures.exceptions[0]
    return first_failure(first) if isinstance(first, BaseExceptionGroup) else first
