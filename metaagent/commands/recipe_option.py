"""`--recipe`: options of a command taken from a TOML file, where the command line does not give them.

Such a recipe begins with `commands = [...]` and has a table for each, whose keys are the command's options: these are
defined once, in the commands. Recipes of `metaagent train` are configurations (`trainer.config`).
"""

from __future__ import annotations

import importlib
import json
import os
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError

from metaagent.terminal import Stop, command, usage_error
from recipes import recipe_path
from workflow.checks import nearest

_TASKS = ("tasks", "problems")
"""Options whose values are FORMAT:FILE."""
_NOT_IN_RECIPES = ("return", "ctx", "recipe", "as_json")
_LARGEST = 1 << 18
"""Bytes."""


def commands_of(path: Path) -> list[str]:
    """The commands that a file is a recipe of; none where it is a training configuration, or cannot be read."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8")).get("commands", [])
    except (OSError, ValueError, RecursionError):
        return []
    return [str(name) for name in said] if isinstance(said, list) else []


def recipe_options(name: str, command: str) -> dict[str, Any]:
    """What the recipe says of a command's options, by their names; relative paths mean files beside it.

    A usage error names the file and the key.
    """
    path = Path(name)
    if not path.is_file():
        try:
            path = recipe_path(name)
        except ValueError as error:
            usage_error(f"--recipe: there is no file {name}, and {error}")
    values = _read(path)
    commands = values.pop("commands", None)
    if commands is None:
        usage_error(f"--recipe {name}: it is a configuration of training. Fix: metaagent train {name}")
    if not isinstance(commands, list) or command not in commands:
        usage_error(f"--recipe {name}: it is {for_commands(commands)}, not for metaagent {command}")
    known = {str(each): _options(path, str(each)) for each in commands}
    _check(path, "", values, known)
    for table, said in values.items():
        _check(path, table, said, known[table])
        for key, value in said.items():
            _check_type(path, f"{table}.{key}", value, known[table][key])
    options = known[command]
    return {key: _resolved(said, key, options[key], path.parent) for key, said in values.get(command, {}).items()}


def for_commands(commands: object) -> str:
    """In words."""
    return f"for metaagent {', '.join(map(str, commands))}" if isinstance(commands, list) else "for no command"


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST:
            usage_error(f"{path} has more than {_LARGEST:,} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        usage_error(f"cannot read {path}: {error.strerror}")
    except RecursionError:
        usage_error(f"{path}: tables and lists go too deep")
    except ValueError as error:
        usage_error(f"{path} is not TOML: {error}")


def _options(path: Path, command: str) -> dict[str, Any]:
    """What a recipe may say of a command, each with its type."""
    from metaagent.cli import COMMANDS

    if command not in COMMANDS:
        usage_error(f"{path}: it is for metaagent {command}, which there is not")
    hints = get_type_hints(importlib.import_module(f"metaagent.commands.{command}").main)
    return {name: hint for name, hint in hints.items() if name not in _NOT_IN_RECIPES}


def _check(path: Path, table: str, values: object, known: Mapping[str, object]) -> None:
    if not isinstance(values, dict):
        usage_error(f"{path}: {table} should be a table")
    for key in values:
        if key not in known:
            near, place = nearest(key, known), f"{table}." if table else ""
            meant = f"did you mean {place}{near}?" if near else f"known here: {', '.join(known)}"
            usage_error(f"{path}: unknown key {place}{key}; {meant}")


def _check_type(path: Path, place: str, value: object, hint: Any) -> None:
    """As configurations are checked: text is no number, and 2.5 no whole one."""
    try:
        TypeAdapter(hint).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        usage_error(f"{path}: {place} = {value!r:.80}: {error.errors()[0]['msg']}")


def _resolved(value: Any, name: str, hint: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_resolved(each, name, hint, folder) for each in value]
    if not isinstance(value, str):
        return value
    if name in _TASKS:
        form, colon, file = value.partition(":")
        return f"{form}:{_beside(folder, file)}" if colon else value
    return _beside(folder, value) if Path in _kinds(hint) else value


def _kinds(hint: Any) -> list[Any]:
    """The types that a type is made of."""
    return [hint, *(kind for each in get_args(hint) for kind in _kinds(each))]


def _beside(folder: Path, file: str) -> str:
    return os.path.normpath(folder / Path(file).expanduser())


def _fill(ctx: typer.Context, name: str | None) -> str | None:
    """Runs before all other options are read; what the recipe says is their default (`ctx.get_parameter_source`)."""
    if name is not None:
        try:
            ctx.default_map = recipe_options(name, ctx.command.name or "")
        except Stop as stop:
            command(partial(usage_error, str(stop)))()
    return name


def from_recipe(ctx: typer.Context, name: str) -> bool:
    """Whether an option's value is the recipe's."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE.toml",
        help="What is not given here is as this recipe says; `metaagent recipes` lists them.",
        is_eager=True,
        callback=_fill,
    ),
]
