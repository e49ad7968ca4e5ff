"""`metaagent check`: findings about programs, each with its line and fix. Runs none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from designer.check import CheckReport, check_program
from metaagent.commands.inputs import read_text
from metaagent.commands.options import AsJson
from metaagent.opening import open_sandbox
from metaagent.terminal import ExitCode, Stop, print_findings, print_json, stderr, stdout, usage_error


def main(
    programs: Annotated[
        list[Path],
        typer.Argument(metavar="PROGRAM.py...", help="The programs."),
    ],
    as_json: AsJson = False,
) -> ExitCode:
    """Check programs without asking any agent.

    Prints one finding per line, with its fix. A file that cannot be read keeps none of the others from being checked.
    """
    sources: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for path in programs:
        try:
            sources[str(path)] = read_text(path)
        except Stop as stop:
            unreadable[str(path)] = str(stop)
    if not sources:
        usage_error("; ".join(unreadable.values()))
    reports = asyncio.run(_check_all(sources))
    if as_json:
        ok = not unreadable and all(report.ok for report in reports.values())
        print_json({"ok": ok, "programs": reports, "unreadable": unreadable})
    else:
        for name, report in reports.items():
            print_findings(stdout(), name, report.findings)
        bad = sum(not report.ok for report in reports.values())
        counted = "1 program" if len(reports) == 1 else f"{len(reports)} programs"
        stderr().print(f"{counted} checked: " + (f"{bad} may not run" if bad else "all may run"))
        for message in unreadable.values():
            stderr().print(Text.assemble(("error: ", "bold red"), message))
    if unreadable:
        return ExitCode.USAGE
    return ExitCode.OK if all(report.ok for report in reports.values()) else ExitCode.BAD


async def _check_all(sources: dict[str, str]) -> dict[str, CheckReport]:
    """Check programs, given by name, one after the other."""
    async with open_sandbox() as sandbox:
        return {name: await check_program(source, sandbox) for name, source in sources.items()}
