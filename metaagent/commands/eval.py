"""Evaluates policies over tasks and shows the report: what `metaagent eval` does.

Reads tasks, opens engines and sandbox, shows progress; attempts are `trainer.evaluate.evaluation`'s business and every
number is `trainer.evaluate.evaluation_report`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from designer.check import check_program
from metaagent.commands.eval_report import Evaluation, print_evaluation
from metaagent.commands.inputs import BANK, read_tasks, read_text
from metaagent.commands.options import (
    SAMPLING,
    AsJson,
    CacheFolder,
    EngineSpec,
    MaxTokens,
    SandboxName,
    Seed,
    Temperature,
    TopP,
    validated,
)
from metaagent.commands.run_notes import void_tokens
from metaagent.commands.search_options import (
    DEFAULTS,
    Beam,
    CallBudget,
    Children,
    CUct,
    First,
    Mix,
    Orm,
    Parallel,
    Prm,
    Samples,
    Simulations,
    StopAt,
    TokenBudget,
    Tolerance,
    WallBudget,
    Weights,
    opened_models,
    search_settings,
)
from metaagent.commands.spreading import (
    ClusterAddress,
    GpusPerNode,
    Nodes,
    Replicas,
    RunWorkers,
    Spreading,
    spreading,
)
from metaagent.opening import open_engine, open_sandbox
from metaagent.terminal import (
    EvalProgress,
    ExitCode,
    Stop,
    note,
    print_findings,
    print_json,
    stderr,
    stdout,
    usage_error,
)
from sandbox.host import JailSandbox
from tasks import Problem
from trainer.evaluate import (
    Attempts,
    EvalSettings,
    Searcher,
    asked_nobody,
    evaluate,
    report_of,
)
from workflow.completion import Sampling
from workflow.failures import MetaAgentError

DESIGNERS = {BANK: BANK, "program": "FILE.py"}
"""What `--designer` takes besides engines, and how it is written."""


def evaluated(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str,
    settings: EvalSettings,
    *,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path | None,
    cluster: Spreading | None = None,
    models: tuple[str | None, Path | None] = (None, None),
) -> Evaluation:
    """Evaluate, with live progress on stderr. What is done when it is broken off stays in the folder, and is said."""
    total = settings.k * sum(map(len, problems.values()))
    with EvalProgress(total) as progress:
        try:
            return asyncio.run(
                _evaluate(problems, spec, designer, settings, sandbox_name, cache, folder, cluster, progress, models)
            )
        except (MetaAgentError, KeyboardInterrupt, Stop) as ended:
            if isinstance(ended, Stop) and ended.code == ExitCode.USAGE:
                raise
            kept = f"kept in {folder}: the same command goes on from there" if folder else "lost; --out keeps them"
            note(f"{len(progress.attempts)} of {total} attempts are done and {kept}")
            raise
        except OSError as error:
            usage_error(f"cannot write to {error.filename or folder}: {error.strerror}")


async def _evaluate(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str,
    settings: EvalSettings,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path | None,
    cluster: Spreading | None,
    progress: EvalProgress,
    models: tuple[str | None, Path | None],
) -> Evaluation:
    program = read_text(Path(designer)) if designer.endswith(".py") else None
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(open_engine(spec, cache))
        policy = executor
        if designer == BANK or program is not None:
            policy = None
        elif designer != spec:
            policy = await stack.enter_async_context(open_engine(designer, cache, DESIGNERS))
        sandbox = await stack.enter_async_context(open_sandbox(sandbox_name, grading=True))
        agents = set() if program is None else await may_run(designer, program, sandbox, "--designer ")
        searcher = None
        if settings.search is not None:
            prm, orm = await stack.enter_async_context(opened_models(*models, agents))
            limits, sampling, retries = settings.limits, settings.sampling, settings.retries
            searcher = Searcher(sandbox=sandbox, limits=limits, sampling=sampling, retries=retries, prm=prm, orm=orm)
        by_id = {problem.id: task for task, each in problems.items() for problem in each}
        make = None
        if cluster is not None:
            make = await stack.enter_async_context(
                cluster.opened(
                    partial(Attempts, program=program, settings=settings, tasks=by_id),
                    (spec, executor),
                    None if policy is None else (designer, policy),
                    sandbox=sandbox_name,
                    cache=cache,
                    folder=folder,
                    at_once=settings.max_concurrent,
                    piece_s=settings.limits.longest_s + 2 * settings.limits.reply_s,
                )
            )
        try:
            attempts = await evaluate(
                [problem for each in problems.values() for problem in each],
                executor=executor,
                sandbox=sandbox,
                designer=policy,
                program=program,
                settings=settings,
                tasks=by_id,
                folder=folder,
                watch=progress,
                make=make,
                searcher=searcher,
            )
        except ValueError as error:  # a folder of another evaluation, or a search that is none
            usage_error(str(error))
    unasked = [attempt.problem for attempt in attempts if settings.search is not None and asked_nobody(attempt)]
    if unasked:
        asks = f"as the program asks no agent: {unasked[0]} first"
        note(f"{len(unasked)} of {len(attempts)} attempts were no search, {asks}")
    unreadable = [attempt.problem for attempt in attempts if attempt.verdict == "gold_unparseable"]
    report, tokens = report_of(attempts), None if settings.search is None else settings.search.tokens
    spent = report.search
    return Evaluation(
        tasks=list(problems),
        engine=executor.name,
        designer=policy.name if policy is not None else designer,
        settings=settings,
        report=report,
        notes=[] if spent is None else void_tokens(tokens, spent.agent_calls, spent.generated_tokens),
        unreadable_golds=list(dict.fromkeys(unreadable)),
        wall_s=round(progress.elapsed_s, 3),
        folder=None if folder is None else str(folder),
    )


async def may_run(name: str, program: str, sandbox: JailSandbox, option: str = "") -> set[str]:
    """The names of the program's agents; a usage error where the check refuses it. `option` says where its name comes
    from."""
    report = await check_program(program, sandbox)
    if not report.ok:
        print_findings(stderr(), name, report.findings)
        usage_error(f"{option}{name} may not run, so every attempt would fail. Fix: what was found above")
    nodes = [] if report.graph is None else report.graph.walk()
    return {node.name for node in nodes if node.base == "AgentNode"}


def main(
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...",
            help="FORMAT:FILE, such as gsm8k:test.jsonl; a wrong format is answered with the right ones.",
            show_default=False,
        ),
    ],
    engine: EngineSpec = None,
    designer: Annotated[
        str,
        typer.Option(
            "--designer",
            "-d",
            "--program",
            metavar="SPEC|bank|FILE.py",
            help="Who designs: an engine, the template bank, or one program for all problems.",
        ),
    ] = "bank",
    k: Annotated[int, typer.Option("--k", "-k", help="Attempts per problem.", min=1)] = 4,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N problems of each task.", min=1, metavar="N")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Keep attempts and traces here; what is there is not done again.", file_okay=False
        ),
    ] = None,
    style: Annotated[
        Literal["full", "short"], typer.Option(help="The designer's prompt: with templates, or as in training.")
    ] = "full",
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Temperature = SAMPLING.temperature,
    top_p: TopP = SAMPLING.top_p,
    max_tokens: MaxTokens = SAMPLING.max_tokens,
    max_concurrent: Annotated[int, typer.Option(help="Attempts under way at once.", min=1)] = 16,
    tolerance: Tolerance = None,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="greedy|majority|beam|mcts", help="Search each attempt's run, in place of one straight run."
        ),
    ] = None,
    prm: Prm = None,
    orm: Orm = None,
    beam: Beam = DEFAULTS.beam,
    samples: Samples = DEFAULTS.samples,
    first: First = False,
    simulations: Simulations = DEFAULTS.simulations,
    children: Children = DEFAULTS.children,
    c_uct: CUct = DEFAULTS.c_uct,
    mix: Mix = DEFAULTS.mix,
    stop: StopAt = DEFAULTS.stop,
    parallel: Parallel = DEFAULTS.parallel,
    weights: Weights = DEFAULTS.weights,
    agent_calls: CallBudget = None,
    tokens: TokenBudget = None,
    wall: WallBudget = None,
    cluster: ClusterAddress = None,
    nodes: Nodes = None,
    run_workers: RunWorkers = None,
    replicas: Replicas = None,
    gpus_per_node: GpusPerNode = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Measure pass rates over tasks: k attempts at each problem, with 95% intervals.

    Also tells which structures were designed, what failed, how different the agents were, and what it cost.
    """
    if not engine:
        usage_error("evaluating needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    sampling = validated(Sampling, temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    plan = search_settings(
        search,
        "--search",
        beam=beam,
        samples=samples,
        first=first,
        simulations=simulations,
        children=children,
        c_uct=c_uct,
        mix=mix,
        stop=stop,
        parallel=parallel,
        weights=weights,
        agent_calls=agent_calls,
        tokens=tokens,
        wall_s=wall,
    )
    if search is None and (prm is not None or orm is not None or plan != DEFAULTS):
        usage_error("--prm, --orm and settings of searches go with --search METHOD. Fix: add it, or leave them out")
    settings = EvalSettings(
        k=k,
        seed=seed,
        sampling=sampling,
        designer_sampling=sampling,
        style=style,
        max_concurrent=max_concurrent,
        tolerance=tolerance,
        search=None if search is None else plan,
    )
    spread = spreading(cluster, nodes, run_workers, replicas, gpus_per_node)
    if search is not None and spread is not None:
        usage_error("searches run in this process. Fix: leave --cluster out, or --search")
    problems = read_tasks(tasks, limit)
    document = evaluated(
        problems,
        engine,
        designer,
        settings,
        sandbox_name=sandbox,
        cache=cache,
        folder=out,
        cluster=spread,
        models=(prm, orm),
    )
    if as_json:
        print_json(document)
    else:
        print_evaluation(stdout(), document)
    return ExitCode.OK
