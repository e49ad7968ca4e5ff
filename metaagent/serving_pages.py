"""Pages that are served while a command works, and until somebody has seen them: `view --serve`, and `--view` of other
commands. What they show is the viewer's business."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from metaagent.terminal import ExitCode, Stop, note, print_failure, usage_error
from workflow.failures import MetaAgentError

if TYPE_CHECKING:
    from viewer import Site, WorkSite


@contextlib.contextmanager
def opened(site: Site, *, port: int = 0, browser: bool = True) -> Iterator[None]:
    """Serve a site while the block runs, and say where; usage error where the port is taken."""
    from viewer import serving

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving(site, port))
        except OSError as error:
            usage_error(f"cannot serve on port {port}: {error.strerror}. Fix: another --port")
        note(f"see {server.address}")
        if browser:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="metaagent-"))
            # In a thread: some systems wait until the browser is closed.
            threading.Thread(target=_open, args=(server.address, Path(folder)), daemon=True).start()
        yield


def _open(address: str, folder: Path) -> None:
    """By a file that leads there and that nobody else may read: what is on a browser's command line, all may."""
    page = folder / "open.html"
    with contextlib.suppress(webbrowser.Error, OSError):  # the address has been told
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
        webbrowser.open(page.as_uri())


def write_page(site: Site, out: Path) -> str:
    """Write a site to a file; returns what is in it, for people. Usage error where it cannot be written."""
    from viewer import NoSuchPage, write

    try:
        written = write(site, out)
    except NoSuchPage as error:
        usage_error(str(error))
    except OSError as error:
        usage_error(f"cannot write {out}: {error.strerror}")
    if written.left_out:
        note(f"{written.left_out:,} pages that these lead to are not in it, for its size. Fix: --serve, which has all")
    return f"{out}: {written.pages:,} pages, {written.bytes / 1e6:.1f} MB"


@contextlib.contextmanager
def viewing(
    served: bool, out: Path | None, problem: str, *, designs: bool = True, as_json: bool = False
) -> Iterator[WorkSite | None]:
    """A page of what the block does, if one is wanted: it is told what happens. Where it is `served`, it stays until
    Ctrl-C once that is done, or has failed, which is told at once. What there is in the end is written to `out`."""
    if not served and out is None:
        yield None
        return
    from viewer import WorkSite

    site = WorkSite(problem, designs=designs)
    with contextlib.ExitStack() as stack:
        if served:
            stack.enter_context(opened(site))
        try:
            yield site
        except BaseException as error:
            site.failed(str(error) or "it was stopped")
            if out is not None:
                with contextlib.suppress(Stop):  # what ended the block is to be told
                    note(write_page(site, out))
            if not served or not isinstance(error, MetaAgentError):
                raise
            code = print_failure(error, as_json)
            wait_for_the_end()
            raise typer.Exit(code) from error
        if out is not None:
            note(write_page(site, out))
        if served:
            wait_for_the_end()


@contextlib.contextmanager
def viewing_training(wanted: bool, folder: Path, *, as_json: bool = False) -> Iterator[None]:
    """The same of a training run in `folder`, which is made if need be."""
    if not wanted:
        yield
        return
    from viewer import TrainingSite

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        usage_error(f"cannot make {folder}: {error.strerror}")
    with contextlib.closing(TrainingSite(folder)) as site, opened(site):
        try:
            yield
        except Stop as stop:
            if stop.code == ExitCode.USAGE:  # nothing has been trained
                raise
            code = print_failure(stop, as_json)
            wait_for_the_end()
            raise typer.Exit(code) from stop
        wait_for_the_end()


def wait_for_the_end() -> None:
    """Until Ctrl-C, which ends the serving and not the command."""
    with contextlib.suppress(KeyboardInterrupt):
        note("Ctrl-C ends it")
        threading.Event().wait()
