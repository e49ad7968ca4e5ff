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
from pydantic import BaseModel
from rich.console import Console

from designer.check import check_program
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
    validated,
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
    fields,
    heading,
    note,
    print_findings,
    print_json,
    print_shares,
    print_table,
    stderr,
    stdout,
    totals,
    usage_error,
)
from sandbox.host import JailSandbox
from tasks import Problem
from trainer.evaluate import Attempts, EvalReport, EvalSettings, PassRate, Spread, evaluate, report_of
from workflow.completion import Sampling
from workflow.failures import MetaAgentError

DESIGNERS = {BANK: BANK, "program": "FILE.py"}
"""What `--designer` takes besides engines, and how it is written."""


class Evaluation(BaseModel):
    """What `eval --json` prints."""

    tasks: list[str]
    engine: str
    designer: str
    """The engine's name, `bank`, or the program's file."""
    settings: EvalSettings
    report: EvalReport
    unreadable_golds: list[str] = []
    """Problems whose gold answer cannot be read as mathematics: nothing was graded with it."""
    wall_s: float = 0.0
    """Seconds that this command took; attempts that were kept from before took theirs then."""
    folder: str | None = None


def _run(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str,
    settings: EvalSettings,
    *,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path | None,
    cluster: Spreading | None,
) -> Evaluation:
    """Evaluate, with live progress on stderr. What is done when it is broken off stays in the folder, and is said."""
    total = settings.k * sum(map(len, problems.values()))
    with EvalProgress(total) as progress:
        try:
            return asyncio.run(
                _evaluate(problems, spec, designer, settings, sandbox_name, cache, folder, cluster, progress)
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
        if program is not None:
            await _may_run(designer, program, sandbox)
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
            )
        except ValueError as error:  # a folder of another evaluation
            usage_error(str(error))
    unreadable = [attempt.problem for attempt in attempts if attempt.verdict == "gold_unparseable"]
    return Evaluation(
        tasks=list(problems),
        engine=executor.name,
        designer=policy.name if policy is not None else designer,
        settings=settings,
        report=report_of(attempts),
        unreadable_golds=list(dict.fromkeys(unreadable)),
        wall_s=round(progress.elapsed_s, 3),
        folder=None if folder is None else str(folder),
    )


async def _may_run(name: str, program: str, sandbox: JailSandbox) -> None:
    report = await check_program(program, sandbox)
    if not report.ok:
        print_findings(stderr(), name, report.findings)
        usage_error(f"--designer {name} may not run, so every attempt would fail. Fix: what was found above")


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """The report for people; notes go to stderr."""
    report = evaluation.report
    diversity = report.diversity
    heading(console, "Result")
    prompts = f"{diversity.unique_prompts:.1%} of {diversity.agents} agents have a prompt that no other has"
    names = f"{diversity.role_names} role names in {diversity.designs} designs; {prompts}"
    passed = ", ".join(f"pass@{k} {value:.1%}" for k, value in report.pass_at.items() if k > 1)
    fields(
        console,
        [
            ("Engine", evaluation.engine),
            ("Designer", evaluation.designer),
            ("Attempts", f"{report.attempts} at {report.problems} problems"),
            ("Accuracy", rate_line(report.accuracy)),
            ("Any of k", passed),
            ("Answered", f"{report.answered:.1%}"),
            ("Failures", ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in report.failures.items())),
            ("Agents", names if diversity.designs else ""),
            *((f"{role.title()} replies", length_line(each)) for role, each in report.reply_tokens.items() if each.max),
            ("Usage", totals(report.usage.usage)),
            *(
                [("Turns to solve", f"{report.turns.mean:.1f} on average, most {report.turns.max:,.0f}")]
                if report.turns is not None
                else []
            ),
            ("Time", f"{evaluation.wall_s:.1f} s; {report.attempt_s.mean:.1f} s per attempt"),
            ("Kept in", evaluation.folder or ""),
        ],
    )
    groups: list[tuple[str, Mapping[str, PassRate]]] = [("By task", report.by_task)]
    groups += [("By domain", {str(domain): rate for domain, rate in report.by_domain.items()})]
    for title, rates in groups:
        if len(rates) > 1:
            heading(console, title)
            fields(console, [(f"  {name}", rate_line(rate)) for name, rate in rates.items()])
    heading(console, "Structures")
    rows = [
        (name, f"{row.share:.1%}", str(row.attempts), f"{row.correct:.1%}") for name, row in report.structures.items()
    ]
    print_table(console, ("structure", "share", "attempts", "correct"), rows)
    print_shares(console, "By role", report.usage_by_role)
    if evaluation.unreadable_golds:
        shown = ", ".join(evaluation.unreadable_golds[:5])
        count = len(evaluation.unreadable_golds)
        note(f"{count} problem{' has' if count == 1 else 's have'} a gold answer that cannot be read: {shown}")


def rate_line(rate: PassRate | None) -> str:
    """The estimate with its interval; empty where there is none."""
    if rate is None:
        return ""
    return f"{rate.estimate:.1%} (95% interval {rate.low:.1%} to {rate.high:.1%}, {rate.problems} problems)"


def length_line(each: Spread) -> str:
    return f"{each.count}, with {each.mean:,.0f} tokens on average, 95% within {each.p95:,.0f}, longest {each.max:,.0f}"


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
    max_tokens: MaxTokens = SAMPLING.max_tokens,
    max_concurrent: Annotated[int, typer.Option(help="Attempts under way at once.", min=1)] = 16,
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
    sampling = validated(Sampling, temperature=temperature, max_tokens=max_tokens)
    settings = EvalSettings(
        k=k, seed=seed, sampling=sampling, designer_sampling=sampling, style=style, max_concurrent=max_concurrent
    )
    spread = spreading(cluster, nodes, run_workers, replicas, gpus_per_node)
    problems = read_tasks(tasks, limit)
    document = _run(problems, engine, designer, settings, sandbox_name=sandbox, cache=cache, folder=out, cluster=spread)
    if as_json:
        print_json(document)
    else:
        print_evaluation(stdout(), document)
    return ExitCode.OK
