"""Runs of a play, straight through or on from a position, and what searches over them. Knows no job.

Programs whose agents write no code are run as this process's own workflows: they are ours, and a jail per replay would
cost more than the policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import fmean

from engine.protocol import Engine
from sandbox.protocol import Sandbox
from search import Branching, Decision, Ended, OpenRuns, Program, jailed, trusted
from search.branching import Position
from search.scoring import Scorer
from speedrun.masprm.chains import chain_problems, result_of, workflow_of, wrong_step
from speedrun.masprm.guided_arms import LIMITS, Play
from speedrun.masprm.search_runs import Settings
from tasks import Problem
from trainer.evaluate import Searcher
from trainer.rollout import derived_seed
from workflow.answers import final_answer
from workflow.completion import Completion, Sampling


def program_of(play: Play, problem: Problem, sampling: Sampling, seed: int, sandbox: Sandbox) -> Program:
    if play.jailed:
        return jailed(sandbox, play.program, problem.question, limits=LIMITS, sampling=sampling, seed=seed)
    return trusted(workflow_of(play.program), problem.question, limits=LIMITS, sampling=sampling, seed=seed)


async def walk(branching: Branching, engine: Engine, position: Position, number: int) -> Ended:
    """On from a position with the replies of this number."""
    while isinstance(position, Decision):
        position = await branching.go_on(position, await branching.candidate(position, engine, number))
    return position


async def straight_passes(
    seed: int, count: int, play: Play, sampling: Sampling, engine: Engine, sandbox: Sandbox
) -> list[tuple[Problem, Ended]]:
    """One straight run for each of some problems that nothing else sees."""
    open_runs = OpenRuns(64)

    async def one(problem: Problem) -> tuple[Problem, Ended]:
        own = derived_seed(seed, problem.id, "check")
        branching = Branching(program_of(play, problem, sampling, own, sandbox), open_runs=open_runs)
        return problem, await walk(branching, engine, await branching.start(), 0)

    problems = chain_problems(play.problems, count, 3 * seed, "validation")
    return list(await asyncio.gather(*map(one, problems)))


def replies_of(ended: Ended) -> list[str]:
    replies = (step.reply for step in ended.path.decisions)
    return [reply.text if isinstance(reply, Completion) else "" for reply in replies]


def is_right(problem: Problem, ended: Ended) -> bool:
    return final_answer(ended.run.answer or "", "math") == problem.gold


def shares_right(passes: Sequence[tuple[Problem, Ended]]) -> dict[str, float]:
    """Of passes that are right; of the relay's steps that are right, among those that begin right."""
    found = {"passes": fmean(is_right(problem, ended) for problem, ended in passes)}
    steps = [(wrong_step(problem.question, replies_of(ended)), len(replies_of(ended))) for problem, ended in passes]
    if all(result_of(replies_of(ended)[0]) is not None for _, ended in passes):
        begun = sum(count if wrong is None else wrong + 1 for wrong, count in steps)
        found["steps"] = 1 - sum(wrong is not None for wrong, _ in steps) / begun
    return found


def searcher_of(
    play: Play,
    settings: Settings,
    sandbox: Sandbox,
    *,
    prm: Scorer | str | None = None,
    orm: Scorer | None = None,
) -> Searcher:
    def own(problem: Problem, _: str, sampling: Sampling, seed: int) -> Program:
        return program_of(play, problem, sampling, seed, sandbox)

    return Searcher(
        sandbox=sandbox,
        limits=LIMITS,
        sampling=settings.sampling(play),
        program_of=None if play.jailed else own,
        prm=prm,
        orm=orm,
    )
