"""How the commands speak: colours to a terminal, plain text to a pipe, one JSON document on request, exit codes.

Whatever a program or a model wrote is shown with its control characters escaped, since a terminal would obey them.
Knows nothing of programs, runs or traces.
"""

from __future__ import annotations

import functools
import io
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NoReturn, ParamSpec

import typer
from pydantic import BaseModel
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from workflow.failures import FailureKind, MetaAgentError
from workflow.labels import visible

P = ParamSpec("P")


class ExitCode(IntEnum):
    OK = 0
    BAD = 1
    """What was asked about is bad: a check found errors, an answer is wrong or empty."""
    USAGE = 2
    FAILED = 3
    """The program failed or hit a limit."""
    INFRASTRUCTURE = 4
    """The engine failed, or no sandbox can be had."""
    INTERRUPTED = 130


FAILURE_CODES: dict[FailureKind, ExitCode] = {
    "program_rejected": ExitCode.BAD,
    "program_failed": ExitCode.FAILED,
    "limit_exceeded": ExitCode.FAILED,
    "engine_failed": ExitCode.INFRASTRUCTURE,
    "sandbox_unavailable": ExitCode.INFRASTRUCTURE,
}

EXIT_CODES = """\b
Exit codes:
  0  done
  1  what was asked about is bad: findings, a wrong or empty answer, a gap that blocks the main job
  2  wrong usage: an option, an argument or a file that cannot be read
  3  the program failed or hit a limit
  4  infrastructure: the engine failed, or no sandbox can be had
"""


class Stop(Exception):
    """Ends a command with a message for people, an exit code and, if there is one, the command line to go on with."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE, then: str = "") -> None:
        super().__init__(message)
        self.code, self.then = code, then


_STOPS = {ExitCode.USAGE: "usage", ExitCode.INTERRUPTED: "interrupted"}
"""How a `Stop` is named in JSON; the others are "stopped"."""


def usage_error(message: str) -> NoReturn:
    raise Stop(message, ExitCode.USAGE)


def command(function: Callable[P, ExitCode]) -> Callable[P, None]:
    """Turn a function that returns an exit code into a command: expected errors become a line and a code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # text that the terminal cannot encode must not end in a traceback
                stream.reconfigure(errors="backslashreplace")
        as_json = bool(kwargs.get("as_json"))
        try:
            code = function(*args, **kwargs)
        except (Stop, MetaAgentError) as error:
            code = print_failure(error, as_json)
        except KeyboardInterrupt:
            code = _report("interrupted", "interrupted", ExitCode.INTERRUPTED, as_json)
        raise typer.Exit(code)

    return run


def print_failure(error: Stop | MetaAgentError, as_json: bool) -> ExitCode:
    """Tell what ended a command, and with which code it ends."""
    if isinstance(error, Stop):
        return _report(str(error), _STOPS.get(error.code, "stopped"), error.code, as_json, error.then)
    return _report(str(error), error.kind, FAILURE_CODES[error.kind], as_json)


def _report(message: str, kind: str, code: ExitCode, as_json: bool, then: str = "") -> ExitCode:
    if as_json:
        error = {"kind": kind, "message": message, "exit_code": int(code)} | ({"then": then} if then else {})
        print_json({"error": error}, indent=None)  # one line, as it may end output that has a document per line
        return code
    stderr().print(Text.assemble(("error: ", "bold red"), message))
    if then:
        stderr().print(f"  {then}", soft_wrap=True)  # to be copied whole
    return code


LONGEST_TITLE = 500


def one_line(text: str) -> str:
    """A name or a note as a part of one line: what programs call their agents must not look like lines of ours."""
    text = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 3] + "..."


class _Safe(RenderHook):
    """Makes everything that a console prints go through `visible`."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_SafeRenderable(renderable) for renderable in renderables]


class _SafeRenderable:
    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def stdout() -> Console:
    """For results. To a pipe: no colours, no wrapping."""
    return _console(stderr=False)


def stderr() -> Console:
    """For progress, notes and errors."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    console.push_render_hook(_Safe())
    return console


def print_json(document: BaseModel | dict[str, Any], indent: int | None = 2) -> None:
    """The one JSON document of a command, in ASCII."""
    sys.stdout.write(json.dumps(_finite(document), indent=indent, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """Plain values; numbers that JSON does not have become text: `"nan"`, `"inf"`, `"-inf"`."""
    if isinstance(value, BaseModel):
        return _finite(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def heading(console: Console, title: str, note: str = "") -> None:
    console.print()
    console.print(Text.assemble((one_line(title), "bold cyan"), (f"  {one_line(note)}" if note else "", "dim")))


def fields(console: Console, pairs: Iterable[tuple[str, str | Text]]) -> None:
    """Aligned lines of name and value; pairs without a value are left out."""
    shown = [(name if name.isprintable() else one_line(name), value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    if not console.is_terminal:
        for name, value in shown:
            hanging = re.sub(r"\n(?=[^\n])", "\n" + " " * (width + 2), str(value))
            console.print(f"{name:<{width}}  {hanging}")
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in shown:
        grid.add_row(name, value)
    console.print(grid)


def block(console: Console, text: str) -> None:
    """Text indented by two columns."""
    text = text.strip("\n")
    if console.is_terminal:
        console.print(Padding(Text(text), (0, 0, 0, 2)))
    else:
        console.print(textwrap.indent(text, "  "))


def code(console: Console, source: str) -> None:
    """A program: highlighted with line numbers on a terminal, as it is in a pipe."""
    if console.is_terminal:
        source = visible(source).rstrip("\n")
        # Colours that can be read on light and dark terminals alike.
        console.print(
            Syntax(source, "python", theme="ansi_dark", line_numbers=True, word_wrap=True, background_color="default")
        )
    else:
        raw(console, source)


def raw(console: Console, text: str) -> None:
    """Text with its tabs and line ends as they are; a last line end is added where there is none."""
    console.file.write(visible(text) if text.endswith("\n") else visible(text) + "\n")


def note(message: str) -> None:
    """A remark for people, on stderr."""
    stderr().print(Text.assemble(("note: ", "bold yellow"), message))


def print_table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: the first column is a name, the others are numbers. Tab-separated in a pipe."""
    if not console.is_terminal:
        raw(console, "\n".join("\t".join(row) for row in [header, *rows]))
        return
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
