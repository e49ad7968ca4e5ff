"""Carries out one job of MASPRM's comparisons in this process: policies, labels, models of values, arms. Goes on where
it was broken off."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import math
import random
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from pathlib import Path

from engine import run_workflow
from engine.protocol import Engine
from metaagent.opening import open_sandbox
from sandbox.protocol import Sandbox
from search.problem import ORACLE
from speedrun import phases, starts
from speedrun.kept import write
from speedrun.masprm import search_runs as runs
from speedrun.masprm.bank_teacher import BankTeacher
from speedrun.masprm.chains import KINDS, RelayTeacher, chain_problems, workflow_of
from speedrun.masprm.guided_arms import ARMS, BANK, GRADER, LIMITS, PLAYS
from speedrun.masprm.passes import searcher_of, shares_right, straight_passes
from speedrun.masprm.search_runs import SEPARATOR, Job, KeptRun, Searched, Settings, Task
from speedrun.masprm.value_checks import estimated, read_by, timed
from speedrun.settings import SpeedrunSettings
from tasks import Problem
from trainer.disk import line_of, only_writer, read_records
from trainer.evaluate import label_problems
from trainer.rollout import derived_seed
from trainer.sft import METRICS, MODEL, ChatRow
from workflow.completion import Sampling

SEARCHED = "searched.jsonl"


async def carry_out(job: Job, settings: Settings, out: Path) -> None:
    """Write what is kept of a job into its folder."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(open_sandbox(grading=True))
        kept = await _DO[job.task](job, settings, out, sandbox, stack)
    write(job.folder(out) / runs.KEPT, kept)


# A policy


async def _taught(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    """Programs are played by the teacher; a policy learns all that their agents said."""
    own = job.folder(out)
    kept = runs.kept_run(job, settings)
    plays = KINDS if job.name == "relay" else tuple(BANK)
    rows = [row for play in plays for row in await _lessons(job, settings, play, sandbox)]
    random.Random(job.seed).shuffle(rows)
    taught = SpeedrunSettings(seed=job.seed, architecture=settings.architecture_of(job.name), sft=settings.sft)
    model = phases.untrained(taught, rows, own / "untrained")
    phases.fine_tune(taught, model, rows, own / "sft", lambda *_: None)
    if not (own / starts.POLICY).exists():
        starts.halved(own / "sft" / MODEL, own / starts.POLICY)
    engine = await runs.engine_of(stack, job, settings, PLAYS[plays[0]], out)
    for play in plays:
        for name, sampling in (
            ("sampled", settings.sampling(PLAYS[play])),
            ("greedy", Sampling(temperature=0, max_tokens=PLAYS[play].max_tokens)),
        ):
            ended = await straight_passes(job.seed, settings.check, PLAYS[play], sampling, engine, sandbox)
            kept.figures |= {f"{play}, {name}, {what}": share for what, share in shares_right(ended).items()}
    return kept


async def _lessons(job: Job, settings: Settings, play: str, sandbox: Sandbox) -> list[ChatRow]:
    """What agents were asked and said."""
    count = {"sum": settings.cold, "long": settings.cold, "rest": 2 * settings.cold // 3}.get(play, settings.cold // 3)
    relay = RelayTeacher(forgets=settings.forgets, slips=settings.slips)
    teacher: Engine = BankTeacher(relay=relay) if PLAYS[play].taught == "bank" else relay
    turns = asyncio.Semaphore(settings.max_concurrent)

    async def one(problem: Problem) -> list[ChatRow]:
        seed = derived_seed(job.seed, problem.id, play)
        async with turns:
            if PLAYS[play].jailed:
                run = await sandbox.run_program(
                    PLAYS[play].program, problem.question, engine=teacher, limits=LIMITS, seed=seed
                )
            else:
                run = await run_workflow(workflow_of(PLAYS[play].program), problem.question, teacher, seed=seed)
        return [
            ChatRow(
                role="executor",
                messages=[*turn.messages, {"role": "assistant", "content": turn.completion.text}],
                tools=turn.tools,
            )
            for turn in run.trace.agent_turns
            if turn.completion is not None
        ]

    problems = chain_problems(PLAYS[play].problems, count, 3 * job.seed, "train")
    return [row for rows in await asyncio.gather(*map(one, problems)) for row in rows]


# Labels and models of values


async def _labelled(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    play, made = runs.label_settings(job, settings)
    engine = await runs.engine_of(stack, job, settings, play, out)
    trees = await label_problems(
        runs.problems_of(job, settings, out, play.problems, "train"),
        play.program,
        engine=engine,
        searcher=searcher_of(play, settings, sandbox),
        settings=made,
        folder=job.folder(out),
    )
    kept = runs.kept_run(job, settings)
    kept.figures = {
        "trees": len(trees),
        "calls": sum(tree.nodes for tree in trees),
        "edges": sum(tree.edges for tree in trees),
        "right": sum(tree.right for tree in trees) / sum(tree.simulations for tree in trees),
    }
    return kept


async def _modelled(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    """V or Y, from the policy's own weights; Y for as many steps as V."""
    from engine.pretrained import load_tokenizer
    from trainer.update import TorchBackend
    from trainer.values import (
        SCORER,
        WEIGHT_DECAY,
        ScorerFile,
        StateView,
        ValueStep,
        read_scorer,
        rows_of_trees,
        train_values,
        write_scorer,
    )

    model, labels = runs.model_folder(job, out)
    base = runs.policy_of(job, PLAYS[model.play], out)
    tokenizer = load_tokenizer(base)
    tokenizer.add_tokens([SEPARATOR], special_tokens=True)
    context = settings.architecture_of(job.taught).context
    view = StateView(tokenizer, SEPARATOR, model.view, context)
    read = rows_of_trees([labels], view)
    states = rows_of_trees([labels], StateView(tokenizer, SEPARATOR, model.like, context))
    epochs = math.ceil(settings.values.epochs * len(states.rows) / len(read.rows))
    made = settings.values.model_copy(update={"seed": job.seed, "weigh_visits": model.weigh_visits, "epochs": epochs})
    backend = TorchBackend(
        base,
        learning_rate=made.learning_rate,
        device="cpu",
        weight_decay=WEIGHT_DECAY,
        separator=SEPARATOR,
        seed=job.seed,
    )
    scorer = ScorerFile(
        view=model.view,
        separator=SEPARATOR,
        separator_id=view.separator_id,
        template=view.fingerprint,
        max_tokens=view.max_tokens,
        base=base.parent.parent.name,
        base_weights=backend.base,
    )
    own = job.folder(out)
    with closing(backend):
        result = train_values(backend, read, made, scorer, own, resume=True)
    if not (own / runs.VALUES).exists():
        beside = own / f"{runs.VALUES}, unfinished"
        shutil.rmtree(beside, ignore_errors=True)
        starts.halved(own / MODEL, beside)
        (beside / SCORER).unlink()  # which is of other weights
        write_scorer(beside, read_scorer(own / MODEL))
        beside.rename(own / runs.VALUES)
    measured = [line.held_out for _, line in read_records(own / METRICS, ValueStep) if line.held_out is not None]
    kept = runs.kept_run(job, settings)
    kept.figures = {"rows": result.rows, "steps": result.steps}
    if measured:
        last = measured[-1].model_dump(include={"rmse", "mae", "bias", "r2", "pearson", "sign"})
        kept.figures |= {name: value for name, value in last.items() if value is not None}
    return kept


# Arms


async def _searched(job: Job, settings: Settings, out: Path, sandbox: Sandbox, stack: AsyncExitStack) -> KeptRun:
    """Every held-out problem once, those that are done not again. All arms of a seed draw the same first replies."""
    play, arm, path = PLAYS[job.play], ARMS[job.name], job.folder(out) / SEARCHED
    stack.enter_context(only_writer(job.folder(out)))
    engine = await runs.engine_of(stack, job, settings, play, out)
    prm = await runs.scorer_of(stack, arm.prm, job, out) if arm.prm not in (None, GRADER) else None
    orm = await runs.scorer_of(stack, arm.orm, job, out) if arm.orm is not None else None
    prm = ORACLE if arm.prm == GRADER else prm
    searcher = searcher_of(play, settings, sandbox, prm=prm, orm=orm)
    done = {line.problem: line for _, line in read_records(path, Searched)} if path.exists() else {}
    problems = runs.problems_of(job, settings, out, play.problems, "test")
    waiting = iter([problem for problem in problems if problem.id not in done])
    with path.open("a", encoding="utf-8") as file:

        async def work() -> None:
            for problem in waiting:
                seed = derived_seed(job.seed, problem.id, "search")
                found, _ = await searcher.search(problem, play.program, arm.search, engine=engine, seed=seed)
                done[problem.id] = Searched(
                    problem=problem.id,
                    correct=bool(found.correct),
                    calls=found.agent_calls,
                    scored=found.scored,
                    generated=found.generated_tokens,
                    prompt=found.prompt_tokens,
                    read=found.scored_tokens,
                )
                file.write(line_of(done[problem.id]))
                file.flush()

        async with asyncio.TaskGroup() as group:
            for _ in range(settings.max_concurrent):
                group.create_task(work())
    kept = runs.kept_run(job, settings)
    kept.searched = [done[problem.id] for problem in problems]
    return kept


_DO: Mapping[Task, Callable[[Job, Settings, Path, Sandbox, AsyncExitStack], Awaitable[KeptRun]]] = {
    "start": _taught,
    "labels": _labelled,
    "model": _modelled,
    "states": estimated,
    "arm": _searched,
    "reading": read_by,
    "wall": timed,
}
