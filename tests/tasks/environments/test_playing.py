"""What holds in every game: states are values, proposals change nothing, turns count, and only the rules say solved."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_opinion import find, is_whole, numbers, path_moves

from tasks import Environment, PlanPathLevel, Problem, SokobanLevel, SudokuLevel
from tasks.environments import LevelError, State, act, check_level, observe, problem_of, propose, reset

PATH = PlanPathLevel(level="@.#\n..#\n#.G")
BOX = SokobanLevel(level="######\n#@ $.#\n#    #\n######")
GRID = SudokuLevel(level="1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 . .")
LEVELS: list[Environment] = [PATH, BOX, GRID]
SOLUTIONS = {"plan_path": '["D", "R", "D", "R"]', "sokoban": '["R", "R"]', "sudoku": "[[4, 3, 2], [4, 4, 1]]"}
PART = {"plan_path": '["D", "R"]', "sokoban": '["R"]', "sudoku": "[[4, 3, 2]]"}

JUNK = st.one_of(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(["U", "D", "L", "R", "X", ""]),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=12,
    ).map(json.dumps),
    st.lists(st.sampled_from("UDLR"), max_size=12).map(json.dumps),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 4)), max_size=12).map(json.dumps),
    st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=4, max_size=4).map(json.dumps),
    st.lists(
        st.tuples(st.sampled_from(["[", "]", '{"":', "}", '"', '\\"', "\\", ",", " ", '"U"']), st.integers(1, 2000)),
        max_size=6,
    ).map(lambda pieces: "#### [" + "".join(piece * count for piece, count in pieces)),
)
HOSTILE = [
    "",
    "####",
    "#### __import__('os').system('touch /tmp/evaluated')",
    "#### [" * 50_000,
    "#### " + "9" * 10_000,
    "#### [1e999, NaN]",
    "#### " + json.dumps([[1, 1, 10**30]]),
    "#### " + json.dumps(["U"] * 10_000),
    "#### " + json.dumps([["U"]] * 10_000),
    '#### {"solved": true}',
    "#### true",
    "#### [true, [1, 1, true]]",
    "#### [[1.0, 1, 1]]",
    "\x00\ud800",
    '#### ["' + "]" * 3000 + '",' + "[" * 3000,
    '#### ["' + "}" * 3000 + '",' + '{"":' * 3000,
    '#### ["\\"' + "]" * 3000 + '",' + "[" * 3000 + "]" * 3000 + "]",
    '#### [["' + "]" * 60_000,
    '#### ["U", "' + "[" * 3000 + '"]',
]


def begun(environment: Environment) -> State:
    return reset(problem_of(environment))


def is_solved(state: State) -> bool:
    """By validators of the tests."""
    if state.kind == "plan_path":
        return "*" in state.board and "@" not in state.board and "G" not in state.board
    if state.kind == "sokoban":
        return not find(state.board, "$") and bool(find(state.board, "*"))
    return is_whole(numbers(state.board))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_a_game_from_its_start_to_its_solution(level: Environment) -> None:
    state = begun(level)
    assert not state.done
    assert state.board == level.level
    step = act(state, "Planner", f"I think so.\n#### {SOLUTIONS[level.kind]}")
    assert (step.readable, step.legal, step.done, step.solved, step.wrong) == (True, True, True, True, "")
    assert step.applied == len(step.action or ())
    assert observe(step.after, "Planner").startswith("Solved, with 1 of 4 turns.")
    again = act(step.after, "Planner", f"#### {PART[level.kind]}")
    assert (again.after, again.action, again.wrong) == (step.after, None, "the game is over")


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_a_proposal_changes_nothing(level: Environment) -> None:
    state = begun(level)
    before, digest = dataclasses.replace(state), state.digest
    proposed = propose(state, "Tool", f"#### {PART[level.kind]}")
    assert (state, state.digest) == (before, digest)
    assert proposed == act(state, "Tool", f"#### {PART[level.kind]}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.turn = 3  # type: ignore[misc]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_the_same_position_has_the_same_digest_and_any_other_another(level: Environment) -> None:
    once, twice = begun(level), begun(level)
    assert once.digest == twice.digest
    assert len(once.digest) == 32
    step = act(once, "", PART[level.kind])
    waited = act(once, "", "no action")
    assert len({once.digest, step.after.digest, waited.after.digest}) == 3
    assert begun(level.model_copy(update={"turns": 5})).digest != once.digest


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_an_unreadable_action_takes_a_turn_and_changes_nothing_else(level: Environment) -> None:
    state = begun(level)
    step = act(state, "Planner", "#### I give up")
    assert not step.readable
    assert not step.legal
    assert step.applied == 0
    assert step.wrong.startswith("no JSON")
    assert step.after == dataclasses.replace(state, turn=1)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_used_up_turns_are_no_solution(level: Environment) -> None:
    state = begun(level)
    seen = []
    for _ in range(4):
        assert not state.done
        seen.append(observe(state, "Planner").split("\n")[0])
        state = act(state, "Planner", "[]").after
    assert seen == [f"Turn {turn} of 4." for turn in (1, 2, 3, 4)]
    assert state.done
    assert not state.solved
    assert observe(state, "Planner").startswith("Not solved, and all 4 turns are used up.")
    late = act(state, "Planner", SOLUTIONS[level.kind])
    assert not late.solved
    assert late.after == state


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_observations_show_the_position_and_not_the_start(level: Environment) -> None:
    state = begun(level)
    later = act(state, "Planner", PART[level.kind]).after
    assert later.board != state.board
    assert later.board in observe(later, "Planner")
    assert state.board not in observe(later, "Planner")


@given(level=st.sampled_from(LEVELS), texts=st.lists(JUNK | st.sampled_from(HOSTILE), min_size=1, max_size=5))
def test_whatever_is_said_only_the_rules_say_solved(level: Environment, texts: list[str]) -> None:
    state = begun(level)
    for number, text in enumerate(texts):
        step = act(state, "Planner", text)
        assert step.solved == is_solved(step.after)
        assert step.applied <= len(step.action or ())
        assert step.legal <= step.readable
        assert step.after.turn == min(number + 1, 4) or state.done
        assert step.before == state
        state = step.after
    assert state.done == (state.solved or state.turn == 4)


@given(level=st.sampled_from(LEVELS), texts=st.lists(JUNK, min_size=1, max_size=4))
def test_a_game_is_a_function_of_what_is_said(level: Environment, texts: list[str]) -> None:
    states = [begun(level), begun(level)]
    for text in texts:
        states = [act(state, agent, text).after for state, agent in zip(states, ("Tool", "Planner"), strict=True)]
        assert states[0] == states[1]
        assert states[0].digest == states[1].digest


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.kind)
def test_hostile_actions_are_read_by_nobody(level: Environment, text: str) -> None:
    step = act(begun(level), "Planner", text)
    assert not step.readable
    assert step.wrong
    assert len(step.wrong) < 300
    assert step.after.board == level.level


@pytest.mark.parametrize(
    ("level", "what"),
    [
        (PlanPathLevel(level="@.\n.x"), "line 2, column 2: 'x' is no symbol of plan_path. Fix: use # . @ G"),
        (PlanPathLevel(level="@.\n.G."), "line 2, column 3: 3 columns, the first line has 2"),
        (PlanPathLevel(level=".G"), r"line 1, column 2: there is no start \(@\)"),
        (PlanPathLevel(level="@.\n@G"), "line 2, column 1: a second start"),
        (PlanPathLevel(level="@#\n#G"), "line 1, column 1: no path leads from here to the goal"),
        (PlanPathLevel(level="\n@G"), "line 1, column 1: a level of plan_path has 1 to 64 rows and columns"),
        (SokobanLevel(level="####\n#@$#\n#  #\n####"), "line 2, column 3: boxes: 1, goals: 0. Fix: take boxes away"),
        (SokobanLevel(level="#####\n#@*.#\n#####"), "line 2, column 4: boxes: 1, goals: 2. Fix: take goals away"),
        (SokobanLevel(level="####\n#@.#\n####"), "there is no box"),
        (SokobanLevel(level="@*"), "it is solved before anything is done"),
        (SokobanLevel(level="#####\n#$@.#\n#####"), "no moves bring all boxes onto goals"),
        (SokobanLevel(level="####\n#$.#\n####"), r"there is no player \(@ or \+\)"),
        (SudokuLevel(level="1 2\n3 4"), "a sudoku has 4, 9, 16 lines, this has 2"),
        (SudokuLevel(level="1 . . .\n. . . .\n. . 5 .\n. . . ."), "line 3, column 5: '5' is no cell"),
        (SudokuLevel(level="1 . . .\n. . .\n. . . .\n. . . ."), "line 2, column 6: 3 cells in a row of 4"),
        (
            SudokuLevel(level="1 . . .\n. 1 . .\n. . . .\n. . . ."),
            "line 2, column 3: 1 stands at line 1, column 1, too",
        ),
        (SudokuLevel(level="1 2 3 .\n. . . 4\n. . . .\n. . . ."), "no grid has these digits"),
    ],
)
def test_a_level_that_is_none_is_told_with_its_place(level: Environment, what: str) -> None:
    with pytest.raises(LevelError, match=what):
        check_level(level)


def test_only_games_are_played() -> None:
    with pytest.raises(ValueError, match=r"problem 'x' is no game \(its domain is math\)"):
        reset(Problem(id="x", question="1 + 1?", domain="math", gold="2"))


def test_the_question_tells_rules_level_and_how_to_act() -> None:
    for level in LEVELS:
        question = problem_of(level).question
        assert level.level in question
        assert "####" in question
        assert "at most 4 lists" in question
    assert path_moves(PATH.level) == 4


def at_depth(depth: int, work: Callable[[], str]) -> str:
    return work() if depth == 0 else at_depth(depth - 1, work)


@pytest.mark.parametrize("brackets", [4, 100, 900, 990, 30_000])
def test_what_an_action_does_hangs_on_nobodys_stack(brackets: int) -> None:
    """How deep a parser may go depends on who calls it."""
    state = reset(problem_of(PlanPathLevel(level="@.\n.G")))
    said = {at_depth(depth, lambda: act(state, "A", "[" * brackets + "]" * brackets).wrong) for depth in (0, 200, 600)}
    assert said == {"no JSON: nested too deep"}


def test_a_text_is_read_from_its_end() -> None:
    state = reset(problem_of(PlanPathLevel(level="@.\n.G")))
    long = "x" * 70_000
    assert act(state, "A", f'{long}\n#### ["R"]').applied == 1
    assert not act(state, "A", f'<delivery>["R"]</delivery>{long}').readable
