"""Writes a file of generated games: what `metaagent problems` does.

Levels, difficulty and splits are `tasks.environments`'; here are options, progress and the report.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console

from metaagent.commands.options import AsJson, Seed
from metaagent.commands.outputs import Kind, check_output, open_output
from metaagent.terminal import (
    ExitCode,
    counting_bar,
    fields,
    heading,
    print_json,
    stderr,
    stdout,
    usage_error,
)
from tasks import DatasetError, PlanPathLevel, Problem, SokobanLevel, read_task
from tasks.environments import KNOBS, Knobs, generate, identity_of, shared_grids, solution_grids
from tasks.problems import TURNS
from tasks.splits import Split
from workflow.checks import nearest

PROBLEMS = Kind("file of problems", start=b'{"id":')
_SIZE = re.compile(r"(\d{1,4})(?:x(\d{1,4}))?")


class Known(BaseModel):
    """What of a set stands in a training set, too."""

    levels: int
    grids: int | None
    """Solution grids of Sudokus, up to renaming digits; None for other games."""


class Generated(BaseModel):
    """What `problems --json` prints."""

    path: Path
    kind: str
    count: int
    split: Split
    seed: int
    turns: int
    knobs: dict[str, Any]
    moves: list[int]
    """The fewest and the most of an optimal solution; empty for Sudokus."""
    solution_grids: int | None
    """Different ones, up to renaming digits; None for other games."""
    in_training: Known | None
    """None without `--training`."""


def knobs_of(kind: str, given: dict[str, Any]) -> Knobs:
    """The knobs of a game with what was given. A usage error for an unknown game, for a knob of another game, and for a
    wish that no level can meet."""
    if kind not in KNOBS:
        near = nearest(kind.lower(), KNOBS)
        usage_error(f"there is no game {kind!r}. Fix: write {near or ' or '.join(KNOBS)}")
    wanted = {name: value for name, value in given.items() if value is not None}
    known = KNOBS[kind].__slots__
    for name in wanted:
        if name not in known:
            usage_error(
                f"{kind} has no --{_option(name)}. Fix: it has {', '.join('--' + _option(each) for each in known)}"
            )
    if "size" in wanted:
        wanted["size"] = _size(kind, wanted["size"])
    try:
        return KNOBS[kind](**wanted)
    except ValueError as error:
        usage_error(f"--{_option(str(error))}")


def _option(text: str) -> str:
    """How the command line spells a knob that a text begins with."""
    name, mark, rest = text.partition("=")
    return name.replace("_", "-") + (f" {rest}" if mark else "")


def _size(kind: str, said: str) -> int | tuple[int, int]:
    match = _SIZE.fullmatch(said)
    if match is None or (kind == "sudoku" and match[2]):
        usage_error(f"--size {said}: write a number" + ("" if kind == "sudoku" else ", or ROWSxCOLUMNS such as 8x12"))
    return int(match[1]) if kind == "sudoku" else (int(match[1]), int(match[2] or match[1]))


def _generated(knobs: Knobs, count: int, split: Split, seed: int, turns: int) -> list[Problem]:
    with counting_bar(stderr()) as bar:
        task = bar.add_task("Drawing levels", total=count)
        try:
            return generate(
                knobs, count, split=split, seed=seed, turns=turns, watch=lambda done: bar.update(task, completed=done)
            )
        except ValueError as error:
            usage_error(str(error))


def _known(problems: Sequence[Problem], file: Path, kind: str) -> Known:
    try:
        training = read_task(f"problems:{file}")
        of_kind = [each for each in training if each.environment is not None and each.environment.kind == kind]
        if not of_kind:
            usage_error(f"{file} holds no {kind}. Fix: name a file that metaagent problems {kind} wrote")
        seen = {identity_of(each.environment) for each in of_kind if each.environment is not None}
        return Known(
            levels=sum(identity_of(each.environment) in seen for each in problems if each.environment is not None),
            grids=shared_grids(problems, of_kind)[0] if kind == "sudoku" else None,
        )
    except (DatasetError, ValueError) as error:
        usage_error(str(error))


def _write(path: Path, problems: Sequence[Problem]) -> None:
    try:
        with open_output(path, PROBLEMS) as file:
            file.writelines(problem.model_dump_json(exclude_none=True) + "\n" for problem in problems)
    except OSError as error:
        usage_error(f"cannot write {path}: {error.strerror}")


def _moves(problems: Sequence[Problem]) -> list[int]:
    """Of an optimal solution of each."""
    levels = [problem.environment for problem in problems]
    found = [each.optimum for each in levels if isinstance(each, PlanPathLevel)]
    found += [each.moves for each in levels if isinstance(each, SokobanLevel)]
    return [moves for moves in found if moves is not None]


def print_generated(console: Console, report: Generated, moves: Sequence[int]) -> None:
    """The report for people."""
    known = report.in_training
    grids = ""
    if report.solution_grids is not None:
        grids = f"{report.solution_grids}, up to renaming digits"
        grids += " (there are 12)" if report.knobs["size"] == 4 else ""
    heading(console, "Result")
    fields(
        console,
        [
            ("Levels", f"{report.count:,} of {report.kind}, split {report.split}, seed {report.seed}"),
            ("Knobs", ", ".join(f"{name} {_shown(value)}" for name, value in report.knobs.items())),
            ("Turns", str(report.turns)),
            ("Optimum", f"{min(moves)} to {max(moves)} moves, {fmean(moves):.1f} on average" if moves else ""),
            ("Grids", grids),
            ("In training", "" if known is None else _shown_known(known, report)),
            ("Kept in", str(report.path)),
            ("Read with", f"problems:{report.path}"),
        ],
    )


def _knob(name: str, help: str, unset: str = "any") -> Any:
    """The option of a knob. `KNOBS` says which games have it, and by what default; `unset` is shown for None."""
    games = {kind: knobs for kind, knobs in KNOBS.items() if name in knobs.__slots__}
    given = [next(each.default for each in dataclasses.fields(knobs) if each.name == name) for knobs in games.values()]
    return typer.Option(
        help=help if len(games) == len(KNOBS) else f"{', '.join(games)}: {help}",
        show_default=", ".join(unset if value is None else _shown(value) for value in given),
    )


def _shown(value: Any) -> str:
    return "any" if value is None else "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shown_known(known: Known, report: Generated) -> str:
    said = f"{known.levels} of {report.count:,} levels"
    return said if known.grids is None else f"{said}, {known.grids} of {report.solution_grids} grids"


def main(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"The game: {', '.join(KNOBS)}.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file.", show_default=False)],
    count: Annotated[int, typer.Option(help="How many levels.", min=1, metavar="N")] = 100,
    split: Annotated[Split, typer.Option(help="Follows from the level, so that splits share none.")] = "train",
    seed: Seed = 0,
    turns: Annotated[int, typer.Option(help="How many actions there may be in a game.", min=1)] = TURNS,
    size: Annotated[
        str | None, _knob("size", "Rows and columns, N or ROWSxCOLUMNS; sokoban's with the border.")
    ] = None,
    density: Annotated[float | None, _knob("density", "share of cells that are walls.")] = None,
    least_distance: Annotated[int | None, _knob("least_distance", "moves of a shortest path, at least.")] = None,
    most_distance: Annotated[int | None, _knob("most_distance", "the same, at most.")] = None,
    detour: Annotated[float | None, _knob("detour", "those moves over the Manhattan distance, at least.")] = None,
    boxes: Annotated[int | None, _knob("boxes", "how many.")] = None,
    least_pushes: Annotated[int | None, _knob("least_pushes", "the fewest pushes that solve it, at least.")] = None,
    least_moves: Annotated[int | None, _knob("least_moves", "the fewest moves that solve it, at least.")] = None,
    blanks: Annotated[int | None, _knob("blanks", "cells to be filled in.", "half of all")] = None,
    training: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tell how much of the set stands in this one, too.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Generate games, proven solvable, into a file of problems.

    Every level is different, whatever its orientation or the names of its digits. The file is read as `problems:FILE`.
    """
    given = {
        "size": size,
        "density": density,
        "least_distance": least_distance,
        "most_distance": most_distance,
        "detour": detour,
        "boxes": boxes,
        "least_pushes": least_pushes,
        "least_moves": least_moves,
        "blanks": blanks,
    }
    knobs = knobs_of(kind, given)
    check_output(out, PROBLEMS)
    problems = _generated(knobs, count, split, seed, turns)
    moves = _moves(problems)
    report = Generated(
        path=out,
        kind=kind,
        count=count,
        split=split,
        seed=seed,
        turns=turns,
        knobs={name: getattr(knobs, name) for name in knobs.__slots__},
        moves=[min(moves), max(moves)] if moves else [],
        solution_grids=len(solution_grids(problems)) if kind == "sudoku" else None,
        in_training=None if training is None else _known(problems, training, kind),
    )
    _write(out, problems)
    if as_json:
        print_json(report)
    else:
        print_generated(stdout(), report, moves)
    return ExitCode.OK
