"""Rows of label trees: which edges, with which targets, and which problems validate. A tokenizer and no torch model."""

# pyright: reportMissingImports=false

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import label_trees as trees
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")

from benchmarks.tiny_models import make_tokenizer
from search.problem import NodeLine, StateLine, TreeDamaged
from tasks.environments import Knobs, PlanPathKnobs, SokobanKnobs, SudokuKnobs, generate
from trainer.values import RowsRefused, StateView, TreeRows, View, held_out_problems, question_digest, rows_of_trees
from workflow.failures import Failure

SEPARATOR = "<|value|>"


def view(kind: View = "transcript", max_tokens: int | None = None) -> StateView:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([SEPARATOR], special_tokens=True)
    return StateView(tokenizer, SEPARATOR, kind, max_tokens)


def rows(*paths: Path, kind: View = "transcript", **options: Any) -> TreeRows:
    return rows_of_trees(paths, view(kind, options.pop("max_tokens", None)), **options)


def read(found: TreeRows) -> list[tuple[str, str, int, float, int]]:
    """The newest reply, agent, depth, target and visits of each row."""
    tokenizer = make_tokenizer()
    return [
        (
            tokenizer.decode(list(row.tokens.token_ids[row.tokens.action : -1])),
            row.agent,
            row.depth,
            round(row.target, 4),
            row.visits,
        )
        for row in found.rows
    ]


def test_a_tree_with_an_end_that_a_clock_brought_is_left_out(tmp_path: Path) -> None:
    late = [
        line.model_copy(update={"timed_out": True}) if isinstance(line, StateLine) and line.id == 5 else line
        for line in trees.relay()
    ]
    found = rows(trees.write(tmp_path / "t.jsonl", late), trees.write(tmp_path / "u.jsonl", trees.relay("p1", "How?")))
    assert found.dropped == {"trees with an end that a clock brought": 1}
    assert len(found.rows) == 5
    assert len(found.problems) == 2


def test_every_visited_edge_once_with_its_q(tmp_path: Path) -> None:
    """Not a row per leaf, by which states near the root are there as often as they have leaves (preprocess_data.py,
    182-235 of the released code). c was drawn and never visited."""
    path = trees.write(tmp_path / "t.jsonl", trees.relay())
    assert read(rows(path)) == [
        ("a", "Ann", 1, 0.3333, 3),
        ("b", "Ann", 1, -0.9999, 1),
        ("d", "Bob", 2, 0.9999, 2),
        ("e", "Bob", 2, -0.9999, 1),
        ("f", "Bob", 2, -0.9999, 1),
    ]


def test_an_outcome_model_has_a_row_for_each_end(tmp_path: Path) -> None:
    found = rows(trees.write(tmp_path / "t.jsonl", trees.relay()), kind="outcome")
    assert read(found) == [("42", "Bob", 2, 0.9999, 2), ("43", "Bob", 2, -0.9999, 1), ("", "Bob", 2, -0.9999, 1)]
    text = make_tokenizer().decode(list(found.rows[0].tokens.token_ids[:-1]))
    assert text == "Question:\nWhy?\n\nAnswer:\n42", "and nothing of the transcript"


def test_virtual_visits_do_not_count(tmp_path: Path) -> None:
    lines = [
        line.model_copy(update={"virtual": True, "value": 0.7}) if isinstance(line, NodeLine) else line
        for line in trees.relay()
    ]
    assert read(rows(trees.write(tmp_path / "v.jsonl", lines))) == read(
        rows(trees.write(tmp_path / "t.jsonl", trees.relay()))
    )


def test_min_visits_is_off_and_counts(tmp_path: Path) -> None:
    path = trees.write(tmp_path / "t.jsonl", trees.relay())
    found = rows(path, min_visits=2)
    assert [text for text, *_ in read(found)] == ["a", "d"]
    assert found.dropped == {"fewer than 2 visits": 3}


def test_no_tree_is_dropped_for_its_root_unless_asked_for_and_then_it_is_said(tmp_path: Path) -> None:
    """preprocess_data.py:198-201 drops those beyond 0.7, in silence."""
    sure = [
        trees.header("sure", "Sure?"),
        trees.asks(0, "Ann", "Why?"),
        trees.reply(1, 0, "Ann", 1, "a"),
        trees.ends(1, "1", 1.0),
        trees.simulated(1.0, 1),
    ]
    trees.write(tmp_path / "1.jsonl", sure)
    trees.write(tmp_path / "2.jsonl", trees.relay())
    everything = rows(tmp_path)
    assert (len(everything.rows), everything.trees, everything.dropped) == (6, 2, {})
    windowed = rows(tmp_path, root_window=0.7)
    assert len(windowed.rows) == 5
    assert windowed.dropped == {"trees with |Q| at the root beyond 0.7": 1}
    assert windowed.problems == everything.problems


def test_what_cannot_be_read_is_counted_by_reason(tmp_path: Path) -> None:
    failed = Failure(kind="limit_exceeded", message="m", fields={"limit_kind": "context_tokens", "limit": 1, "used": 2})
    lines = [
        trees.header(),
        trees.asks(0, "Ann", "Why?"),
        trees.reply(1, 0, "Ann", 1, failed),
        trees.reply(2, 0, "Ann", 1, "a" * 50),
        trees.reply(3, 0, "Ann", 1, "b"),
        *(trees.ends(number, None, -1.0) for number in (1, 2, 3)),
        *(trees.simulated(-1.0, number) for number in (1, 2, 3)),
    ]
    found = rows(trees.write(tmp_path / "t.jsonl", lines), max_tokens=40)
    assert [text for text, *_ in read(found)] == ["b"]
    assert found.dropped == {"failed": 1, "too long": 1}


def test_folders_files_and_torn_lines(tmp_path: Path) -> None:
    trees.write(tmp_path / "run" / "trees" / "1.jsonl", trees.relay("p1", "1?"))
    (tmp_path / "run" / "results.jsonl").write_text("no tree\n")
    other = trees.write(tmp_path / "2.jsonl", trees.relay("p2", "2?"))
    other.write_text(other.read_text()[:-4])
    (tmp_path / "link").symlink_to(other)
    found = rows(tmp_path / "run", other, other, tmp_path / "run" / ".." / "run", tmp_path / "link")
    assert (found.trees, found.torn, found.dropped) == (2, [str(other)], {})
    assert len(found.rows) == 10
    assert found.problems == sorted(map(question_digest, ("1?", "2?")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(RowsRefused, match=r"empty has no tree.*Fix: "):
        rows(tmp_path / "empty")
    other.write_text("{}\n")
    with pytest.raises(TreeDamaged, match=r"2.jsonl:1"):
        rows(other)


def test_of_two_copies_of_a_tree_the_longer_one_counts(tmp_path: Path) -> None:
    lines = trees.relay("p1", "1?")
    trees.write(tmp_path / "short" / "1.jsonl", lines[:-4])
    trees.write(tmp_path / "long" / "1.jsonl", lines)
    trees.write(tmp_path / "long" / "2.jsonl", trees.relay("p2", "1?"))
    whole = rows(tmp_path / "long")
    for folders in (("short", "long"), ("long", "short"), ("long", "short", "short")):
        found = rows(*(tmp_path / folder for folder in folders))
        assert (found.trees, found.dropped) == (2, {"trees that are there twice": 1})
        assert found.rows == whole.rows


def test_a_separator_that_somebody_wrote_is_refused_with_how_often(tmp_path: Path) -> None:
    lines = [
        trees.reply(line.id, line.parent, line.agent, line.depth, f"{line.completion.text} {SEPARATOR}.")
        if isinstance(line, NodeLine) and line.id in (2, 3) and line.completion is not None
        else line
        for line in trees.relay("p1", "1?")
    ]
    trees.write(tmp_path / "1.jsonl", lines)
    trees.write(tmp_path / "2.jsonl", trees.relay("p2", "2?"))
    with pytest.raises(RowsRefused, match=r"'<\|value\|>' stands in 2 replies of the trees.*Fix: a separator"):
        rows(tmp_path)


def test_a_tree_that_a_guide_searched_is_no_label(tmp_path: Path) -> None:
    lines = [*trees.relay(), trees.simulated(0.4, 1)]
    with pytest.raises(
        TreeDamaged, match=r"t.jsonl:18 .* backed up 0.4 from node 1, which has no graded end. Fix: delete"
    ):
        rows(trees.write(tmp_path / "t.jsonl", lines))
    lines = [*trees.relay(), trees.simulated(1.0, 1, 5)]
    with pytest.raises(TreeDamaged, match=r"backed up 1 from node 5, which has R = -1"):
        rows(trees.write(tmp_path / "t.jsonl", lines))


@pytest.mark.parametrize("method", ["greedy", "majority", "beam", "mcts", None])
@pytest.mark.parametrize("kind", ["local", "outcome"])
def test_the_tree_of_a_search_is_no_label_whatever_its_numbers(kind: View, method: str | None, tmp_path: Path) -> None:
    """Searches are made of test sets, too, and theirs have graded ends."""
    path = trees.write(tmp_path / "t.jsonl", [trees.header(method=method), *trees.relay()[1:]])
    with pytest.raises(RowsRefused, match=rf"t.jsonl is no tree of labels: its header has method {method!r}.*Fix: tr"):
        rows(path, kind=kind)
    trees.write(tmp_path / "s.jsonl", trees.relay("p2"))
    trees.write(tmp_path / "u.jsonl", [trees.header("p3", method=method), *trees.relay()[1:]])
    with pytest.raises(RowsRefused, match=r"t.jsonl is no tree of labels: .*; 2 of 3 trees are none. Fix: trees of"):
        rows(tmp_path, kind=kind)


@pytest.mark.parametrize("kind", ["local", "outcome"])
def test_what_stands_in_math500_gives_no_row(kind: View, tmp_path: Path) -> None:
    asked = "How many positive whole-number divisors does  196 have?"
    trees.write(tmp_path / "1.jsonl", trees.relay("test/1", asked))
    trees.write(tmp_path / "2.jsonl", trees.relay("p2"))
    found = rows(tmp_path, kind=kind)
    assert (found.math500, found.trees, found.problems) == (["test/1"], 1, [question_digest("Why?")])
    assert {row.problem for row in found.rows} == set(found.problems)


def test_one_question_is_one_problem_whatever_its_id_and_digest(tmp_path: Path) -> None:
    """Trees with another tolerance have another digest of the problem, and would be on both sides of the split."""
    for number, asked in enumerate(("Why  not?", " Why\nnot?", "Why not?", "Why now?")):
        trees.write(tmp_path / f"{number}.jsonl", trees.relay(f"p{number}", asked))
    found = rows(tmp_path)
    assert found.trees == 4
    assert found.problems == sorted({question_digest("Why not?"), question_digest("Why now?")})
    assert len({row.problem for row in found.rows[:15]}) == 1


def test_a_state_that_was_not_described_is_named(tmp_path: Path) -> None:
    lines = [line for line in trees.relay() if getattr(line, "messages", None) != trees.asks(1, "Bob", "a?").messages]
    with pytest.raises(RowsRefused, match=r"node 4 was drawn from state 1, of which no line says what was asked"):
        rows(trees.write(tmp_path / "t.jsonl", lines))


@given(problems=st.sets(st.text(max_size=8), max_size=60), share=st.floats(0, 0.99), seed=st.integers(0, 3))
def test_so_many_problems_validate_whatever_their_rows(problems: set[str], share: float, seed: int) -> None:
    """Not rows, which puts one tree on both sides, and 5 % where 5 % are said (train/trainer.py:956)."""
    held = held_out_problems([*problems, *problems], share, seed)
    assert held <= problems
    assert len(held) == round(share * len(problems))
    assert held == held_out_problems(sorted(problems, reverse=True), share, seed)


def test_another_seed_holds_out_others() -> None:
    problems = [str(number) for number in range(200)]
    assert held_out_problems(problems, 0.05, 0) != held_out_problems(problems, 0.05, 1)
    assert len(held_out_problems(problems, 0.05, 0)) == 10


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is $\\frac{1}{2}$ of 10?", "What is  $\\dfrac12$ of 10?"),
        ("A caf\u00e9?", "a cafe\u0301?"),
        ("Ann\u2019s age?", "Ann's age?"),
        ("**Why $x \\leq 2$?**", "1. Why x \u2264 2?"),
    ],
)
def test_a_problem_is_one_however_it_is_written(one: str, other: str) -> None:
    """Else it could stand on both sides of the split."""
    assert question_digest(one) == question_digest(other)


@pytest.mark.parametrize("knobs", [PlanPathKnobs(size=(4, 4)), SokobanKnobs(size=(5, 5)), SudokuKnobs(blanks=6)])
def test_each_level_of_a_game_is_a_problem_of_its_own(knobs: Knobs) -> None:
    levels = generate(knobs, 40, seed=random.randrange(10**6))
    assert len({question_digest(each.question, "game") for each in levels}) == 40


def test_problems_that_differ_are_two_and_of_games_each_sign_counts() -> None:
    assert question_digest("What is 1.5 + 2?") != question_digest("What is 15 + 2?")
    assert question_digest("?!") != question_digest("!?")
    assert question_digest("#.@$#", "game") != question_digest("#@.$#", "game")
    assert question_digest("Push.\n#@ $.#", "game") != question_digest("Push.\n#@$ .#", "game")
    assert question_digest("#@  $ .#", "game") != question_digest("#@ $  .#", "game")
    assert question_digest("#  @#\n## .#", "game") != question_digest("#  @ #\n##.#", "game")
    assert question_digest("ab\nc", "game") != question_digest("a\nbc", "game")
    assert question_digest("Poussez, cafe\u0301.\n#@ $.#", "game") == question_digest(
        "Poussez, caf\u00e9.\r\n#@ $.#\n", "game"
    )
    assert question_digest("f(x_1)", "code") != question_digest("f(x1)", "code")
    assert question_digest("Ann\u2019s  caf\u00e9", "code") == question_digest("Ann's cafe\u0301", "code")
