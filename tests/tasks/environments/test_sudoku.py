"""sudoku: grids and edits, givens, what ends a list, newly filled cells; the search for all fillings."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from second_opinion import ALL_GRIDS_4, count_solutions, is_whole, numbers, solutions_4

from tasks import SudokuLevel
from tasks.environments import Edit, SudokuState, act, problem_of, reset, sudoku
from tasks.environments.machine import Step
from tasks.environments.sudoku_search import MOST_PLACED, SearchTooLong, fillings

LEVEL = """\
1 . . 4
. 4 1 .
2 . 4 3
4 3 . ."""
WHOLE = [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]


def begun(level: str = LEVEL) -> SudokuState:
    state = reset(problem_of(SudokuLevel(level=level)))
    assert isinstance(state, SudokuState)
    return state


def played(state: SudokuState, action: object) -> Step[SudokuState]:
    return act(state, "Planner", f"#### {json.dumps(action)}")  # type: ignore[return-value]


def changed(grid: list[list[int]], *edits: tuple[int, int, int]) -> list[list[int]]:
    rows = [list(row) for row in grid]
    for row, column, digit in edits:
        rows[row - 1][column - 1] = digit
    return rows


def test_edits_and_the_whole_grid_solve() -> None:
    edits = [[1, 2, 2], [1, 3, 3], [2, 1, 3], [2, 4, 2], [3, 2, 1], [4, 3, 2], [4, 4, 1]]
    for action in (edits, WHOLE):
        step = played(begun(), action)
        assert step.solved
        assert step.legal
        assert step.action == tuple(Edit(*edit) for edit in edits)
        assert step.after.cells == tuple(map(tuple, WHOLE))
        assert sudoku.newly_filled(step) == 7


@pytest.mark.parametrize(
    ("action", "applied", "wrong"),
    [
        ([[1, 1, 2]], 0, "edit 1 of 1, [1, 1, 2], changes a given"),
        ([[1, 1, 0]], 0, "edit 1 of 1, [1, 1, 0], changes a given"),
        ([[1, 1, 1], [1, 2, 2]], 2, ""),
        ([[1, 2, 2], [1, 3, 2], [2, 1, 3]], 1, "edit 2 of 3, [1, 3, 2], repeats a digit in its row, column or box"),
        ([[2, 1, 2]], 0, "edit 1 of 1, [2, 1, 2], repeats"),
        ([[1, 2, 2], [1, 2, 0]], 2, ""),
        ([], 0, ""),
    ],
)
def test_edits_until_one_is_illegal(action: list[list[int]], applied: int, wrong: str) -> None:
    step = played(begun(), action)
    assert (step.readable, step.applied) == (True, applied)
    assert step.wrong.startswith(wrong)
    assert step.legal == (not wrong)


@pytest.mark.parametrize(
    ("action", "wrong"),
    [
        ([[5, 1, 1]], "row 5: a whole number from 1 to 4"),
        ([[0, 1, 1]], "row 0"),
        ([[1, 1, 5]], "digit 5: a whole number from 0 to 4"),
        ([[1, 1]], "[1, 1] is no [row, column, digit], and the whole no grid of side 4"),
        ([1, 1, 1], "1 is no [row, column, digit]"),
        (changed(WHOLE, (1, 1, 9)), "digit 9"),
        ({"row": 1}, "a list of [row, column, digit] or a grid is needed"),
        ([[1, 1, "1"]], 'digit "1"'),
        ([[1, 1, 1]] * 1001, "1,001 of them; at most 1,000 are read"),
    ],
)
def test_what_is_no_action_changes_nothing(action: object, wrong: str) -> None:
    step = played(begun(), action)
    assert not step.readable
    assert step.wrong.startswith(wrong)
    assert step.after.cells == step.before.cells


def test_a_grid_may_leave_cells_blank_and_correct_what_was_filled_in() -> None:
    swapped = played(begun(), [[1, 2, 2], [4, 4, 1]])
    first = played(begun(), [[2, 1, 3], [2, 4, 2]]).after
    assert sudoku.blanks(swapped.after.cells) == 5
    whole = played(first, WHOLE)
    assert whole.solved
    wrong = played(begun("\n".join([". . . ."] * 4)), [[1, 1, 2], [1, 2, 1]]).after
    mended = played(wrong, changed([[0] * 4] * 4, (1, 1, 1), (1, 2, 2)))
    assert mended.legal
    assert mended.after.cells[0] == (1, 2, 0, 0)
    assert sudoku.newly_filled(mended) == 0


def test_a_grid_is_played_in_reading_order_until_a_cell_is_illegal() -> None:
    step = played(begun(), changed(WHOLE, (2, 4, 3)))
    assert step.wrong == "edit 4 of 7, [2, 4, 3], repeats a digit in its row, column or box"
    assert step.after.cells[:2] == ((1, 2, 3, 4), (3, 4, 1, 0))
    assert sudoku.newly_filled(step) == 3


def test_clearing_and_filling_again_is_no_gain() -> None:
    once = played(begun(), [[1, 2, 2]])
    cleared = played(once.after, [[1, 2, 0]])
    again = played(cleared.after, [[1, 2, 2]])
    assert [sudoku.newly_filled(step) for step in (once, cleared, again)] == [1, 0, 0]
    assert cleared.after.cells == begun().cells
    assert cleared.after.digest != begun().digest


def test_what_is_seen() -> None:
    later = played(begun(), [[1, 2, 2]]).after
    assert later.board.split("\n")[0] == "1 2 . 4"
    assert later.situation == "Blank cells: 6. Filled in so far, as [row, column, digit]: [[1, 2, 2]]."


@given(grid=st.sampled_from(ALL_GRIDS_4), blanks=st.sets(st.integers(0, 15)))
def test_fillings_are_all_those_that_trying_finds(grid: list[list[int]], blanks: set[int]) -> None:
    rows = tuple(tuple(0 if 4 * r + c in blanks else grid[r][c] for c in range(4)) for r in range(4))
    found = fillings(rows, most=300)
    assert sorted(found) == sorted(tuple(map(tuple, each)) for each in solutions_4(sudoku.grid_text(rows)))
    assert len(fillings(rows)) == min(2, len(found)) == count_solutions([list(row) for row in rows])


def test_there_are_288_grids_and_12_up_to_renaming() -> None:
    assert len(ALL_GRIDS_4) == 288
    texts = {sudoku.canonical_grid(sudoku.grid_text(tuple(map(tuple, grid)))) for grid in ALL_GRIDS_4}
    assert len(texts) == 12


def test_whole_grids_are_drawn_in_any_size_and_by_the_dice() -> None:
    for side in (4, 9, 16):
        empty = ((0,) * side,) * side
        drawn = [fillings(empty, most=1, dice=random.Random(seed))[0] for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]
        assert is_whole([list(row) for row in drawn[2]])


def test_a_search_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PLACED > 1000
    monkeypatch.setattr("tasks.environments.sudoku_search.MOST_PLACED", 50)
    with pytest.raises(SearchTooLong):
        fillings(((0,) * 9,) * 9, most=1)


def test_givens_and_grids_in_text() -> None:
    assert numbers(begun().board) == [list(row) for row in begun().cells]
    wide = sudoku.grid_text(((16, 0), (1, 2)) * 8)
    assert wide.split("\n")[0] == "16  ."
