"""What `design` says of the programs that were written: its report, as JSON and for people. Runs nothing."""

from __future__ import annotations

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from metaagent import embedded
from metaagent.terminal import (
    ExitCode,
    RunReport,
    block,
    cache_line,
    code,
    fields,
    heading,
    note,
    print_findings,
    print_run,
    print_shares,
    totals,
    tree,
)
from workflow.completion import Usage
from workflow.failures import Finding
from workflow.graph import GraphNode
from workflow.usage import UsageReport

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
    written: str = ""
    """What the model had written of it when it was interrupted, as far as that was watched."""
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
    """Whether it was stopped before all designs were finished, or before the run was."""

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
    if report.run is not None and report.run.interrupted:
        note("interrupted: what there was of the run by then is shown")
    elif report.interrupted:
        finished = sum(not design.written for design in report.designs)
        others = finished < len(report.designs)
        if finished:
            beside = ", with what was written of others" if others else ""
            note(f"interrupted: the {finished} that were finished are shown{beside}")
        elif others:
            note("interrupted: what was written by then is shown")
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
    if design.written:
        heading(console, "Written by then")
        block(console, design.written)
    if code_too and design.program is not None:
        heading(console, "Program")
        code(console, design.program)
    if code_too and design.graph is not None:
        heading(console, "Graph")
        console.print(tree(design.graph))
