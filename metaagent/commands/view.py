"""`metaagent view`: a trace, a folder of traces, a training run or an evaluation as a page, in a file or served.

What pages say is the viewer's business; here are only options, words and exit codes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from metaagent.commands.outputs import PAGE, check_output
from metaagent.opening import open_sandbox
from metaagent.serving_pages import opened, wait_for_the_end, write_page
from metaagent.terminal import ExitCode, note, stdout, usage_error
from viewer import NothingToShow, Site, Words, open_site
from workflow.failures import MetaAgentError
from workflow.graph import GraphNode


def main(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A trace, a folder of traces, a training run's or an evaluation's.")
    ],
    before: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="An earlier evaluation: shows what has changed since.", file_okay=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PAGE.html",
            help="The file to write; else PATH's name and .html, in this folder.",
            dir_okay=False,
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The model's: shows how likely each of its tokens was, in the text.", file_okay=False
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it on this machine instead, following what still goes on.")
    ] = False,
    port: Annotated[int, typer.Option(help="Of --serve; 0 is any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Of --serve: open it in a browser.")] = True,
) -> ExitCode:
    """See runs, trees, training runs and evaluations in a browser.

    Writes one file that needs nothing else, or serves all there is on loopback, at an address that nobody can guess.
    """
    if serve and out is not None:
        usage_error("--serve writes no file. Fix: leave out --serve or --out")
    if port and not serve:
        usage_error(f"--port {port} is for --serve. Fix: add --serve, or leave it out")
    try:
        site = open_site(path, before, _graph_of, None if tokenizer is None else _words_of(tokenizer))
    except NothingToShow as error:
        usage_error(str(error))
    except OSError as error:
        usage_error(f"cannot read {error.filename}: {error.strerror}")
    try:
        return _serve(site, port, browser) if serve else _write(site, out or _named(path))
    finally:
        site.close()


def _words_of(folder: Path) -> Words:
    """The texts of tokens, each by itself."""
    try:
        from tokenizers import Tokenizer  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        usage_error('--tokenizer needs tokenizers. Fix: pip install "metaagent[local]"')
    file = folder / "tokenizer.json"
    try:
        known = Tokenizer.from_file(str(file))
    except Exception as error:  # of the library's own kind alone
        usage_error(f"cannot read {file}: {error}. Fix: name the folder of the model that wrote the replies")
    tokens = range(known.get_vocab_size())
    return lambda ids: [known.decode([each], skip_special_tokens=False) if each in tokens else "�" for each in ids]


def _graph_of(program: str) -> GraphNode | None:
    """Built in a jail, as `metaagent show` does; None where there is no jail, or the program builds nothing."""
    try:
        return asyncio.run(_described(program))
    except MetaAgentError as error:
        note(f"the graph shows only what ran: {error}")
        return None


async def _described(program: str) -> GraphNode | None:
    async with open_sandbox() as sandbox:
        return (await sandbox.describe(program)).graph


def _named(path: Path) -> Path:
    """A folder's own name says little where it is one of several: `RL/attempts` becomes RL-attempts.html."""
    whole = path.resolve()
    return Path(f"{whole.stem}.html" if whole.is_file() else f"{whole.parent.name}-{whole.name}.html".lstrip("-"))


def _serve(site: Site, port: int, browser: bool) -> ExitCode:
    with opened(site, port=port, browser=browser):
        wait_for_the_end()
    return ExitCode.OK


def _write(site: Site, out: Path) -> ExitCode:
    check_output(out, PAGE)
    stdout().print(write_page(site, out))
    return ExitCode.OK
