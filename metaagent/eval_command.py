"""`metaagent eval`: its options. What it does and prints is `metaagent.evaluating`'s, which is loaded when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from metaagent.console import ExitCode, print_json, stdout, usage_error
from metaagent.options import AsJson, CacheFolder, EngineSpec, SandboxName, Seed, validated
from workflow.completion import Sampling

SAMPLING = Sampling()


def evaluate(
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
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = SAMPLING.temperature,
    max_tokens: Annotated[int, typer.Option(help="Longest reply, in tokens.")] = SAMPLING.max_tokens,
    max_concurrent: Annotated[int, typer.Option(help="Attempts under way at once.", min=1)] = 16,
    as_json: AsJson = False,
) -> ExitCode:
    """Measure pass rates over tasks: k attempts at each problem, with 95% intervals.

    Also tells which structures were designed, what failed, how different the agents were, and what it cost.
    """
    from metaagent import evaluating
    from trainer.evaluate import EvalSettings

    if not engine:
        usage_error("evaluating needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    sampling = validated(Sampling, temperature=temperature, max_tokens=max_tokens)
    settings = EvalSettings(
        k=k, seed=seed, sampling=sampling, designer_sampling=sampling, style=style, max_concurrent=max_concurrent
    )
    problems = evaluating.read_tasks(tasks, limit)
    document = evaluating.run(problems, engine, designer, settings, sandbox_name=sandbox, cache=cache, folder=out)
    if as_json:
        print_json(document)
    else:
        evaluating.print_evaluation(stdout(), document)
    return ExitCode.OK
