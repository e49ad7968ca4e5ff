"""`metaagent trace`: the transcript of one run, out of its trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metaagent.commands.options import AsJson
from metaagent.terminal import ExitCode, note, print_json, print_transcript, read_trace, stdout, trace_document


def main(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace.", exists=True, dir_okay=False, readable=True)],
    full: Annotated[bool, typer.Option("--full", help="Show prompts and replies in full.")] = False,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="Show every reply that was drawn at a call, with what it earned.")
    ] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Print the transcript of one run from its trace."""
    read = read_trace(file)
    if as_json:
        print_json(trace_document(read))
        return ExitCode.OK
    print_transcript(stdout(), read.trace, full=full, candidates=candidates)
    if read.torn:
        note("the last line was cut short and is left out")
    if read.trace.ended is None:
        note("the trace has no end: the run was killed, or is still going on")
    return ExitCode.OK
