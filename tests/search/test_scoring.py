"""What a model of values says is checked where it enters: a number from -1 to 1 for each state, or it is told."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.methods import SearchRefused
from search.paths import AgentStep
from search.scoring import Score, ScoredState, scored
from workflow.completion import Completion
from workflow.failures import Failure


def after(reply: Completion | Failure) -> ScoredState:
    return ScoredState("Why?", (AgentStep(key="w/Ann#0", agent="Ann", messages=[], reply=reply),))


STATES = [after(Completion(text="one")), after(Completion(text="two")), ScoredState("Why?", (), "42")]


class Says:
    name = "models/odd"

    def __init__(self, values: list[float]) -> None:
        self.values = values

    async def score(self, states: object) -> list[Score]:
        return [Score(value, 3) for value in self.values]

    async def close(self) -> None: ...


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_values_in_range_are_taken_as_they_are(values: list[float]) -> None:
    assert asyncio.run(scored(Says(values), STATES)) == [Score(value, 3) for value in values]


def test_rounding_is_taken_back() -> None:
    found = asyncio.run(scored(Says([1 + 1e-7, -1 - 1e-7, 0.5]), STATES))
    assert [score.value for score in found] == [1.0, -1.0, 0.5]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 7.0, -1.001, 1 + 1e-5])
@pytest.mark.parametrize(
    ("at", "named"), [(0, r"the reply 'one' of 'Ann' \(w/Ann#0\)"), (1, "the reply 'two'"), (2, "the answer '42'")]
)
def test_what_is_no_value_is_refused_by_scorer_value_and_state(wrong: float, at: int, named: str) -> None:
    values = [0.5] * 3
    values[at] = wrong
    with pytest.raises(SearchRefused, match=rf"models/odd gives {wrong} to {named}.*from -1 to 1. Fix: .*NaN"):
        asyncio.run(scored(Says(values), STATES))


@pytest.mark.parametrize("values", [[], [0.1, 0.2], [0.1] * 4])
def test_there_is_one_value_for_each_state(values: list[float]) -> None:
    with pytest.raises(SearchRefused, match=rf"asked about 3 states and gave {len(values)} values"):
        asyncio.run(scored(Says(values), STATES))
