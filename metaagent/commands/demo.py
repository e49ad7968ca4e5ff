"""`metaagent demo`: the main job on a real problem, without a model.

The bank designs for it; then a program written for it runs in the jail, with its agent's recorded reply in place of a
model, and the answer is graded.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from designer.check import check_program
from engine.replay import ReplayEngine, ReplayEntry
from metaagent.commands.design import from_bank
from metaagent.commands.designs_shown import print_design
from metaagent.commands.inputs import read_text
from metaagent.commands.run import run_checked
from metaagent.commands.run_settings import RunSettings
from metaagent.demo import GOLD, PROBLEM, PROGRAM, REPLAY, text
from metaagent.opening import open_sandbox
from metaagent.terminal import ExitCode, block, code, heading, print_findings, print_run, print_transcript, stdout, tree
from tasks import Problem


def main(
    program: Annotated[
        Path | None,
        typer.Option(
            help="Run this program instead; its one agent must be named MathSolver.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
) -> ExitCode:
    """Show the main job on a real problem, without a model.

    Design, graph, run, trace, grade; the agent's reply is a recorded one.
    """
    source = None if program is None else (str(program), read_text(program))
    return asyncio.run(_show(stdout(), source))


async def _show(console: Console, program: tuple[str, str] | None = None) -> ExitCode:
    """Design, run, trace, grade. `program` is another program's name and source."""
    name, source = program or (PROGRAM, text(PROGRAM))
    async with open_sandbox(grading=True) as sandbox:
        heading(console, "Problem", "AIME 2024 I, problem 4")
        block(console, PROBLEM)
        heading(console, "1. A program designed for it by the template bank, without a model")
        print_design(console, await from_bank(PROBLEM, sandbox))

        heading(console, "2. A program for it, run in the jail", name)
        code(console, source)
        checked = await check_program(source, sandbox, PROBLEM)
        print_findings(console, name, checked.findings)
        if not checked.ok or checked.graph is None:
            return ExitCode.BAD
        heading(console, "Graph")
        console.print(tree(checked.graph))
        engine = ReplayEngine([ReplayEntry.model_validate_json(line) for line in text(REPLAY).splitlines()])
        settings = RunSettings(graded=Problem(id="problem", question=PROBLEM, domain="math", gold=GOLD))
        report, run = await run_checked(
            source, PROBLEM, program=name, engine=engine, sandbox=sandbox, settings=settings
        )
        heading(console, "3. What happened", "the agent's reply is a recorded one")
        print_transcript(console, run.trace)
        print_run(console, report, transcribed=True)
        return report.exit_code
