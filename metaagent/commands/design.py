"""Designs programs for a problem, with the template bank or with an engine, and reports them.

The bank needs no model. Whatever designed a program, it is checked in a jail before anybody sees its graph; running
it is `metaagent.commands.run`'s business.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from designer.bank import design_from_bank
from designer.check import check_program
from designer.sample import Design, sample_designs
from metaagent import embedded
from metaagent.commands.designs_shown import DesignReport, Proposal, print_report
from metaagent.commands.inputs import read_problem
from metaagent.commands.options import (
    LIMITS,
    SAMPLING,
    AsJson,
    CacheFolder,
    EngineSpec,
    MaxTokens,
    PageOut,
    ProblemFile,
    ProblemText,
    ReplySeconds,
    SandboxName,
    Seed,
    Temperature,
    View,
    validated,
)
from metaagent.commands.outputs import PAGE, PROGRAM, check_apart, check_output, open_output
from metaagent.commands.run import Shown, all_of, run_checked, was_interrupted
from metaagent.commands.run_settings import RunSettings
from metaagent.opening import open_engine, open_sandbox
from metaagent.serving_pages import viewing
from metaagent.terminal import (
    ExitCode,
    LiveProgress,
    Stop,
    note,
    print_json,
    stdout,
    usage_error,
)
from sandbox.host import JailSandbox
from workflow.completion import Sampling, Usage
from workflow.limits import Limits
from workflow.trace import Trace
from workflow.usage import usage_report

if TYPE_CHECKING:
    from viewer import WorkSite

FIRST_DESIGN = "designer/0/"
"""How the keys of its requests begin."""


async def _design(
    problem: str,
    spec: str | None,
    *,
    samples: int,
    style: Literal["full", "short"],
    run: bool,
    seed: int,
    sampling: Sampling = SAMPLING,
    limits: Limits = LIMITS,
    sandbox_name: str | None = None,
    cache: Path | None = None,
    site: WorkSite | None = None,
) -> DesignReport:
    """Designs for a problem: the bank's one, or `samples` of the engine that `spec` names; run what is chosen.

    `cache` is a folder that keeps the engine's replies. Ctrl-C ends it with the designs that are finished, if any are,
    and nothing is run.
    """
    if spec is None:
        async with open_sandbox(sandbox_name) as sandbox:
            designs = [await from_bank(problem, sandbox)]
        _show_on(site, designs)
        return DesignReport(problem=problem, engine=None, designs=designs, chosen=_first_good(designs))
    async with open_engine(spec, cache) as engine, open_sandbox(sandbox_name) as sandbox:
        with LiveProgress(f"Designing with {engine.name}") as progress:
            written = site.written if site is not None else None
            sampled: list[Design] = []
            with progress.watching(engine, FIRST_DESIGN, written):
                try:
                    await sample_designs(
                        problem,
                        engine,
                        sandbox,
                        m=samples,
                        sampling=sampling,
                        style=style,
                        seed=seed,
                        reply_s=limits.reply_s,
                        finished=sampled.append,
                    )
                except asyncio.CancelledError:
                    if not (sampled or progress.wrote) or not was_interrupted():
                        raise
            sampled.sort(key=lambda design: design.index)
            designs = [_proposal(sample, engine.name) for sample in sampled]
            if len(sampled) < samples:
                designs += _unfinished(progress.wrote, sampled, engine.name)
            _show_on(site, designs)
            traces: list[Trace] = []
            report = DesignReport(
                problem=problem,
                engine=engine.name,
                designs=designs,
                chosen=_first_good(designs),
                usage=Usage.total(sample.usage for sample in sampled),
                interrupted=len(sampled) < samples,
            )
            if run and not report.interrupted and report.design is not None and report.design.program is not None:
                progress.start("Running")
                if site is not None:
                    site.runs(report.design.graph)
                shown: list[Shown] = [progress] if site is None else [progress, site]
                with progress.watching(engine):
                    report.run, run_done = await run_checked(
                        report.design.program,
                        problem,
                        program="the design",
                        engine=engine,
                        sandbox=sandbox,
                        settings=RunSettings(seed=seed, sampling=sampling, limits=limits),
                        wrote=progress.wrote,
                        sink=all_of(*shown),
                        asking=all_of(*(each.asking for each in shown)),
                    )
                report.interrupted = report.run.interrupted
                traces.append(run_done.trace)
            report.usage_report = usage_report(traces, (turn.completion for each in sampled for turn in each.turns))
        return report


async def from_bank(problem: str, sandbox: JailSandbox) -> Proposal:
    """The bank's design for a problem, checked like any other."""
    made = design_from_bank(problem)
    report = await check_program(made.program, sandbox, problem)
    return Proposal(
        source="bank",
        ok=report.ok,
        template=made.template,
        reason=made.reason,
        program=made.program,
        findings=report.findings,
        graph=report.graph,
    )


def _proposal(sample: Design, engine: str) -> Proposal:
    pattern = re.search(r"^[^\w\n]*+Workflow Pattern[^\w\n:]*+:\W*+(\S.*)$", "\n".join(sample.replies), re.MULTILINE)
    return Proposal(
        source=engine,
        ok=sample.ok,
        reason=pattern[1].strip() if pattern else "",
        repaired=sample.repaired,
        failure=f"{sample.error.kind.replace('_', ' ')}: {sample.error.message}" if sample.error else "",
        program=sample.source,
        findings=sample.findings,
        graph=sample.graph,
    )


def _unfinished(wrote: Mapping[str, str], finished: Sequence[Design], engine: str) -> list[Proposal]:
    """What was written of designs before Ctrl-C: the newest of each one's replies."""
    written: dict[int, str] = {}
    for key, text in wrote.items():
        written[int(key.split("/")[1])] = text
    unfinished = sorted(written.keys() - {design.index for design in finished})
    return [
        Proposal(source=engine, ok=False, program=None, failure="interrupted", written=written[index])
        for index in unfinished
    ]


def _show_on(site: WorkSite | None, designs: list[Proposal]) -> None:
    if site is None:
        return
    from viewer import Designed

    chosen = _first_good(designs)
    site.designed(
        [
            Designed(
                by=f"the template {design.template}" if design.template else design.source,
                program=design.program,
                reason=design.reason,
                failure=design.failure,
                findings=design.findings,
                graph=design.graph,
                chosen=place == chosen,
            )
            for place, design in enumerate(designs)
        ]
    )


def _first_good(designs: list[Proposal]) -> int | None:
    return next((index for index, design in enumerate(designs) if design.ok), None)


def main(
    problem: ProblemText = None,
    file: ProblemFile = None,
    engine: EngineSpec = None,
    samples: Annotated[int, typer.Option("--samples", "-m", help="Designs to draw from the engine.", min=1)] = 1,
    style: Annotated[
        Literal["full", "short"], typer.Option(help="Prompt: with templates, or as in training.")
    ] = "full",
    save: Annotated[Path | None, typer.Option("--save", "-o", help="Write the program here.", dir_okay=False)] = None,
    view: View = False,
    out: PageOut = None,
    run: Annotated[bool, typer.Option("--run", help="Run the program on the problem; needs an engine.")] = False,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Temperature = SAMPLING.temperature,
    max_tokens: MaxTokens = SAMPLING.max_tokens,
    reply_s: ReplySeconds = LIMITS.reply_s,
    as_json: AsJson = False,
) -> ExitCode:
    """Write a multi-agent program for a problem.

    Shows why it is built this way, its code and its graph. Without an engine the embedded policy writes it where it
    knows the problem and torch is installed, else the template bank, with no model at all.
    """
    text = read_problem(problem, file)
    sampling = validated(Sampling, temperature=temperature, max_tokens=max_tokens)
    limits = validated(Limits, reply_s=reply_s)
    if not engine and cache is None and embedded.knows(text) and not embedded.missing():
        engine = embedded.SPEC
    if engine == embedded.SPEC:
        if not embedded.knows(text):
            usage_error(
                "the embedded policy knows the small problems of tasks.data.miniature alone. Fix: another --engine"
            )
        style = "short"  # as it was taught
    if run and not engine:
        usage_error("--run needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    if cache is not None and not engine:
        usage_error("--cache keeps an engine's replies. Fix: add --engine openai:MODEL@URL, or leave --cache out")
    if samples > 1 and not engine:
        note("the template bank gives one design; --samples needs an engine")
    check_apart(save=save, out=out)
    for path, kind in ((save, PROGRAM), (out, PAGE)):
        if path is not None:
            check_output(path, kind)
    with viewing(view, out, text, as_json=as_json) as site:
        report = asyncio.run(
            _design(
                text,
                engine or None,
                samples=samples,
                style=style,
                run=run,
                seed=seed,
                sampling=sampling,
                limits=limits,
                sandbox_name=sandbox,
                cache=cache,
                site=site,
            )
        )
        unsaved = ""
        if save is not None and (design := report.design) is not None:
            report.saved = str(save) if not (unsaved := _unsaved(save, design.program or "")) else None
        if as_json:
            print_json(report)
        else:
            print_report(stdout(), report)
        if unsaved:
            note(unsaved)
        if report.interrupted:
            raise typer.Exit(report.exit_code)  # a page that is served ends with it
    if unsaved:
        return ExitCode.USAGE
    return report.exit_code


def _unsaved(path: Path, program: str) -> str:
    """Why the program could not be written, or nothing: what has been designed is shown in any case."""
    try:
        with open_output(path, PROGRAM) as file:
            file.write(program)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    except Stop as stop:
        return str(stop)
    return ""
