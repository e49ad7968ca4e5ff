"""sokoban: pushes, what ends a list, and the quantities of appendix B.5; levels that are solved in the fewest moves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_opinion import find, sokoban_fewest, sokoban_step

from tasks import SokobanLevel
from tasks.environments import SokobanState, Step, act, problem_of, reset, sokoban
from tasks.environments.sokoban_search import costs

ROOM = """\
######
#@$ .#
#  $ #
#   .#
######"""


def begun(level: str = ROOM) -> SokobanState:
    state = reset(problem_of(SokobanLevel(level=level)))
    assert isinstance(state, SokobanState)
    return state


def played(state: SokobanState, moves: str) -> Step[SokobanState]:
    return act(state, "Planner", f"#### {json.dumps(list(moves))}")  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("moves", "applied", "board", "wrong"),
    [
        ("R", 1, "######\n# @$.#\n#  $ #\n#   .#\n######", ""),
        ("RR", 2, "######\n#  @*#\n#  $ #\n#   .#\n######", ""),
        ("RRR", 2, "######\n#  @*#\n#  $ #\n#   .#\n######", "move 3 of 3, R, pushes a box against a wall"),
        ("U", 0, ROOM, "move 1 of 1, U, leads into a wall"),
        (
            "DRRRD",
            3,
            "######\n# $ .#\n#  @$#\n#   .#\n######",
            "move 4 of 5, R, pushes a box against a wall or another box",
        ),
    ],
)
def test_pushes_until_one_is_illegal(moves: str, applied: int, board: str, wrong: str) -> None:
    step = played(begun(), moves)
    assert (step.applied, step.after.board) == (applied, board)
    assert step.wrong.startswith(wrong)
    assert bool(step.wrong) == bool(wrong)


def test_two_boxes_are_not_pushed_at_once() -> None:
    step = played(begun("#######\n#@$$..#\n#######"), "R")
    assert step.wrong.endswith("R, pushes a box against a wall or another box")
    assert step.after.board == "#######\n#@$$..#\n#######"


def test_a_box_is_pushed_off_its_goal_and_the_player_stands_on_goals() -> None:
    step = played(begun("######\n#@*$.#\n#    #\n######"), "")
    assert sokoban.boxes_on_goals(step.after) == 1
    off = played(begun("######\n#@* $#\n#  . #\n######"), "R")
    assert off.after.board == "######\n# +$$#\n#  . #\n######"
    assert sokoban.boxes_on_goals(off.after) == 0


def test_solved_ends_the_game_at_once() -> None:
    step = played(begun("#######\n#@$.  #\n#######"), "RRR")
    assert (step.solved, step.legal, step.applied) == (True, True, 1)
    assert step.after.board == "#######\n# @*  #\n#######"


def test_outside_the_map_is_wall() -> None:
    step = played(begun("@$ ."), "L")
    assert step.wrong == "move 1 of 1, L, leads into a wall"
    assert played(begun("@$ ."), "RR").solved


@pytest.mark.parametrize(
    ("level", "corners"),
    [
        ("#####\n#$  #\n# @.#\n#####", 1),
        ("#####\n#*  #\n#  @#\n#####", 0),
        ("######\n# $  #\n#  @.#\n######", 0),
        ("#####\n#$@$#\n#. .#\n#####", 2),
        ("####\n#$##\n#@.#\n####", 1),
    ],
)
def test_boxes_in_corners_are_counted(level: str, corners: int) -> None:
    assert sokoban.cornered(begun(level)) == corners


def test_quantities_by_hand() -> None:
    state = begun()
    assert sokoban.potential(state) == -(2 + 2)
    assert sokoban.potential(played(state, "RR").after) == -2
    assert sokoban.boxes_on_goals(played(state, "RR").after) == 1


@given(moves=st.text("UDLR", max_size=40))
def test_moves_lead_where_another_reading_of_the_rules_does(moves: str) -> None:
    step = played(begun(), moves)
    player, boxes, made = find(ROOM, "@+")[0], frozenset(find(ROOM, "$*")), 0
    free, goals = set(find(ROOM, " .$@*+")), set(find(ROOM, ".*+"))
    for move in moves:
        after = sokoban_step(free, player, boxes, move)
        if boxes == goals or after is None:
            break
        (player, boxes), made = after, made + 1
    assert (step.after.player, step.after.boxes, step.applied) == (player, boxes, made)


@given(cells=st.permutations([(r, c) for r in range(1, 5) for c in range(1, 5)]), walls=st.integers(0, 4))
def test_the_search_finds_what_a_search_forwards_finds(cells: list[tuple[int, int]], walls: int) -> None:
    symbols = dict(zip(cells[: walls + 3], "#" * walls + "@$.", strict=True))
    rows = [
        "".join("#" if r in (0, 5) or c in (0, 5) else symbols.get((r, c), " ") for c in range(6)) for r in range(6)
    ]
    state = begun("\n".join(rows))
    position = (state.player, state.boxes)
    found = [costs(state.ground, cost, 10_000) for cost in ("moves", "pushes")]
    assert all(each.complete for each in found)
    assert tuple(each.of.get(position) for each in found) == sokoban_fewest("\n".join(rows))


def test_a_bounded_search_says_so() -> None:
    assert not costs(begun().ground, "moves", 10).complete
    assert len(costs(begun().ground, "moves", 10).of) == 10
