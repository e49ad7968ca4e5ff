"""Evaluates policies: k independent attempts at each problem, graded, kept on disk, resumed where they were broken off.

An attempt is a design (by a Designer policy, the template bank, or one given program), one run in the sandbox and its
grade, R_correct of Eq. 10. A bad run is data. What fails in an engine or the sandbox itself is tried again, then stops
the evaluation; what is done is kept. Nothing here trains, sums over attempts are
`trainer.evaluate.evaluation_report`'s, and making them in other processes is `trainer.cluster.spread`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from designer.bank import design_from_bank
from designer.check import check_program
from designer.sample import sample_design
from engine.protocol import Engine
from engine.retries import retried
from engine.session import Run
from sandbox.protocol import Sandbox
from search.methods import AsksNobody, SearchRefused
from search.problem import SearchReport, SearchSettings
from tasks.environments import begins
from tasks.problems import Problem
from trainer.credit import correctness
from trainer.disk import check_ids, check_same, made_by_engine, problem_digest
from trainer.evaluate.attempts import TRACES, Attempt, AttemptLog
from trainer.evaluate.searched import Searcher
from trainer.rollout import TraceFile, derived_seed
from workflow.answers import final_answer
from workflow.completion import Completion, Sampling
from workflow.failures import Failure, ProgramRejected, raise_infrastructure
from workflow.graph import GraphNode, structure
from workflow.limits import Limits
from workflow.trace import EnvironmentStepped
from workflow.usage import PolicyRole, usage_report


class EvalSettings(BaseModel):
    """How attempts are made. Those of one folder agree in everything but `k`, `max_concurrent` and `retries`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    k: int = Field(default=4, ge=1)
    """Attempts per problem."""
    seed: int = Field(default=0, ge=0)
    sampling: Sampling = Sampling()
    """Of the agents of the programs."""
    designer_sampling: Sampling = Sampling()
    style: Literal["full", "short"] = "full"
    """The Designer's prompt: with templates, or as in training."""
    repair: bool = True
    """Whether the Designer may mend a program that fails its check, once."""
    limits: Limits = Limits()
    """Of each run; `reply_s` is for the Designer's replies, too."""
    max_concurrent: int = Field(default=16, ge=1)
    tolerance: float | None = Field(default=None, ge=0, allow_inf_nan=False, exclude_if=lambda value: value is None)
    """See `tasks.Problem`; None is the graders' own."""
    search: SearchSettings | None = Field(default=None, exclude_if=lambda value: value is None)
    """Runs are searched for, by this method; None runs them straight through."""
    retries: int = Field(default=3, ge=0)
    """How often an attempt that failed for infrastructure is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Designed:
    program: str | None = None
    graph: GraphNode | None = None
    template: str | None = None
    failure: Failure | None = None
    replies: list[Completion] = field(default_factory=list)


MakeAttempt = Callable[[Problem, int, Path | None], Awaitable[Attempt]]
"""`await make(problem, number, trace)` is that attempt at the problem; the run's Trace goes into the file `trace`."""


async def evaluate(
    problems: Sequence[Problem],
    *,
    executor: Engine,
    sandbox: Sandbox,
    designer: Engine | None = None,
    program: str | None = None,
    settings: EvalSettings | None = None,
    tasks: Mapping[str, str] | None = None,
    folder: Path | None = None,
    watch: Callable[[Attempt], None] = lambda _: None,
    make: MakeAttempt | None = None,
    searcher: Searcher | None = None,
) -> list[Attempt]:
    """`settings.k` attempts at each problem, ordered by problem and attempt; at most `max_concurrent` are under way.

    Programs are designed by the policy behind `designer`, or are all `program`, or else come from the template bank.
    `tasks` names the task of a problem's id, for the report. `folder` gets a line per attempt in `results.jsonl` and a
    Trace per run in `traces/`; attempts that it holds already are not made again. `watch` is told of each attempt,
    those of the folder first. The sandbox needs the preloads `designer.check` and, for math, `tasks.MATH_WORKER`.
    `make` makes attempts elsewhere as `Attempts` would here; engines are then only asked for their names. `searcher`
    has the models of values for `settings.search`; the tree of each attempt goes into `trees/`.

    Raises `EngineFailed` or `SandboxUnavailable` when retries did not help, OSError when the folder cannot be written,
    and ValueError for problems with equal ids, for games with neither `designer` nor `program`, for both of these, for
    a folder of another evaluation, and for a search with a program that asks nobody for any problem.
    """
    settings = settings or EvalSettings()
    problems = [problem.within(settings.tolerance) for problem in problems]
    _check(problems, designer, program)
    made_by = {} if folder is None else _made_by(executor, designer, program, settings, searcher)
    with AttemptLog(folder, made_by) as log:
        if make is None:
            make = Attempts(
                executor=executor,
                sandbox=sandbox,
                designer=designer,
                program=program,
                settings=settings,
                tasks=tasks or {},
                searcher=searcher,
                tree_of=log.tree,
            ).make
        wanted = [(problem, number) for problem in problems for number in range(settings.k)]
        done = _kept(log, wanted)
        for attempt in done.values():
            watch(attempt)
        missing = iter([(problem, number) for problem, number in wanted if (problem.id, number) not in done])

        async def work() -> None:
            for problem, number in missing:  # shared by all workers
                trace = log.trace(problem.id, number)
                retries = settings.retries if settings.search is None else 0  # a search has its own, reply by reply
                attempt = await retried(partial(make, problem, number, trace), retries)
                log.add(attempt)
                done[problem.id, number] = attempt
                watch(attempt)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(settings.max_concurrent, len(wanted))):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first one; the group has stopped the other attempts
    attempts = [done[problem.id, number] for problem, number in wanted]
    if settings.search is not None and designer is None and attempts and all(map(asked_nobody, attempts)):
        raise SearchRefused(
            "the program asks no agent for any of the problems, so there is nothing to search. Fix: another program, "
            "or metaagent eval without --search"
        )
    return attempts


def _made_by(
    executor: Engine, designer: Engine | None, program: str | None, settings: EvalSettings, searcher: Searcher | None
) -> dict[str, Any]:
    """What a folder says of its attempts. To read what a model of many gigabytes is takes its time."""
    with_program = "bank" if program is None else "program"
    return {
        **({"designer": with_program} if designer is None else made_by_engine("designer", designer)),
        "program": program,
        **made_by_engine("executor", executor),
        **settings.model_dump(mode="json", exclude={"k", "max_concurrent", "retries"}),
        **({} if searcher is None else searcher.names),
    }


def asked_nobody(attempt: Attempt) -> bool:
    """Of an attempt that was to be searched for: whether its program has run, and asked no agent."""
    return attempt.search is None and attempt.failure is None


def _check(problems: Sequence[Problem], designer: Engine | None, program: str | None) -> None:
    if designer is not None and program is not None:
        raise ValueError("programs come from the designer or are given. Fix: leave out designer or program")
    game = next((problem for problem in problems if problem.domain == "game"), None)
    if game is not None and designer is None and program is None:
        raise ValueError(
            f"problem {game.id!r} is a game, and no template of the bank plays games. Fix: give a program that does, "
            "or an engine that designs one"
        )
    check_ids(problems)


def _kept(log: AttemptLog, wanted: Sequence[tuple[Problem, int]]) -> dict[tuple[str, int], Attempt]:
    """The wanted attempts that the folder holds; ValueError where a problem is not what it was."""
    digests = {(problem.id, number): problem_digest(problem) for problem, number in wanted}
    kept = {(attempt.problem, attempt.attempt): attempt for attempt in log.kept}
    for place, attempt in kept.items():
        check_same(attempt.problem, attempt.problem_digest, digests.get(place), log.folder)
    return {place: kept[place] for place in digests if place in kept}


def _actions(run: Run) -> int:
    return sum(isinstance(event, EnvironmentStepped) and event.commit for event in run.trace.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Makes attempts in this process. Fields as `evaluate` has them."""

    executor: Engine
    sandbox: Sandbox
    settings: EvalSettings
    designer: Engine | None = None
    program: str | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)
    engine_of_run: Callable[[Engine, int], Engine] = lambda engine, seed: engine
    """What a run with this seed asks, where several engines stand behind one name."""
    searcher: Searcher | None = None
    """Needed for `settings.search`."""
    tree_of: Callable[[str, int], Path | None] = lambda problem, number: None
    """Where the tree of an attempt's search goes."""

    async def make(self, problem: Problem, number: int, trace: Path | None) -> Attempt:
        """See `MakeAttempt`."""
        started = time.monotonic()
        seed = derived_seed(self.settings.seed, problem.id, number)
        searches = self.settings.search is not None
        designed = await retried(partial(self.design, problem, seed), self.settings.retries if searches else 0)
        correct = answered = False
        failure, verdict, run, found = designed.failure, "", None, None
        if designed.program is not None and failure is None and searches:
            searched = await self.search(problem, designed.program, number, seed, trace)
            if searched is not None:
                found, run = searched
                correct, verdict = found.correct is True, found.verdict
                failure = None if run is None else run.failure
        if found is None and designed.program is not None and failure is None:
            run = await retried(
                partial(self.run, problem, designed.program, seed, trace), self.settings.retries if searches else 0
            )
            failure = run.failure
            if failure is None:
                value, verdict, _ = await correctness(problem, run, self.sandbox)
                correct = value == 1.0
        if run is not None and run.failure is None:
            answered = run.answer is not None and final_answer(run.answer, problem.domain) is not None
        turns = sorted(run.trace.agent_turns if run is not None else [], key=lambda turn: turn.key)
        played = [turn.completion for turn in turns if turn.completion is not None]
        replies: dict[PolicyRole, list[Completion]] = {"designer": designed.replies, "executor": played}
        graph = designed.graph if designed.failure is None else None
        usage = usage_report([run.trace] if run is not None else [], designed.replies).by_role
        if found is not None:
            usage["executor"] = found.tally
        return Attempt(
            problem=problem.id,
            attempt=number,
            problem_digest=problem_digest(problem),
            task=self.tasks.get(problem.id, ""),
            domain=problem.domain,
            seed=seed,
            correct=correct,
            answered=answered,
            verdict=verdict if failure is None else failure.kind,
            failure=None if failure is None else failure.kind,
            message="" if failure is None else failure.message,
            designer="policy" if self.designer is not None else "bank" if self.program is None else "program",
            template=designed.template,
            program=designed.program,
            structure=None if graph is None else structure(graph),
            graph=graph,
            usage=usage,
            reply_tokens={role: [c.usage.completion_tokens for c in each] for role, each in replies.items() if each},
            turns=None if run is None or problem.environment is None else _actions(run),
            duration_s=round(time.monotonic() - started, 4),
            search=found,
            trace=f"{TRACES}/{trace.name}" if run is not None and trace is not None else None,
        )

    async def design(self, problem: Problem, seed: int) -> _Designed:
        """A program for the problem, checked; what is wrong with it is data."""
        if self.designer is not None:
            return await self.sampled(problem, self.designer, seed)
        made = design_from_bank(problem.question) if self.program is None else None
        source = made.program if made is not None else self.program or ""
        report = await check_program(source, self.sandbox, problem.question)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        return _Designed(
            program=source,
            graph=report.graph,
            template=made.template if made is not None else None,
            failure=ProgramRejected(errors).record() if errors else None,
        )

    async def sampled(self, problem: Problem, designer: Engine, seed: int) -> _Designed:
        design = await sample_design(
            problem.question,
            self.engine_of_run(designer, seed),
            self.sandbox,
            reply_s=self.settings.limits.reply_s,
            sampling=self.settings.designer_sampling,
            style=self.settings.style,
            repair=self.settings.repair,
            seed=seed,
        )
        return _Designed(
            program=design.source,
            graph=design.graph,
            failure=design.error,
            replies=[turn.completion for turn in design.turns],
        )

    async def search(
        self, problem: Problem, program: str, number: int, seed: int, trace: Path | None
    ) -> tuple[SearchReport, Run | None] | None:
        """None where there is nothing to search: for this problem the program asks nobody, or fails before."""
        assert self.searcher is not None
        assert self.settings.search is not None
        try:
            return await self.searcher.search(
                problem,
                program,
                self.settings.search,
                engine=self.engine_of_run(self.executor, seed),
                seed=seed,
                trace=trace,
                tree=self.tree_of(problem.id, number),
            )
        except AsksNobody:
            return None

    async def run(self, problem: Problem, program: str, seed: int, trace: Path | None) -> Run:
        run = await self.sandbox.run_program(
            program,
            problem.question,
            engine=self.engine_of_run(self.executor, seed),
            limits=self.settings.limits,
            sampling=self.settings.sampling,
            seed=seed,
            sink=TraceFile(trace),
            game=begins(problem),
        )
        raise_infrastructure(run.failure)
        return run
