"""Any game, played: from a problem to its first state, what is seen of a state, what a text does in it."""

from __future__ import annotations

import dataclasses

from tasks.environments import plan_path, sokoban, sudoku
from tasks.environments.actions import LONGEST
from tasks.environments.machine import LevelError, State, Step
from tasks.environments.sokoban_search import costs
from tasks.environments.sudoku_search import SearchTooLong, fillings
from tasks.problems import Environment, PlanPathLevel, Problem, SokobanLevel, SudokuLevel

POSITIONS_LOOKED_AT = 5_000
"""Of a Sokoban that is given, when it is asked whether it can be solved; a larger one is believed."""


def reset(problem: Problem) -> State:
    """The state in which a game begins. ValueError for a problem that is no game, `LevelError` for a bad level."""
    if problem.environment is None:
        raise ValueError(
            f"problem {problem.id!r} is no game (its domain is {problem.domain}). Fix: take one with a level"
        )
    return state_of(problem.environment)


def state_of(environment: Environment) -> State:
    """The state in which a level begins. Raises `LevelError`."""
    match environment:
        case PlanPathLevel():
            return plan_path.state_of(environment)
        case SokobanLevel():
            return sokoban.state_of(environment)
        case SudokuLevel():
            return sudoku.state_of(environment)


def described(environment: Environment) -> str:
    """The question of a problem with this environment: rules, form of an action, level."""
    match environment:
        case PlanPathLevel():
            return plan_path.described(environment)
        case SokobanLevel():
            return sokoban.described(environment)
        case SudokuLevel():
            return sudoku.described(environment)


def observe(state: State, agent: str) -> str:
    """What an agent sees: the turn, the board as it is now, the situation. In these games all agents see the same."""
    if state.solved:
        turn = f"Solved, with {state.turn} of {state.turns} turns."
    elif state.done:
        turn = f"Not solved, and all {state.turns} turns are used up."
    else:
        turn = f"Turn {state.turn + 1} of {state.turns}."
    return f"{turn}\n\n{state.board}\n\n{state.situation}"


def propose(state: State, agent: str, text: str) -> Step[State]:
    """What `act` would do. States are values, so that nothing has happened unless `Step.after` is gone on with."""
    return act(state, agent, text)


def act(state: State, agent: str, text: str) -> Step[State]:
    """What a reply does: its action is what stands after the last `####`, or the delivery, or the whole text
    (`workflow.answers.game_answer`).

    Each takes a turn; a text is read from its end, as far as an action may be long. One that cannot be read changes
    nothing else, and one that is illegal ends where it is. In a game that is over nothing is read.
    """
    if state.done:
        return Step(state, state, None, 0, "the game is over")
    step = state.play(text[-LONGEST:])
    return dataclasses.replace(step, after=dataclasses.replace(step.after, turn=state.turn + 1))


def check_level(environment: Environment) -> None:
    """Raises `LevelError` where a level is none, is known to have no solution, or a path other than its optimum. How
    long a solution is looked for is bounded; what takes longer is believed, and so are a Sokoban's fewest moves."""
    state = state_of(environment)
    if state.solved:
        raise LevelError("it is solved before anything is done. Fix: leave something to do")
    if isinstance(environment, PlanPathLevel) and isinstance(state, plan_path.PlanPathState):
        said, fewest = environment.optimum, plan_path.distance(state)
        if said not in (None, fewest):
            raise LevelError(f"optimum {said}, but a shortest path has {fewest} moves. Fix: write {fewest}")
    if isinstance(state, sokoban.SokobanState):
        known = costs(state.ground, "moves", POSITIONS_LOOKED_AT)
        if known.complete and (state.player, state.boxes) not in known.of:
            raise LevelError("no moves bring all boxes onto goals. Fix: move walls, boxes or goals")
    elif isinstance(state, sudoku.SudokuState):
        try:
            if not fillings(state.givens, most=1):
                raise LevelError("no grid has these digits. Fix: change or clear some")
        except SearchTooLong:
            pass
