"""Distils rows out of engines and shows what came of it: what `metaagent distill` does.

Reads tasks, opens engines and sandbox, shows progress; designs, runs, rows and all sums are
`trainer.distill.distillation`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console

from metaagent.commands.inputs import BANK, read_tasks
from metaagent.commands.options import SAMPLING, AsJson, CacheFolder, EngineSpec, SandboxName, Seed, validated
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
    DistillProgress,
    ExitCode,
    Stop,
    fields,
    heading,
    note,
    print_json,
    print_shares,
    print_table,
    stdout,
    totals,
    usage_error,
)
from tasks import Problem
from templates import load_templates
from trainer.distill import ROWS, DistillReport, DistillSettings, Questions, distill
from workflow.completion import Sampling
from workflow.failures import MetaAgentError


class Distillation(BaseModel):
    """What `distill --json` prints."""

    tasks: list[str]
    engine: str
    designer: str
    """The engine's name, or `bank`."""
    settings: DistillSettings
    report: DistillReport
    wall_s: float
    """Seconds that this command took; what was kept from before took its own then."""
    rows: Path
    """The file."""


def _run(
    tasks: Sequence[str],
    limit: int | None,
    spec: str,
    designer: str | None,
    settings: DistillSettings,
    *,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path,
    resume: bool,
    cluster: Spreading | None,
) -> Distillation:
    """Distil, with live progress on stderr. `designer` None is the bank. What is done when it is broken off is kept."""
    problems = read_tasks(tasks, limit)
    with DistillProgress(sum(map(len, problems.values()))) as progress:
        try:
            return asyncio.run(
                _distill(problems, spec, designer, settings, sandbox_name, cache, folder, resume, cluster, progress)
            )
        except (MetaAgentError, KeyboardInterrupt, Stop) as ended:
            if isinstance(ended, Stop) and ended.code == ExitCode.USAGE:
                raise
            done = progress.report
            note(
                f"{done.questions} of {progress.total} questions are done and kept in {folder}: the same command with "
                "--resume goes on from there"
            )
            raise
        except OSError as error:
            usage_error(f"cannot write to {error.filename or folder}: {error.strerror}")


async def _distill(
    problems: Mapping[str, Sequence[Problem]],
    spec: str,
    designer: str | None,
    settings: DistillSettings,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path,
    resume: bool,
    cluster: Spreading | None,
    progress: DistillProgress,
) -> Distillation:
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(open_engine(spec, cache))
        teacher = None
        if designer is not None:
            teacher = executor if designer == spec else await stack.enter_async_context(open_engine(designer, cache))
        sandbox = await stack.enter_async_context(open_sandbox(sandbox_name, grading=True))
        by_id = {problem.id: task for task, each in problems.items() for problem in each}
        make = None
        if cluster is not None:
            shared = settings.shared_among(cluster.workers)
            make = await stack.enter_async_context(
                cluster.opened(
                    partial(Questions, settings=shared, templates=load_templates(), tasks=by_id),
                    (spec, executor),
                    None if teacher is None else (designer or "", teacher),
                    sandbox=sandbox_name,
                    cache=cache,
                    folder=None,
                    at_once=settings.questions_at_once(settings.designs),
                    piece_s=settings.longest_question_s,
                )
            )
        try:
            report = await distill(
                [problem for each in problems.values() for problem in each],
                executor=executor,
                sandbox=sandbox,
                folder=folder,
                designer=teacher,
                settings=settings,
                tasks=by_id,
                resume=resume,
                watch=progress,
                make=make,
            )
        except ValueError as error:  # a folder of another distillation
            usage_error(str(error))
    return Distillation(
        tasks=list(problems),
        engine=executor.name,
        designer=teacher.name if teacher is not None else BANK,
        settings=settings,
        report=report,
        wall_s=round(progress.elapsed_s, 3),
        rows=folder / ROWS,
    )


def print_distillation(console: Console, distillation: Distillation) -> None:
    """The report for people; notes go to stderr."""
    report = distillation.report
    heading(console, "Result")
    rows = ", ".join(f"{count:,} {role}" for role, count in report.rows.items())
    same = f"; {report.duplicates:,} more were the same as one of them" if report.duplicates else ""
    fields(
        console,
        [
            ("Engine", distillation.engine),
            ("Designer", distillation.designer),
            ("Questions", f"{report.questions:,}, of which {report.solved:,} have a design that is kept"),
            ("Designs", f"{report.designs:,}, of which {report.designs_kept:,} are kept"),
            ("Runs", f"{report.runs:,}, of which {report.runs_correct:,} correct, {report.runs_kept:,} kept"),
            ("Rows", f"{rows}{same}"),
            ("Usage", totals(report.usage.usage)),
            ("Time", f"{distillation.wall_s:.1f} s"),
            ("Kept in", str(distillation.rows)),
        ],
    )
    dropped = [("designs", report.designs_dropped), ("runs", report.runs_dropped)]
    reasons = [(f"{what}: {why.replace('_', ' ')}", str(n)) for what, counts in dropped for why, n in counts.items()]
    if reasons:
        heading(console, "Dropped")
        print_table(console, ("reason", "count"), reasons)
    heading(console, "Structures")
    shares = [
        (
            name,
            str(count.designs),
            f"{count.designs / sum(each.designs for each in report.structures.values()):.1%}",
            str(count.kept),
            f"{count.kept / max(report.designs_kept, 1):.1%}",
        )
        for name, count in sorted(report.structures.items(), key=lambda item: -item[1].designs)
    ]
    print_table(console, ("structure", "designs", "share", "kept", "share of kept"), shares)
    print_shares(console, "By role", report.usage_by_role)
    if not report.rows:
        note("nothing was kept: there are no rows to learn from")


def main(
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...",
            help="FORMAT:FILE, such as gsm8k:train.jsonl; a wrong format is answered with the right ones.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Rows and attempts go here.", file_okay=False)
    ],
    engine: EngineSpec = None,
    designer: Annotated[
        str | None,
        typer.Option(
            "--designer", "-d", metavar="SPEC", help="The teacher that designs: an engine.", show_default=False
        ),
    ] = None,
    bank: Annotated[bool, typer.Option("--bank", help="No teacher designs: templates are drawn at random.")] = False,
    designs: Annotated[int, typer.Option(help="Designs per question.", min=1)] = 4,
    executions: Annotated[int, typer.Option(help="Executions of each design.", min=1)] = 1,
    k: Annotated[int, typer.Option("--k", "-k", help="Templates in the teacher's prompt.", min=0)] = 3,
    max_per_question: Annotated[
        int | None, typer.Option(help="Keep at most N designs of a question.", min=1, metavar="N")
    ] = None,
    min_format: Annotated[float, typer.Option(help="Least share of agents that keep the format in a kept run.")] = 1.0,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N problems of each task.", min=1, metavar="N")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what this folder holds, if anything.")] = False,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = SAMPLING.temperature,
    max_tokens: Annotated[int, typer.Option(help="Longest reply, in tokens.")] = SAMPLING.max_tokens,
    max_concurrent: Annotated[int, typer.Option(help="Designs and runs under way at once.", min=1)] = 16,
    cluster: ClusterAddress = None,
    nodes: Nodes = None,
    run_workers: RunWorkers = None,
    replicas: Replicas = None,
    gpus_per_node: GpusPerNode = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Make chat rows for a cold start: designs, executed and graded, of which the correct ones are kept.

    FOLDER/rows.jsonl has the conversations of both roles, for metaagent sft; FOLDER/attempts.jsonl all that was done.
    """
    if not engine:
        usage_error("distilling needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    if (designer is None) != bank:
        usage_error("say who designs: --designer SPEC for a teacher, or --bank for templates; one of them")
    sampling = validated(Sampling, temperature=temperature, max_tokens=max_tokens)
    settings = validated(
        DistillSettings,
        designs=designs,
        executions=executions,
        k=k,
        max_per_question=max_per_question,
        min_format=min_format,
        seed=seed,
        sampling=sampling,
        designer_sampling=sampling,
        max_concurrent=max_concurrent,
    )
    document = _run(
        tasks,
        limit,
        engine,
        designer,
        settings,
        sandbox_name=sandbox,
        cache=cache,
        folder=out,
        resume=resume,
        cluster=spreading(cluster, nodes, run_workers, replicas, gpus_per_node),
    )
    if as_json:
        print_json(document)
    else:
        print_distillation(stdout(), document)
    return ExitCode.OK
