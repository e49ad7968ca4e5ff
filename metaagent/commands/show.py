"""`metaagent show`: the graph of a program's workflow, built in a jail, or the tree of a search. Asks no agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from designer.check import check_program
from metaagent.commands.inputs import read_text
from metaagent.commands.options import AsJson
from metaagent.opening import open_sandbox
from metaagent.terminal import (
    ExitCode,
    fields,
    mermaid_text,
    note,
    print_findings,
    print_json,
    raw,
    search_tree,
    stderr,
    stdout,
    tree,
    tree_document,
    usage_error,
)
from sandbox import Description
from search.problem import TreeDamaged, TreeRecord, read_tree

TREES = ".jsonl"
_PIPED = 1000
"""Columns of a tree in a pipe, where nothing is cut."""


def main(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM.py|TREE.jsonl", help="The program, or a tree of a search.", exists=True, dir_okay=False
        ),
    ],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid text instead of a tree.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Show the graph of a program's workflow, or the tree of a search.

    The workflow is built in a jail; no agent is asked.
    """
    if file.suffix == TREES:
        return _show_tree(file, mermaid, as_json)
    described = asyncio.run(_describe(read_text(file)))
    if as_json:
        print_json(described)
    elif described.graph is None:
        print_findings(stderr(), str(file), described.findings)
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


def _show_tree(file: Path, mermaid: bool, as_json: bool) -> ExitCode:
    if mermaid:
        usage_error("--mermaid draws programs. Fix: leave it out")
    try:
        record = read_tree(file)
    except TreeDamaged as error:
        usage_error(str(error))
    except OSError as error:
        usage_error(f"cannot read {file}: {error.strerror}")
    if as_json:
        print_json(tree_document(record))
        return ExitCode.OK
    drawn, left_out = search_tree(record)
    console = stdout()
    fields(console, _facts(record))
    console.print()
    console.width = console.width if console.is_terminal else _PIPED
    console.print(drawn)
    if left_out:
        note(f"{left_out:,} of {len(record.nodes) - 1:,} states are left out, the least visited; --json has all")
    if record.torn:
        note("the file's last line was cut off, and is left out: what wrote it goes on from there")
    return ExitCode.OK


def _facts(record: TreeRecord) -> list[tuple[str, str]]:
    header = record.header
    ends = [node.end for node in record.nodes.values() if node.end is not None]
    right = f", {sum(end.reward == 1 for end in ends):,} right" if any(end.reward is not None for end in ends) else ""
    return [
        ("Problem", header.problem),
        (
            "Searched",
            ", ".join(f"{name} {value}" for name, value in header.settings.items() if value not in (None, "")),
        ),
        ("Engine", header.engine),
        ("States", f"{len(record.nodes) - 1:,}; {len(ends):,} end{'s' * (len(ends) != 1)}{right}"),
        ("Simulations", f"{len(record.simulations):,}" if record.simulations else ""),
        ("Ended by", "" if record.chosen is None else record.chosen.stopped_by),
    ]
