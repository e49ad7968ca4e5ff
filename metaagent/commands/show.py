"""`metaagent show`: the graph of a program's workflow, built in a jail. Asks no agent."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from designer.check import check_program
from metaagent.commands.inputs import read_text
from metaagent.commands.options import AsJson, ProgramFile
from metaagent.opening import open_sandbox
from metaagent.terminal import ExitCode, mermaid_text, print_findings, print_json, raw, stderr, stdout, tree
from sandbox import Description


def main(
    program: ProgramFile,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid text instead of a tree.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Show the graph of a program's workflow.

    The workflow is built in a jail; no agent is asked.
    """
    described = asyncio.run(_describe(read_text(program)))
    if as_json:
        print_json(described)
    elif described.graph is None:
        print_findings(stderr(), str(program), described.findings)
    elif mermaid:
        raw(stdout(), mermaid_text(described.graph))
    else:
        stdout().print(tree(described.graph, described.unreachable))
    return ExitCode.BAD if described.graph is None else ExitCode.OK


async def _describe(source: str) -> Description:
    """What a program builds, found in a jail; where it builds nothing, all that the check says about it."""
    async with open_sandbox() as sandbox:
        described = await sandbox.describe(source)
        if described.graph is not None:
            return described
        report = await check_program(source, sandbox)
        return Description(findings=report.findings or described.findings)
