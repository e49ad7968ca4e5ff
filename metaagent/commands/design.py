"""Designs programs for a problem, with the template bank or with an engine, and reports them.

The bank needs no model. Whatever designed a program, it is checked in a jail before anybody sees its graph; running
it is `metaagent.commands.run`'s business.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from designer.bank import design_from_bank
from designer.check import check_program
from designer.sample import Design, sample_designs
from metaagent import embedded
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
from metaagent.commands.run import RunSettings, Shown, all_of, run_checked
from metaagent.opening import open_engine, open_sandbox
from metaagent.serving_pages import viewing
from metaagent.terminal import (
    ExitCode,
    LiveProgress,
    RunReport,
    Stop,
    cache_line,
    code,
    fields,
    heading,
    note,
    print_findings,
    print_json,
    print_run,
    print_shares,
    stdout,
    totals,
    tree,
    usage_error,
)
from sandbox.host import JailSandbox
from workflow.completion import Sampling, Usage
from workflow.failures import Finding
from workflow.graph import GraphNode
from workflow.limits import Limits
from workflow.trace import Trace
from workflow.usage import UsageReport, usage_report

if TYPE_CHECKING:
    from viewer import WorkSite

PLUG_IN = (
    "to have a real model design and run it, add --engine openai:MODEL@http://localhost:8000/v1 or set METAAGENT_ENGINE"
)
FIRST_DESIGN = "designer/0/"
"""How the keys of its requests begin."""
SHOWN_AS = "program.py"
"""What an unsaved program is called in findings."""


class Proposal(BaseModel):
    """One program written for the problem, or why there is none."""

    source: str
    """`bank`, or the engine's name."""
    ok: bool
    """Whether it passed the check."""
    template: str | None = None
    reason: str = ""
    """Why the bank chose the template, or the pattern that the model names with its reason."""
    repaired: bool = False
    """Whether the first version failed the check, and what it found was fed back."""
    failure: str = ""
    """Why the program may not run."""
    program: str | None
    findings: list[Finding] = []
    graph: GraphNode | None = None


class DesignReport(BaseModel):
    """What `design --json` prints."""

    problem: str
    engine: str | None
    designs: list[Proposal]
    chosen: int | None
    """Index of the first design that passed its check; it is the one that is saved and run."""
    usage: Usage = Usage()
    """Tokens spent on designing."""
    usage_report: UsageReport = UsageReport()
    """Designing and running, by role and by agent."""
    saved: str | None = None
    run: RunReport | None = None
    interrupted: bool = False
    """Whether it was stopped before all designs were finished."""

    @property
    def design(self) -> Proposal | None:
        return None if self.chosen is None else self.designs[self.chosen]

    @property
    def exit_code(self) -> ExitCode:
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.chosen is None:
            return ExitCode.BAD
        return self.run.exit_code if self.run else ExitCode.OK


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
                    this = asyncio.current_task()
                    if not sampled or not this or this.uncancel():
                        raise
            sampled.sort(key=lambda design: design.index)
            designs = [_proposal(sample, engine.name) for sample in sampled]
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
                        sink=all_of(*shown),
                        asking=all_of(*(each.asking for each in shown)),
                    )
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


def print_report(console: Console, report: DesignReport) -> None:
    """All designs with their checks; code and graph of the one that is chosen, or of the first where none is."""
    shown = report.chosen or 0
    for index, proposal in enumerate(report.designs):
        if len(report.designs) > 1:
            chosen = "chosen" if index == report.chosen else ""
            heading(console, f"Design {index + 1} of {len(report.designs)}", chosen)
        print_design(console, proposal, code_too=index == shown)
    if report.engine is not None:
        console.print()
        cached = "" if report.run else cache_line(report.usage_report.total)
        fields(console, [("Spent on designing", totals(report.usage)), ("Cache", cached)])
    if report.interrupted:
        note(f"interrupted: the {len(report.designs)} that were finished are shown")
    if report.saved:
        note(f"saved {report.saved}")
    if report.run is not None:
        print_run(console, report.run)
        print_shares(console, "By role", report.usage_report.by_role)
    if report.engine is None:
        note(f"no engine is configured, so the template bank designed this; {PLUG_IN}")
        if embedded.knows(report.problem):
            note(f"the embedded policy knows such problems, but {embedded.missing()}")
    elif report.engine == embedded.SPEC:
        note(f"{embedded.about()}; {PLUG_IN}")


def print_design(console: Console, design: Proposal, *, code_too: bool = True) -> None:
    """Who designed this and why, what the check says; then its code and its graph."""
    checked = ("passed" if design.ok else "failed") + (", after one repair round" if design.repaired else "")
    fields(
        console,
        [
            ("Template", design.template or ""),
            ("Designer", "" if design.template else design.source),
            ("Why", design.reason),
            ("Check", Text(checked, style="green" if design.ok else "red")),
            ("Failed", "" if design.findings else Text(design.failure, style="red")),
        ],
    )
    print_findings(console, SHOWN_AS, design.findings)
    if code_too and design.program is not None:
        heading(console, "Program")
        code(console, design.program)
    if code_too and design.graph is not None:
        heading(console, "Graph")
        console.print(tree(design.graph))


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
