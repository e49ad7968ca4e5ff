"""Games as deterministic machines on the host: plan_path, sokoban, sudoku, and generators of their levels.

A game begins with `reset(problem)`. `observe` says what an agent sees of a state, `act` what its text does, `propose`
what it would do. States are immutable values with a digest. Beside each game stand the quantities that rewards are made
of. Knobs say how difficult generated levels are.

Programs play from a `Position`; `played` is what a run did. Not here: rewards (`trainer`), which part of a reply is the
action (`workflow.answers`), reading files (`tasks.data`), how programs ask (`workflow.environment`).
"""

from tasks.environments import plan_path, sokoban, sudoku
from tasks.environments.generators import generate, identity_of, problem_of, shared_grids, solution_grids, split_of
from tasks.environments.knobs import KNOBS, Knobs, PlanPathKnobs, SokobanKnobs, SudokuKnobs
from tasks.environments.machine import Action, Edit, LevelError, State, Step
from tasks.environments.plan_path import PlanPathState
from tasks.environments.playing import act, check_level, described, observe, propose, reset
from tasks.environments.position import Position, begins, played
from tasks.environments.sokoban import SokobanState
from tasks.environments.sudoku import SudokuState
from tasks.environments.sudoku_search import fillings

__all__ = [
    "KNOBS",
    "Action",
    "Edit",
    "Knobs",
    "LevelError",
    "PlanPathKnobs",
    "PlanPathState",
    "Position",
    "SokobanKnobs",
    "SokobanState",
    "State",
    "Step",
    "SudokuKnobs",
    "SudokuState",
    "act",
    "begins",
    "check_level",
    "described",
    "fillings",
    "generate",
    "identity_of",
    "observe",
    "plan_path",
    "played",
    "problem_of",
    "propose",
    "reset",
    "shared_grids",
    "sokoban",
    "solution_grids",
    "split_of",
    "sudoku",
]
