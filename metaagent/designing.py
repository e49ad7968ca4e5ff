"""Designs programs for a problem, with the template bank or with an engine, and reports them.

The bank needs no model. Whatever designed a program, it is checked in a jail before anybody sees its graph; running
it is `metaagent.running`'s business.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from designer.bank import design_from_bank
from designer.check import check_program
from designer.sample import Design, sample_designs
from metaagent import embedded
from metaagent.console import ExitCode, code, fields, heading, note
from metaagent.progress import LiveProgress
from metaagent.render import tree
from metaagent.running import (
    RunReport,
    RunSettings,
    open_engine,
    open_sandbox,
    print_findings,
    print_run,
    run_checked,
)
from metaagent.transcript import cache_line, print_shares, totals
from sandbox.base import JailSandbox
from workflow.completion import Usage
from workflow.failures import Finding
from workflow.graph import GraphNode
from workflow.trace import Trace
from workflow.usage import UsageReport, usage_report

PLUG_IN = (
    "to have a real model design and run it, add --engine openai:MODEL@http://localhost:8000/v1 or set METAAGENT_ENGINE"
)
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

    @property
    def design(self) -> Proposal | None:
        return None if self.chosen is None else self.designs[self.chosen]

    @property
    def exit_code(self) -> ExitCode:
        if self.chosen is None:
            return ExitCode.BAD
        return self.run.exit_code if self.run else ExitCode.OK


async def design(
    problem: str,
    spec: str | None,
    *,
    samples: int,
    style: Literal["full", "short"],
    run: bool,
    seed: int,
    sandbox_name: str | None = None,
    cache: Path | None = None,
) -> DesignReport:
    """Designs for a problem: the bank's one, or `samples` of the engine that `spec` names; run what is chosen.

    `cache` is a folder that keeps the engine's replies.
    """
    if spec is None:
        async with open_sandbox(sandbox_name) as sandbox:
            designs = [await from_bank(problem, sandbox)]
        return DesignReport(problem=problem, engine=None, designs=designs, chosen=_first_good(designs))
    async with open_engine(spec, cache) as engine, open_sandbox(sandbox_name) as sandbox:
        with LiveProgress(f"Designing with {engine.name}") as progress:
            sampled = await sample_designs(problem, engine, sandbox, m=samples, style=style, seed=seed)
            designs = [_proposal(sample, engine.name) for sample in sampled]
            traces: list[Trace] = []
            report = DesignReport(
                problem=problem,
                engine=engine.name,
                designs=designs,
                chosen=_first_good(designs),
                usage=Usage.total(sample.usage for sample in sampled),
            )
            if run and report.design is not None and report.design.program is not None:
                progress.start("Running")
                report.run, run_done = await run_checked(
                    report.design.program,
                    problem,
                    program="the design",
                    engine=engine,
                    sandbox=sandbox,
                    settings=RunSettings(seed=seed),
                    sink=progress,
                )
                traces.append(run_done.trace)
            replies = (turn.completion for sample in sampled for turn in sample.turns)
            report.usage_report = usage_report(traces, replies)
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
    pattern = re.search(r"^\W*Workflow Pattern\W*:\W*(\S.*)$", "\n".join(sample.replies), re.MULTILINE)
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
