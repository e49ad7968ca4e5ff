"""A game as a run plays it, and what it has done, read back from its Trace."""

from dataclasses import replace

import pytest

from tasks.environments import Position, begins, played, problem_of, reset
from tasks.problems import PlanPathLevel, Problem, SudokuLevel
from workflow.trace import EnvironmentStepped

PATH = problem_of(PlanPathLevel(level="@#\n.G"))
SUDOKU = problem_of(SudokuLevel(level="1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 . ."))


def step(position: Position, text: str, commit: bool = True) -> tuple[Position, EnvironmentStepped]:
    """What the session does with an action."""
    done = position.act("P", text)
    event = EnvironmentStepped(
        agent="P",
        text=text,
        commit=commit,
        action=done.action,
        legal=done.legal,
        before=position.digest,
        after=done.after.digest,
        done=done.seen.done,
        solved=done.after.solved,
    )
    assert isinstance(done.after, Position)
    return (done.after if commit else position), event


def first(problem: Problem) -> Position:
    position = begins(problem)
    assert position is not None
    return position


def test_only_games_are_played() -> None:
    assert begins(Problem(id="m", question="1+1?", domain="math", gold="2")) is None
    assert first(PATH).state == reset(PATH)


def test_what_an_agent_sees_says_what_went_wrong() -> None:
    position = first(PATH)
    assert position.observe("P").text.startswith("Turn 1 of 4.\n\n@#\n.G")
    assert position.act("P", '["D"]').seen.text.startswith("Turn 2 of 4.\n\n.#\n@G")
    said = position.act("P", '["R"]').seen.text
    assert said.startswith("Move 1 of 1, R, leads into a wall or off the grid.\n\nTurn 2")
    assert position.act("P", "down").seen.text.startswith("No action: no JSON: ")
    over = position.act("P", '["D", "R"]')
    assert over.seen.done
    assert over.after.solved
    assert over.after.act("P", '["L"]').seen.text.startswith("The game is over.\n\nSolved, with 1 of 4 turns.")


def test_actions_are_plain_json() -> None:
    assert first(SUDOKU).act("P", "[[4, 3, 2], [4, 4, 1]]").action == [[4, 3, 2], [4, 4, 1]]
    assert first(PATH).act("P", "[]").action == []
    assert first(PATH).act("P", "x").action is None


def test_a_game_that_was_played_is_played_again() -> None:
    position, events = first(PATH), []
    for text, commit in [('["D", "R"]', False), ('["D"]', True), ("?", True), ('["R"]', True)]:
        position, event = step(position, text, commit)
        events.append(event)
    again = played(PATH, events)
    assert [event for event, _ in again] == events
    assert [(each.before.digest, each.after.digest) for _, each in again] == [(e.before, e.after) for e in events]
    assert [each.solved for _, each in again] == [True, False, False, True]
    other = problem_of(PlanPathLevel(level="@.\n.G"))
    with pytest.raises(ValueError, match=f"not of problem '{other.id}': action 1"):
        played(other, events)
    with pytest.raises(ValueError, match="action 1"):
        played(PATH, [replace(events[0], after="other")])
    with pytest.raises(ValueError, match="action 2"):
        played(PATH, [events[0], events[2]])
