"""Who computes what: every sample once, on ranks that all do as much and as often."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from trainer.update.global_plan import MicroBatch, balanced, global_plan

SAMPLES = st.dictionaries(st.integers(0, 1000), st.integers(1, 400), max_size=40)


@given(SAMPLES, st.data(), st.integers(1, 9), st.integers(1, 3000), st.integers(1, 300))
def test_a_plan_computes_every_sample_once_in_step_and_within_the_bounds(
    lengths: dict[int, int], data: st.DataObject, ranks: int, budget: int, chunk_tokens: int
) -> None:
    chosen = {index: data.draw(st.integers(1, length)) for index, length in lengths.items()}
    plan = global_plan(lengths, chosen, ranks=ranks, budget=budget, chunk_tokens=chunk_tokens)
    assert len(plan) == ranks
    assert sorted(index for mine in plan for batch in mine for index in batch.indices) == sorted(lengths)
    assert len({len(mine) for mine in plan}) == 1
    for at_once in zip(*plan, strict=True):
        assert any(batch.indices for batch in at_once), "nobody waits for nobody"
        assert len({batch.chunks for batch in at_once}) == 1
        pieces = [sum(chosen[index] for index in batch.indices) for batch in at_once]
        assert all(math.ceil(piece / at_once[0].chunks) <= chunk_tokens for piece in pieces)
        assert at_once[0].chunks == max(1, *(math.ceil(piece / chunk_tokens) for piece in pieces)), (
            "no more than needed"
        )
        for batch in at_once:
            held = [lengths[index] for index in batch.indices]
            assert len(held) <= 1 or max(held) * len(held) <= budget
    assert plan == global_plan(lengths, chosen, ranks=ranks, budget=budget, chunk_tokens=chunk_tokens)


@given(SAMPLES, st.integers(1, 9))
def test_no_rank_has_more_than_another_by_more_than_the_longest_sample(lengths: dict[int, int], ranks: int) -> None:
    shares = balanced(lengths, ranks)
    assert sorted(index for share in shares for index in share) == sorted(lengths)
    held = [sum(lengths[index] for index in share) for share in shares]
    assert max(held) - min(held) <= max(lengths.values(), default=0)


def test_a_plan_in_numbers() -> None:
    lengths, chosen = {0: 5, 1: 9, 2: 5, 3: 9, 7: 30}, {0: 1, 1: 9, 2: 2, 3: 4, 7: 25}
    assert balanced(lengths, 2) == [[7], [1, 3, 0, 2]]
    plan = global_plan(lengths, chosen, ranks=2, budget=18, chunk_tokens=10)
    assert plan == [[MicroBatch((7,), 3), MicroBatch((), 1)], [MicroBatch((1, 3), 3), MicroBatch((0, 2), 1)]]
    assert global_plan({}, {}, ranks=3, budget=1, chunk_tokens=1) == [[], [], []]
    assert global_plan({4: 2}, {4: 1}, ranks=2, budget=1, chunk_tokens=1) == [
        [MicroBatch((4,), 1)],
        [MicroBatch((), 1)],
    ]
