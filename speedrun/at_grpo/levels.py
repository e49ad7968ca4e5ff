"""The two games of the miniature: their levels, drawn for each seed anew, and the program that plays them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from speedrun.at_grpo.player import Chances
from tasks import Problem, read_task
from tasks.environments import Knobs, PlanPathKnobs, SudokuKnobs, generate
from tasks.splits import Split

GameName = Literal["plan_path", "sudoku"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    title: str
    knobs: Knobs
    chances: Chances
    """Of the teacher's mistakes."""
    overrides: tuple[str, ...] = ()
    """Changes to the recipe."""
    detours: Knobs | None = None
    """Levels where distance misleads, if the game has any."""


GAMES: Mapping[GameName, Game] = {
    "plan_path": Game(
        title="Plan-Path, 5 x 5",
        knobs=PlanPathKnobs(size=(5, 5), least_distance=3, most_distance=6),
        chances=Chances(tool=0.3, planner=0.15, adopts=0.5),
        detours=PlanPathKnobs(size=(5, 5), least_distance=4, most_distance=8, detour=1.5),
    ),
    "sudoku": Game(
        title="Sudoku, 4 x 4",
        knobs=SudokuKnobs(size=4, blanks=3),
        chances=Chances(tool=0.2, planner=0.12, adopts=0.3),
        overrides=("generated_tokens=440_000",),
    ),
}
TURNS = 4
TOOL, PLANNER = "Tool1", "Planner"
"""Agents of the program."""


def program(tools: int, acts: str = PLANNER) -> str:
    """With so many agents that propose, none for one that plays alone, and the name of who acts."""
    source = resources.files("recipes").joinpath("programs/team.py").read_text(encoding="utf-8")
    for told, wanted in (("TOOLS = 1\n", f"TOOLS = {tools}\n"), ('ACTS = "Planner"\n', f'ACTS = "{acts}"\n')):
        assert source.count(told) == 1
        source = source.replace(told, wanted)
    return source


def levels(path: Path, knobs: Knobs, count: int, seed: int, split: Split) -> list[Problem]:
    """Those that are in the file; drawn and written if there is none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = generate(knobs, count, split=split, seed=seed, turns=TURNS)
        beside = path.with_suffix(".tmp")
        beside.write_text("".join(problem.model_dump_json() + "\n" for problem in drawn), encoding="utf-8")
        beside.rename(path)
    return read_task(f"problems:{path}")
