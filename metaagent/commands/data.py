"""Prepares the training sets that the recipes name, and lists them: what `metaagent data` does.

Opens the sandbox, downloads, shows progress and counts; which rows are kept, and how, is `tasks.data`'s.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import BaseModel
from rich.console import Console

from metaagent.commands.options import AsJson, SandboxName
from metaagent.opening import open_sandbox
from metaagent.terminal import (
    DataProgress,
    ExitCode,
    Stop,
    fields,
    heading,
    note,
    one_line,
    print_json,
    print_table,
    stderr,
    stdout,
    usage_error,
)
from tasks.data import (
    TRAINING_SETS,
    DatasetError,
    DownloadError,
    KnownAnswers,
    Prepared,
    download,
    grade_known_answers,
    manifest_of,
    prepare_training_set,
)
from workflow.checks import nearest


class Preparation(BaseModel):
    """What `data prepare --json` prints."""

    path: Path
    """The file."""
    prepared: Prepared
    known_answers: KnownAnswers
    wall_s: float


def _prepare(
    name: str, source: Path | None, out: Path, limit: int | None, references: bool, sandbox_name: str | None
) -> Preparation:
    began = time.monotonic()
    try:
        if source is None:
            published = TRAINING_SETS[name].published
            stderr().print(f"Downloading {published.files} of {published.repository}")
            source = download(published)
        prepared, known = asyncio.run(_prepare_and_grade(name, source, out, limit, references, sandbox_name))
    except DownloadError as error:
        raise Stop(str(error), ExitCode.INFRASTRUCTURE) from None
    except DatasetError as error:
        usage_error(str(error))
    except OSError as error:
        usage_error(f"cannot write to {error.filename or out}: {error.strerror}")
    return Preparation(
        path=out / prepared.file,
        prepared=prepared,
        known_answers=known,
        wall_s=round(time.monotonic() - began, 3),
    )


async def _prepare_and_grade(
    name: str, source: Path, out: Path, limit: int | None, references: bool, sandbox_name: str | None
) -> tuple[Prepared, KnownAnswers]:
    async with open_sandbox(sandbox_name, grading=True) as sandbox:
        await sandbox.run_code("pass")  # a sandbox that cannot grade is told now, not after an hour
        with DataProgress() as progress:
            prepared = await prepare_training_set(
                name, source, out, sandbox, limit=limit, references=references, watch=progress
            )
            progress.grading()
            return prepared, await grade_known_answers(name, out / prepared.file, source, sandbox)


def print_preparation(console: Console, preparation: Preparation) -> None:
    """The report for people."""
    prepared, known = preparation.prepared, preparation.known_answers
    left_out = sum(each.rows for each in prepared.left_out)
    heading(console, "Result")
    fields(
        console,
        [
            ("Data", f"{prepared.name} ({prepared.repository})"),
            ("Source", prepared.source),
            ("Files", f"{len(prepared.files):,}"),
            ("Rows", f"{prepared.rows:,} of {prepared.read:,} that were read"),
            ("Size", f"{prepared.bytes:,} bytes"),
            ("sha256", prepared.sha256),
            ("Graded", _graded(known)),
            ("Time", f"{preparation.wall_s:.1f} s"),
            ("Kept in", str(preparation.path)),
            ("Made of", str(manifest_of(preparation.path))),
        ],
    )
    if left_out:
        heading(console, "Left out")
        rows = [(one_line(each.reason), f"{each.rows:,}") for each in prepared.left_out]
        print_table(console, ("reason", "rows"), [*rows, ("all", f"{left_out:,}")])
    for each in known.surprises:
        note(each)
    if not known.right:
        note("no row that was looked at has a Python solution: no known answer was graded")


def _graded(known: KnownAnswers) -> str:
    right = f"{known.right_accepted} of {known.right} right answers as right"
    wrong = f"{known.wrong_accepted} of {known.wrong} wrong ones"
    return f"{right}, {wrong}; {known.read_back:,} {'row' if known.read_back == 1 else 'rows'} read back"


def _print_list(console: Console, as_json: bool) -> None:
    listed = [
        {
            "name": name,
            "repository": each.published.repository,
            "file": each.file,
            "download": each.published.command(f"downloads/{name}"),
        }
        for name, each in TRAINING_SETS.items()
    ]
    if as_json:
        print_json({"training_sets": listed})
        return
    for number, each in enumerate(listed):
        if number:
            console.print()
        fields(console, [(name.capitalize(), value) for name, value in each.items()])


def main(
    action: Annotated[Literal["prepare", "list"], typer.Argument(help="What to do.", show_default=False)],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"Of {', '.join(TRAINING_SETS)}.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="The file goes here.", file_okay=False, show_default=False),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            "-s",
            metavar="PATH",
            help="A file, or a folder of files, as downloaded. Without it they are downloaded.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N usable rows.", min=1, metavar="N")] = None,
    references: Annotated[
        bool,
        typer.Option(
            "--references",
            help="Code on stdin alone, each with the first of its published Python solutions that passes all tests.",
        ),
    ] = False,
    sandbox: SandboxName = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Prepare the training sets that the recipes name, or list them.

    `prepare NAME` writes one JSON lines file, and beside it what it was made of. Rows that cannot be used are left out
    and counted.
    """
    if action == "list":
        _print_list(stdout(), as_json)
        return ExitCode.OK
    if name not in TRAINING_SETS:
        near = nearest(name or "", TRAINING_SETS)
        fix = f"write {near}" if near else f"one of {', '.join(TRAINING_SETS)}"
        usage_error((f"there is no training set {name!r}" if name else "say which training set") + f". Fix: {fix}")
    if out is None:
        usage_error("say where the file goes. Fix: add --out FOLDER")
    if references and not TRAINING_SETS[name].solutions:
        usage_error(f"--references: {name} was published without solutions. Fix: leave it out")
    preparation = _prepare(name, source, out, limit, references, sandbox)
    if as_json:
        print_json(preparation)
    else:
        print_preparation(stdout(), preparation)
    return ExitCode.OK if preparation.known_answers.ok else ExitCode.BAD
