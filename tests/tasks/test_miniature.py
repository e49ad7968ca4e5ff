"""The family of small problems: right golds, disjoint splits, questions that are read back as they were drawn."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data import miniature
from tasks.data.miniature import KINDS, Difficulty, Kind, Reading, kind_of, mixed, problems, read, split_of
from tasks.problems import Problem


@pytest.mark.parametrize(
    ("question", "reading", "answer"),
    [
        ("What is 47 + 38?", Reading("sum", (47, 38)), "85"),
        ("Add up 47, 8, 63.", Reading("chain", (47, 8, 63)), "118"),
        ("What is 123 * 45?", Reading("product", (123, 45)), "5535"),
        ("Which two of 3, 8, 12, 17 add up to 25?", Reading("pair", (3, 8, 12, 17), 25), "8, 17"),
    ],
)
def test_a_question_is_read_and_answered(question: str, reading: Reading, answer: str) -> None:
    assert read(f"Solve this.\n\n{question} Thank you.") == reading
    assert reading.answer == answer


def test_the_first_question_of_a_text_counts_and_others_are_not_of_the_family() -> None:
    found = read("What is 1 + 2? Add up 3, 4, 5.")
    assert found is not None
    assert found.kind == "sum"
    assert read("What is 1 - 2?") is None
    with pytest.raises(ValueError, match="not of the family: 'Why"):
        kind_of(Problem(id="x", question="Why?", domain="math", gold="1"))


@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10**6))
def test_golds_are_right_by_another_way_of_working_them_out(kind: Kind, seed: int) -> None:
    for problem in problems(kind, 3, seed=seed):
        reading = read(problem.question)
        assert reading is not None
        assert kind_of(problem) == kind
        found = [int(number) for number in (problem.gold or "").split(", ")]
        if kind == "product":
            assert sum(itertools.repeat(reading.numbers[0], reading.numbers[1])) == found[0]
        elif kind == "pair":
            assert sum(found) == reading.target
            assert set(found) <= set(reading.numbers)
            assert len(set(found)) == 2
            others = [two for two in itertools.permutations(reading.numbers, 2) if sum(two) == reading.target]
            assert len(others) == 2  # the orders of one pair
        else:
            assert found[0] - sum(reading.numbers[1:]) == reading.numbers[0]


def test_splits_are_disjoint_whatever_the_seed_and_have_their_shares() -> None:
    def numbers(problem: Problem) -> tuple[object, ...]:
        reading = read(problem.question)
        assert reading is not None
        return reading.kind, tuple(sorted(reading.numbers))

    drawn = {
        split: {numbers(problem) for seed in range(4) for problem in mixed(400, seed=seed, split=split)}
        for split in ("train", "validation", "test")
    }
    assert not drawn["train"] & drawn["test"]
    assert not drawn["train"] & drawn["validation"]
    assert not drawn["test"] & drawn["validation"]
    found = [split_of(f"What is {a} + {b}?") for a in range(100) for b in range(100)]
    assert found.count("train") / 1e4 == pytest.approx(0.7, abs=0.02)
    assert found.count("test") / 1e4 == pytest.approx(0.2, abs=0.02)


def test_the_seed_decides_and_ids_name_questions() -> None:
    assert mixed(40, seed=3) == mixed(40, seed=3)
    assert mixed(40, seed=3) != mixed(40, seed=4)
    drawn = mixed(41, seed=5)
    assert [kind_of(problem) for problem in drawn].count("sum") == 11
    assert len({problem.id for problem in drawn}) == 41


def test_difficulty_sets_the_sizes() -> None:
    hard = Difficulty(sum_digits=3, chain_terms=9, product_digits=7, pair_numbers=8)
    readings = {
        kind: read(problems(kind, 1, seed=0, difficulty=hard)[0].question) or Reading(kind, ()) for kind in KINDS
    }
    assert len(readings["chain"].numbers) == 9
    assert len(readings["pair"].numbers) == 8
    assert min(readings["product"].numbers) >= 10**6


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match=r"only \d+ sum problems of split test were found, 100 are wanted"):
        problems("sum", 100, seed=0, split="test", difficulty=Difficulty(sum_digits=1))
    with pytest.raises(ValueError, match="chain_terms=2: at least 3"):
        Difficulty(chain_terms=2)
    assert miniature.KINDS == ("sum", "chain", "product", "pair")
