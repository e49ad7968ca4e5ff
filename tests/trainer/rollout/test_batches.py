"""Batches: shares, epochs, no problem twice in a batch, a pure function of the step."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import Problem
from trainer.rollout.batches import Batches, Source


def source(name: str, size: int, share: float = 1.0) -> Source:
    problems = [Problem(id=f"{name}/{n}", question="?", domain="math", gold="1") for n in range(size)]
    return Source(name, problems, share)


def ids(batch: list[Problem]) -> list[str]:
    return [problem.id for problem in batch]


def test_half_of_each_batch_comes_from_each_half() -> None:
    batches = Batches([source("math", 40), source("code", 20)], 8, 0)
    for step in range(30):
        assert [each.split("/")[0] for each in ids(batches.at(step))] == ["math"] * 4 + ["code"] * 4


def test_places_go_to_the_largest_remainders() -> None:
    # 8 places at 5 : 2 : 1 of 8 are exact; 7 places are 4.375, 1.75, 0.875: 4, 1, 0 and the two left to the last two.
    sources = [source("a", 50, 5), source("b", 50, 2), source("c", 50, 1)]
    assert Batches(sources, 8, 0).counts == [5, 2, 1]
    assert Batches(sources, 7, 0).counts == [4, 2, 1]


def test_an_epoch_shows_every_problem_once_and_the_next_one_in_another_order() -> None:
    batches = Batches([source("m", 12)], 4, 3)
    first = [problem for step in range(3) for problem in ids(batches.at(step))]
    second = [problem for step in range(3, 6) for problem in ids(batches.at(step))]
    assert sorted(first) == sorted(second) == sorted(f"m/{n}" for n in range(12))
    assert first != second


@given(st.integers(4, 30), st.integers(1, 4), st.integers(0, 5), st.integers(0, 200))
def test_a_batch_is_a_function_of_its_step_without_repetition(size: int, places: int, seed: int, step: int) -> None:
    batch = ids(Batches([source("m", size)], places, seed).at(step))
    assert len(set(batch)) == len(batch) == places
    assert batch == ids(Batches([source("m", size)], places, seed).at(step))


def test_seeds_differ() -> None:
    assert ids(Batches([source("m", 30)], 10, 0).at(0)) != ids(Batches([source("m", 30)], 10, 1).at(0))


@pytest.mark.parametrize(
    ("sources", "size", "message"),
    [
        ([source("a", 50, 100), source("b", 50, 1)], 4, "b: share 1 is no place in a batch of 4"),
        ([source("a", 3)], 4, "a: 3 problems do not fill 4 places"),
        ([source("a", 9), source("a", 9)], 4, "problem id 'a/0' stands in a and a"),
    ],
)
def test_what_cannot_be_dealt_is_named(sources: list[Source], size: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Batches(sources, size, 0)
