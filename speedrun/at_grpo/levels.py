"""The two games of the miniature: their levels, drawn for each seed anew, and the program that plays them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from speedrun.at_grpo.player import Chances
from tasks import Problem, read_task
from tasks.environments import Knobs, PlanPathKnobs, PlanPathState, SudokuKnobs, generate, plan_path, reset
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


PROGRAMS = frozenset(program(tools, acts) for tools in range(8) for acts in (PLANNER, TOOL))
"""All that are played."""


def levels(path: Path, knobs: Knobs, count: int, seed: int, split: Split) -> list[Problem]:
    """Those that are in the file; drawn and written if there is none."""
    return _written(path, lambda: generate(knobs, count, split=split, seed=seed, turns=TURNS))


def direct_levels(path: Path, like: Sequence[Problem], knobs: Knobs, seed: int, split: Split) -> list[Problem]:
    """The same for levels of Plan-Path without a detour: as many of each shortest path as among those that they are
    `like`."""
    return _written(path, lambda: _direct(like, knobs, seed, split))


def _direct(like: Sequence[Problem], knobs: Knobs, seed: int, split: Split) -> list[Problem]:
    assert isinstance(knobs, PlanPathKnobs)
    wanted = Counter(moves for moves, _ in map(way, like))
    found: list[Problem] = []
    for moves, count in sorted(wanted.items()):
        one = replace(knobs, least_distance=moves, most_distance=moves, detour=1.0)
        drawn, asked = list[Problem](), 4 * count
        while len(drawn) < count:  # the same seed gives the same ones, and more
            drawn = [
                each for each in generate(one, asked, split=split, seed=seed, turns=TURNS) if len({*way(each)}) == 1
            ]
            asked *= 2
        found += drawn[:count]
    return found


def way(problem: Problem) -> tuple[int, int]:
    """Moves of a shortest path, and the Manhattan distance, of a level of Plan-Path."""
    state = reset(problem)
    assert isinstance(state, PlanPathState)
    return plan_path.distance(state), plan_path.manhattan_distance(state)


def _written(path: Path, draw: Callable[[], list[Problem]]) -> list[Problem]:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = draw()
        beside = path.with_suffix(".tmp")
        beside.write_text("".join(problem.model_dump_json() + "\n" for problem in drawn), encoding="utf-8")
        beside.rename(path)
    return read_task(f"problems:{path}")
