"""`metaagent distill`: its options. What it does and prints is `metaagent.distilling`'s, loaded when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metaagent.console import ExitCode, print_json, stdout, usage_error
from metaagent.options import AsJson, CacheFolder, EngineSpec, SandboxName, Seed, validated
from workflow.completion import Sampling

SAMPLING = Sampling()


def distill(
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
    as_json: AsJson = False,
) -> ExitCode:
    """Make chat rows for a cold start: designs, executed and graded, of which the correct ones are kept.

    FOLDER/rows.jsonl has the conversations of both roles, for metaagent sft; FOLDER/attempts.jsonl all that was done.
    """
    from metaagent import distilling
    from trainer.distill import DistillSettings

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
    document = distilling.run(
        tasks, limit, engine, designer, settings, sandbox_name=sandbox, cache=cache, folder=out, resume=resume
    )
    if as_json:
        print_json(document)
    else:
        distilling.print_distillation(stdout(), document)
    return ExitCode.OK
