"""Designs programs for a problem, with the template bank or with an engine, and reports them.

The bank needs no model. Whatever designed a program, it is checked in a jail before anybody sees its graph; running
it is `metaagent.running`'s business.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from designer.bank import design_from_bank
from designer.check import check_program
from metaagent.console import ExitCode, code, fields, heading, note
from metaagent.render import tree
from metaagent.running import RunReport, open_engine, open_sandbox, print_findings, print_run
from sandbox import ProcessSandbox
from workflow.failures import Finding
from workflow.graph import GraphNode

PLUG_IN = (
    "no engine is configured, so the template bank designed this; to have a model design and run it, add "
    "--engine openai:MODEL@http://localhost:8000/v1 or set METAAGENT_ENGINE"
)


class Design(BaseModel):
    """One program written for the problem."""

    source: str
    """`bank`, or the engine's name."""
    ok: bool
    """Whether it passed the check."""
    template: str | None = None
    reason: str = ""
    """Why the bank chose the template, or what the model says about its design."""
    repaired: bool = False
    """Whether it took the one repair round to pass."""
    problem: str = ""
    """Why there is no program."""
    program: str | None
    findings: list[Finding] = []
    graph: GraphNode | None = None


class DesignReport(BaseModel):
    """What `design --json` prints."""

    problem: str
    engine: str | None
    designs: list[Design]
    chosen: int | None
    """Index of the first design that passed its check; it is the one that is shown, saved and run."""
    saved: str | None = None
    run: RunReport | None = None

    @property
    def design(self) -> Design | None:
        return None if self.chosen is None else self.designs[self.chosen]

    @property
    def exit_code(self) -> ExitCode:
        if self.chosen is None:
            return ExitCode.BAD
        return self.run.exit_code if self.run else ExitCode.OK


async def from_bank(problem: str, sandbox: ProcessSandbox) -> Design:
    design = design_from_bank(problem)
    report = await check_program(design.program, sandbox, problem)
    return Design(
        source="bank",
        ok=report.ok,
        template=design.template,
        reason=design.reason,
        program=design.program,
        findings=report.findings,
        graph=report.graph,
    )


def print_design(console: Console, design: Design) -> None:
    """Why this program, its code, its findings and its graph."""
    how = "passed the check" + (" after one repair" if design.repaired else "") if design.ok else "failed the check"
    fields(
        console,
        [
            ("Template", design.template or ""),
            ("Designer", "" if design.template else design.source),
            ("Why", design.reason),
            ("Check", Text(how, style="green" if design.ok else "red")),
        ],
    )
    if design.program is not None:
        heading(console, "Program")
        code(console, design.program)
    if design.findings:
        heading(console, "Findings")
        print_findings(console, "program", design.findings)
    if design.graph is not None:
        heading(console, "Graph")
        console.print(tree(design.graph))


def print_report(console: Console, report: DesignReport) -> None:
    """The chosen design for people, with what became of the others."""
    for number, design in enumerate(report.designs, 1):
        if len(report.designs) > 1:
            heading(console, f"Design {number} of {len(report.designs)}")
        print_design(console, design)
    if report.saved:
        note(f"saved {report.saved}")
    if report.run is not None:
        print_run(console, report.run)
    if report.engine is None:
        note(PLUG_IN)


async def design(
    problem: str, spec: str | None, *, samples: int, style: Literal["full", "short"], run: bool, seed: int
) -> DesignReport:
    """Designs for a problem: the bank's one, or `samples` of the engine that `spec` names. Run what is chosen."""
    if spec is None:
        async with open_sandbox() as sandbox:
            designs = [await from_bank(problem, sandbox)]
        return DesignReport(problem=problem, engine=None, designs=designs, chosen=_first_good(designs))
    async with open_engine(spec) as engine, open_sandbox() as sandbox:
        raise NotImplementedError


def _first_good(designs: list[Design]) -> int | None:
    return next((index for index, design in enumerate(designs) if design.ok), None)
