"""What `values` and `wall` look at: states with what fresh runs from them came to, what a model says of them, and what
calls, values and jails take. Trains nothing and searches nothing."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from sandbox.protocol import Sandbox
from search import Branching, Ended, OpenRuns
from search.paths import Path as Replies
from search.scoring import ScoredState
from speedrun.masprm import search_runs as runs
from speedrun.masprm.chains import RelayTeacher, wrong_step
from speedrun.masprm.guided_arms import PLAYS
from speedrun.masprm.passes import is_right, program_of, replies_of, searcher_of, walk
from speedrun.masprm.search_runs import Job, KeptRun, Settings
from tasks import Problem
from trainer.disk import line_of, only_writer, read_records
from trainer.evaluate import LabelSettings, label_problems
from trainer.rollout import derived_seed
from workflow.completion import Completion, CompletionRequest

PASSES, STATES = "passes.jsonl", "states.jsonl"
SUM = PLAYS["sum"]
TIMED, TREES = 128, 4
"""Calls and values, and trees, that `wall` takes the time of."""
NONE_WRONG = -1
Item = TypeVar("Item")


class Walked(BaseModel):
    """A state of a held-out problem."""

    problem: str
    question: str
    path: Replies
    right: float
    """The mean R of the runs from here on; of a run that has ended, its own."""
    wrong: int = NONE_WRONG
    """The first step that went wrong, from 0."""

    def state(self, depth: int) -> ScoredState:
        return ScoredState(self.question, self.path.decisions[:depth])


async def estimated(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    """A straight pass for each held-out problem; then, from states of the first of them, at every depth as often, many
    runs on."""
    own = job.folder(out)
    stack.enter_context(only_writer(own))
    engine = await runs.engine_of(stack, job, settings, SUM, out)
    problems = runs.problems_of(job, settings, out, SUM.problems, "test")
    open_runs = OpenRuns(64)

    def branching_of(problem: Problem) -> Branching:
        seed = derived_seed(job.seed, problem.id, "passes")
        made = program_of(SUM, problem, settings.sampling(SUM), seed, sandbox)
        return Branching(made, open_runs=open_runs)

    async def straight(problem: Problem) -> Walked:
        branching = branching_of(problem)
        ended = await walk(branching, engine, await branching.start(), 0)
        wrong = wrong_step(problem.question, replies_of(ended))
        return _walked(problem, ended.path, [ended], NONE_WRONG if wrong is None else wrong)

    passes = await _each(own / PASSES, problems, straight, settings.max_concurrent)

    async def fresh(numbered: tuple[int, Problem]) -> Walked:
        number, problem = numbered
        branching, whole = branching_of(problem), passes[number].path
        depth = 1 + number % len(whole.decisions)
        path = Replies(program=whole.program, steps=whole.steps[:depth])
        count = 1 if depth == len(whole.decisions) else settings.runs

        async def on(run: int) -> Ended:
            return await walk(branching, engine, await branching.at(path), 1 + run)

        return _walked(problem, path, await asyncio.gather(*map(on, range(count))))

    chosen = list(enumerate(problems))[: settings.states]
    states = await _each(own / STATES, chosen, fresh, 4)
    kept = runs.kept_run(job, settings)
    kept.series = {
        "estimate": [state.right for state in states],
        "depth": [len(state.path.decisions) for state in states],
        "wrong": [walked.wrong for walked in passes],
    }
    return kept


def _walked(problem: Problem, path: Replies, ended: Sequence[Ended], wrong: int = NONE_WRONG) -> Walked:
    right = sum(is_right(problem, each) for each in ended) / len(ended)
    return Walked(problem=problem.id, question=problem.question, path=path, right=2 * right - 1, wrong=wrong)


async def _each(
    path: Path, items: Sequence[Item], make: Callable[[Item], Awaitable[Walked]], at_once: int
) -> list[Walked]:
    """One for each item, so many at once; written in their order, and what is there is not made again."""
    done = [line for _, line in read_records(path, Walked)] if path.exists() else []
    with path.open("a", encoding="utf-8") as file:
        for first in range(len(done), len(items), at_once):
            some = items[first : first + at_once]
            made = await asyncio.gather(*map(make, some))
            file.writelines(map(line_of, made))
            file.flush()
            done += made
    return done


async def read_by(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    """V of the states, and along the passes after each step, one pass after another."""
    folder = replace(job, task="states", name="").folder(out)
    passes, states = ([line for _, line in read_records(folder / name, Walked)] for name in (PASSES, STATES))
    scorer = await runs.scorer_of(stack, job.name, job, out)
    along = [walked.state(depth + 1) for walked in passes for depth in range(len(walked.path.decisions))]
    scores = await scorer.score([*(each.state(len(each.path.decisions)) for each in states), *along])
    values = [score.value for score in scores]
    kept = runs.kept_run(job, settings)
    kept.series = {
        "value": values[: len(states)],
        "estimate": [state.right for state in states],
        "depth": [len(state.path.decisions) for state in states],
        "along": values[len(states) :],
        "wrong": [walked.wrong for walked in passes],
    }
    return kept


async def timed(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    """Seconds per call and per value, one at a time and together; per state of a tree, jailed and in this process."""
    engine = await runs.engine_of(stack, job, settings, SUM, out)
    scorer = await runs.scorer_of(stack, "V", job, out)
    problems = runs.problems_of(job, settings, out, SUM.problems, "test")
    states: list[ScoredState] = []

    async def call(number: int) -> None:
        problem = problems[number % len(problems)]
        program = program_of(SUM, problem, settings.sampling(SUM), number, sandbox)
        branching = Branching(program)
        ended = await walk(branching, engine, await branching.start(), number)
        states.append(ScoredState(problem.question, ended.path.decisions))

    async def value(number: int) -> None:
        await scorer.score([states[number % len(states)]])

    kept, agents = runs.kept_run(job, settings), 4
    await call(0)  # loads the model
    await value(0)
    for what, do, share in (("call", call, agents), ("value", value, 1)):
        count = TIMED // share
        began = time.monotonic()
        for number in range(count):
            await do(number)
        alone = time.monotonic()
        await asyncio.gather(*map(do, range(count)))
        kept.figures[f"{what}, alone"] = (alone - began) / count / share
        kept.figures[f"{what}, together"] = (time.monotonic() - alone) / count / share
    for name, play in (("in this process", SUM), ("jailed", replace(SUM, jailed=True))):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            trees = await label_problems(
                problems[:TREES],
                play.program,
                engine=_Scripted(),
                searcher=searcher_of(play, settings, sandbox),
                settings=LabelSettings(max_concurrent=TREES),
                folder=Path(folder),
            )
            nodes = sum(tree.nodes for tree in trees)
            kept.figures[f"state, {name}"] = (time.monotonic() - began) / nodes
    return kept


class _Scripted(RelayTeacher):
    """The teacher in the policy's place takes no time, and says how likely its replies were."""

    async def complete(self, request: CompletionRequest) -> Completion:
        completion = await super().complete(request)
        return replace(completion, token_ids=[1], prompt_token_ids=[1], logprobs=[-0.1])
