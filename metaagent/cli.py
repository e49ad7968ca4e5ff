"""The command line: which commands there are. See `metaagent --help`.

A command is a file of `metaagent.commands`, imported when it is called, so that it may import what it needs and the
help stays light. What commands do and print is not decided here.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from metaagent.terminal import EXIT_CODES, command

COMMANDS = {
    "design": "Write a multi-agent program for a problem.",
    "run": "Check a program, run it in the jail, show its answer.",
    "check": "Check programs without asking any agent.",
    "show": "Show the graph of a program's workflow.",
    "templates": "List the template bank, or print one template.",
    "doctor": "See what works on this machine, and how to mend the rest.",
    "trace": "Print the transcript of one run from its trace.",
    "view": "See runs, trees, training runs and evaluations in a browser.",
    "demo": "Show the main job on a real problem, without a model.",
    "train": "Train Designer and Executor.",
    "simulate": "Predict a step's time on more nodes, and how to divide their GPUs.",
    "data": "Prepare the training sets that the recipes name, or list them.",
    "problems": "Generate games, proven solvable, into a file of problems.",
    "recipes": "List the recipes for training that come along, or print one.",
    "eval": "Measure pass rates over tasks: k attempts at each problem, with 95% intervals.",
    "search": "Search over a program's runs for the best answer to a problem.",
    "label": "Label the states between agents: trees of runs, searched against the gold answers (MASPRM, Alg. 1).",
    "distill": "Make chat rows for a cold start: designs, executed and graded, of which the correct ones are kept.",
    "sft": "Fine-tune a model on conversations, with the loss on its replies alone.",
    "prm": "Train a model of values on label trees: a process reward model, or an outcome model.",
}
"""Each a module of `metaagent.commands` whose `main` has the options, the work and this line at the top of its
docstring."""

_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich" if sys.stdout.isatty() else None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def loaded(name: str) -> typer.Typer:
    """The command `name` alone, with all its options."""
    alone = typer.Typer(add_completion=False, **_SETTINGS)
    module = importlib.import_module(f"metaagent.commands.{name}")
    alone.command(name, epilog=EXIT_CODES)(command(module.main))
    return alone


class _OnCall(TyperCommand):
    """A command of which only name and first line are known until it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return typer.main.get_command(loaded(self.name or "")).make_context(info_name, args, parent, **extra)


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        said = COMMANDS.get(cmd_name)
        return None if said is None else _OnCall(name=cmd_name, callback=None, help=said)


app = typer.Typer(
    name="metaagent",
    cls=_Commands,
    help="Turn a problem into a multi-agent program, check it, run it safely.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    **_SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"metaagent {importlib.metadata.version('metaagent')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


if __name__ == "__main__":
    app()
