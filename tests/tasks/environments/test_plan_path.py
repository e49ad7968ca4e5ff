"""plan_path: moves, what ends a list, and the quantities of appendix B.4."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_opinion import path_moves

from tasks import PlanPathLevel
from tasks.environments import PlanPathState, Step, act, plan_path, problem_of, reset

DETOUR = """\
@#G.
.#.#
...#
####"""


def begun(level: str = DETOUR) -> PlanPathState:
    state = reset(problem_of(PlanPathLevel(level=level)))
    assert isinstance(state, PlanPathState)
    return state


def played(state: PlanPathState, moves: str) -> Step[PlanPathState]:
    return act(state, "Planner", f"#### {json.dumps(list(moves))}")  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("moves", "applied", "position", "wrong"),
    [
        ("DD", 2, (2, 0), ""),
        ("DDRRUU", 6, (0, 2), ""),
        ("R", 0, (0, 0), "move 1 of 1, R, leads into a wall or off the grid"),
        ("DLD", 1, (1, 0), "move 2 of 3, L, leads into a wall or off the grid"),
        ("DDRRUURRR", 6, (0, 2), ""),
        ("", 0, (0, 0), ""),
    ],
)
def test_moves_until_one_is_illegal_or_the_goal_is_reached(
    moves: str, applied: int, position: tuple[int, int], wrong: str
) -> None:
    step = played(begun(), moves)
    assert step.action == tuple(moves)
    assert (step.applied, step.after.position, step.wrong) == (applied, position, wrong)
    assert step.solved == (position == (0, 2))


def test_what_is_seen_after_some_moves() -> None:
    later = played(begun(), "DDR").after
    assert later.board == ".#G.\n.#.#\n.@.#\n####"
    assert later.situation == "You (@) are at row 3, column 2; the goal (G) is at row 1, column 3."
    assert played(later, "RUU").after.board == ".#*.\n.#.#\n...#\n####"


def test_quantities_by_hand() -> None:
    state = begun()
    assert plan_path.manhattan_distance(state) == plan_path.manhattan_at_start(state) == 2
    assert plan_path.distance(state) == 6
    later = played(state, "DD").after
    assert (plan_path.manhattan_distance(later), plan_path.distance(later)) == (4, 4)
    assert plan_path.manhattan_at_start(later) == 2


@pytest.mark.parametrize(
    ("moves", "shortest"),
    [("D", True), ("DDRRUU", True), ("DU", False), ("DUD", False), ("R", False), ("DR", False), ("", False)],
)
def test_a_list_is_on_a_shortest_path_if_all_its_moves_are(moves: str, shortest: bool) -> None:
    assert plan_path.on_shortest_path(played(begun(), moves)) is shortest


def test_moves_behind_the_goal_are_on_no_shortest_path() -> None:
    step = played(begun(), "DDRRUUR")
    assert step.solved
    assert step.legal
    assert not plan_path.on_shortest_path(step)


def test_an_unreadable_action_is_on_no_shortest_path() -> None:
    assert not plan_path.on_shortest_path(act(begun(), "Planner", "no"))  # type: ignore[arg-type]


@given(
    rows=st.lists(st.text("..#", min_size=5, max_size=5), min_size=5, max_size=5),
    moves=st.text("UDLR", max_size=8),
)
def test_distances_are_those_of_another_search(rows: list[str], moves: str) -> None:
    level = "\n".join(["@" + rows[0][1:], *rows[1:4], rows[4][:4] + "G"])
    shortest = path_moves(level)
    if shortest is None:
        with pytest.raises(ValueError, match="no path leads"):
            begun(level)
        return
    state = begun(level)
    assert plan_path.distance(state) == shortest
    after = played(state, moves).after
    assert plan_path.distance(after) == (0 if after.solved else path_moves(after.board))
    assert plan_path.distance(after) >= plan_path.manhattan_distance(after)
