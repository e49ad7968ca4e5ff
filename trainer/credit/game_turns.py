"""What one turn of an agent in a game is worth: Stronger-MAS, Appendix B.3 to B.6, explained term by term.

What an agent did is read off the path of its run and played again: what it acted, or else what it proposed, if the
action is its own. One that acts is scored as the paper's planner, one that proposes as its tool; a proposal's team
reward is that of the position it would lead to. Where the paper leaves a choice: a list scores only as a whole, and
what does nothing has no progress, also where nothing got worse; in Sudoku that, and what only clears cells, is no legal
move either, for a grid of givens could be repeated for ever.
How games are played is in `tasks.environments`; how team and local part are added up is said by
`trainer.credit.turn_reward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search import CodeStep, Decision, GameStep
from search.branching import Position
from search.paths import AnyStep
from tasks.environments import (
    PlanPathState,
    SokobanState,
    State,
    Step,
    SudokuState,
    act,
    plan_path,
    reset,
    sokoban,
    sudoku,
)
from tasks.problems import Problem
from trainer.credit.turn_parts import Parts, Shaping
from workflow.trace import RewardTerm

FORMAT, PLAY, PROGRESS = 0.1, 0.1, 0.8
"""The weights of all games, for planner and tool."""
NOTHING_WRITTEN = "no cell holds another digit than before"


@dataclass(frozen=True, slots=True)
class Move:
    """What an agent did with one reply."""

    step: Step[State]
    proposed: bool
    ran: bool
    """Whether the code behind it ran without an error; True where there is none."""


def in_game(problem: Problem, decision: Decision, position: Position, shaping: Shaping) -> Parts:
    """Of the reply to a decision that led to a position."""
    before = _state_after(problem, decision.path.steps)
    move = _move(before, decision, position)
    after = before if move is None else move.step.after
    return Parts(*_team(before, after, shaping), _local(move, shaping))


def _state_after(problem: Problem, steps: Sequence[AnyStep]) -> State:
    state = reset(problem)
    for step in steps:
        if isinstance(step, GameStep) and step.commit and step.text is not None:
            state = act(state, step.agent, step.text).after
    return state


def _move(before: State, decision: Decision, position: Position) -> Move | None:
    """The last thing done before the next decision with an action that the agent wrote; None where there is none, or
    the game was over."""
    done = position.path.steps[len(decision.path.steps) + 1 :]
    codes = [step for step in done if isinstance(step, CodeStep)]
    ran = all(code.reply.exit_status == 0 and code.reply.limit is None for code in codes)
    state, found = before, None
    for step in done:
        if not isinstance(step, GameStep) or step.text is None:
            continue
        played = act(state, step.agent, step.text)
        if step.author == decision.request.agent and not state.done:
            found = Move(played, not step.commit, ran)
        state = played.after if step.commit else state
    return found


def _team(before: State, after: State, shaping: Shaping) -> tuple[float, str]:
    if after.solved:
        return 1.0, "solved"
    if shaping == "dense" and isinstance(after, PlanPathState) and isinstance(before, PlanPathState):
        then, now = plan_path.manhattan_distance(before), plan_path.manhattan_distance(after)
        return max(0.0, (then - now) / plan_path.manhattan_at_start(after)), f"distance {then}, then {now}"
    if shaping == "dense" and isinstance(after, SokobanState):
        on, boxes = sokoban.boxes_on_goals(after), len(after.boxes)
        return on / boxes, f"{on} of {boxes} boxes on goals"
    return 0.0, "not solved"


def _local(move: Move | None, shaping: Shaping) -> list[RewardTerm]:
    if move is None:
        return [
            RewardTerm(name="local", value=0.0, weight=1.0, reason="it neither acted nor proposed anything of its own")
        ]
    step = move.step
    read = RewardTerm(
        name="format",
        value=float(step.readable),
        weight=FORMAT,
        reason=step.wrong if not step.readable else "an action",
    )
    if shaping == "outcome":
        read.weight = 1.0
        return [read]
    if not step.readable:
        return [read]
    name, good, reason = _progress(move)
    if isinstance(step.after, SudokuState):
        plays = move.ran if move.proposed else step.legal and bool(_written(step))
        said = step.wrong or ("legal" if plays else "its code failed" if move.proposed else NOTHING_WRITTEN)
    else:
        plays, said = step.legal, step.wrong or "legal"
    return [
        read,
        RewardTerm(name="legal", value=float(plays), weight=PLAY, reason=said),
        RewardTerm(name=name, value=good, weight=PROGRESS, reason=reason),
    ]


def _written(step: Step[State]) -> int:
    assert isinstance(step.before, SudokuState)
    assert isinstance(step.after, SudokuState)
    return sudoku.newly_written(Step(step.before, step.after, step.action, step.applied))


def _progress(move: Move) -> tuple[str, float, str]:
    """The third sub-score of each game: its name, its value, and what was seen."""
    step, before, after = move.step, move.step.before, move.step.after
    if not step.applied:
        return "progress", 0.0, "nothing was done"
    if not step.legal:
        return "progress", 0.0, "not all of it is legal"
    if isinstance(before, SudokuState) and isinstance(after, SudokuState):
        if not _written(step):
            return "progress", 0.0, NOTHING_WRITTEN
        if move.proposed:
            return "edits", 1.0, "all edits are legal"
        cells, filled = len(after.cells) ** 2, sudoku.newly_filled(Step(before, after, step.action, step.applied))
        return "filled", filled / cells, f"{filled} of {cells} cells newly filled"
    if isinstance(before, SokobanState) and isinstance(after, SokobanState):
        if move.proposed:
            then, now = sokoban.potential(before), sokoban.potential(after)
            return "potential", float(now >= then), f"potential {then}, then {now}"
        stuck = sokoban.cornered(after) - sokoban.cornered(before)
        return (
            "deadlock",
            float(stuck <= 0),
            "no box goes into a corner" if stuck <= 0 else "a box is in a corner for good",
        )
    assert isinstance(before, PlanPathState)
    assert isinstance(after, PlanPathState)
    if move.proposed:
        then, now = plan_path.manhattan_distance(before), plan_path.manhattan_distance(after)
        return "distance", float(now <= then), f"distance {then}, then {now}"
    shortest = plan_path.on_shortest_path(Step(before, after, step.action, step.applied, step.wrong))
    return "shortest", float(shortest), "on a shortest path" if shortest else "off all shortest paths"
