"""Reads what commands are given: problems, programs, configurations. What cannot be read ends the command with a usage
error, and so does what is not installed."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from metaagent.commands.recipe_option import commands_of, for_commands
from metaagent.terminal import note, usage_error
from recipes import recipe_path
from tasks import DatasetError, Problem, read_task
from trainer.disk import check_ids
from workflow.checks import nearest

if TYPE_CHECKING:
    from trainer.config import TrainConfig

LONGEST_INPUT = 1 << 20
"""Characters that are read of a problem or a program; the check refuses programs far below that."""


WithoutMath500 = Annotated[bool, typer.Option("--without-math500", help="Leave out problems that stand in MATH-500.")]


def refuse_math500(found: Collection[str], total: int, leave_out: bool) -> None:
    """What is trained on is no test: a usage error where problems stand in MATH-500, unless they are left out, which is
    said. `found` are their ids."""
    if not found:
        return
    some = ", ".join(sorted(found)[:3]) + ", ..." * (len(found) > 3)
    said = f"{len(found):,} of {total:,} problems stand in MATH-500, which is for tests: {some}"
    if not leave_out:
        usage_error(f"{said}. Fix: --without-math500 leaves them out; MATH/train is the part to train on")
    note(f"{said}. They are left out")


def need(*packages: str) -> None:
    """A usage error unless all of these, which are parts of the extra `train`, are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        usage_error(f'learning needs {" and ".join(missing)}. Fix: pip install "metaagent[train]"')


def read_problem(problem: str | None, file: Path | None) -> str:
    """The problem's text, from the argument, from stdin where the argument is `-`, or from the file."""
    if (problem is None) == (file is None):
        usage_error("give the problem as text, as - for stdin, or with --file; one of them")
    if file is not None:
        text = read_text(file)
    elif problem == "-":
        try:
            text = _bounded(sys.stdin, "stdin")
        except UnicodeDecodeError:
            usage_error("stdin is not UTF-8 text")
    else:
        text = problem or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        usage_error("the problem is not UTF-8 text")
    if not text.strip():
        usage_error("the problem is empty")
    return text.strip("\n")


def read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:
            return _bounded(file, str(path))
    except OSError as error:
        usage_error(f"cannot read {path}: {error.strerror}")
    except UnicodeDecodeError as error:
        usage_error(f"{path} is not UTF-8 text (byte {error.start})")


def _bounded(file: TextIO, name: str) -> str:
    text = file.read(LONGEST_INPUT + 1)
    if len(text) > LONGEST_INPUT:
        usage_error(f"{name} is longer than {LONGEST_INPUT:,} characters")
    return text


def read_configuration(name: str, overrides: Sequence[str]) -> TrainConfig:
    """A training run's, from a file that there is, else from the recipe of that name."""
    from trainer.config import ConfigError, read_config

    path = Path(name)
    if not path.is_file():
        try:
            path = recipe_path(name)
        except ValueError as error:
            usage_error(f"there is no file {name}, and {error}")
    if commands := commands_of(path):
        usage_error(f"{name} is {for_commands(commands)}. Fix: metaagent {commands[0]} --recipe {name}")
    try:
        return read_config(path, overrides)
    except ConfigError as error:
        usage_error(str(error))


BANK = "bank"


def read_tasks(tasks: Sequence[str], limit: int | None) -> dict[str, list[Problem]]:
    """The first `limit` problems of each task, `FORMAT:FILE`."""
    read: dict[str, list[Problem]] = {}
    owner: dict[str, str] = {}
    for task in tasks:
        with warnings.catch_warnings(record=True) as left_out:
            warnings.simplefilter("always")
            try:
                read[task] = read_task(task)[:limit]
            except DatasetError as error:
                usage_error(str(error))
        for warning in left_out:
            note(str(warning.message))
        for problem in read[task]:
            other = owner.setdefault(problem.id, task)
            if other != task:
                usage_error(f"{other} and {task} both have a problem {problem.id!r}. Fix: evaluate them one by one")
    return read


def read_one_problem(task: str, wanted: str | None) -> Problem:
    """The one of a task, `FORMAT:FILE`, that has this id; without an id the only one."""
    problems = read_tasks([task], None)[task]
    try:
        check_ids(problems)
    except ValueError as error:
        usage_error(f"{task}: {error}")
    found = [each for each in problems if wanted is None or each.id == wanted]
    if len(found) != 1:
        said = f"{len(problems)} problems" if wanted is None else f"no problem {wanted!r}"
        some = nearest(wanted or "", [each.id for each in problems]) or problems[0].id
        usage_error(f"{task} has {said}. Fix: --id with one of its ids, such as {shlex.quote(some)}")
    return found[0]
