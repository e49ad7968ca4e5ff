"""Which samples share a prompt, and which prompts are read together."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given
from hypothesis import strategies as st

from trainer.samples import Sample
from trainer.update.shared_prompts import Share, shares


def sample(prompt: list[int], chosen: list[int]) -> Sample:
    mask = [0] * len(prompt) + [1] * len(chosen)
    return Sample(
        policy="p0",
        token_ids=[*prompt, *chosen],
        loss_mask=mask,
        behaviour_logprobs=[0.0] * len(mask),
        advantage=1.0,
    )


def test_a_prompt_is_shared_up_to_its_last_token() -> None:
    """That one predicts the first chosen token, and is computed for each sample."""
    one, other = sample([1, 2, 3], [4]), sample([1, 2, 3], [5, 6])
    (share,) = shares([one, other], [0, 1], 100)
    assert share == Share([0, 1], [(1, 2)], {0: 0, 1: 0})
    assert (share.start(0), share.start(1)) == (2, 2)


def test_what_is_alone_is_computed_whole() -> None:
    samples = [sample([1, 2, 3], [4]), sample([7], [4]), sample([7], [5]), sample([1, 2, 4], [4]), sample([9, 9], [4])]
    assert shares(samples, [0, 1, 2, 4], 100) == [Share([0, 1, 2, 4])]  # a prompt of one token has nothing to share
    (whole, shared) = shares(samples, [0, 1, 2, 3, 4], 100)
    assert (whole.indices, whole.start(4)) == ([1, 2, 4], 0)
    assert (shared.indices, shared.prompts) == ([0, 3], [(1, 2)])  # the token that differs is each one's own


def test_as_many_prompts_are_read_together_as_the_budget_holds() -> None:
    samples = [sample([prompt] * length, [4]) for prompt, length in [(1, 3), (2, 9), (3, 4)] for _ in range(2)]
    read = [share.prompts for share in shares(samples, range(6), 6)]
    assert read == [[(2,) * 8], [(3,) * 3, (1,) * 2]]


PROMPTS = st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(1, 3)), max_size=12)


@given(PROMPTS, st.integers(1, 20), st.data())
def test_every_sample_is_computed_once_behind_its_own_prompt(
    prompts: list[tuple[list[int], int]], budget: int, data: st.DataObject
) -> None:
    samples = [sample(prompt, [5] * chosen) for prompt, chosen in prompts]
    indices = data.draw(st.permutations(range(len(samples))))
    found = shares(samples, indices, budget)
    assert sorted(index for share in found for index in share.indices) == list(range(len(samples)))
    for share in found:
        if share.prompts:
            assert share.longest == len(share.prompts[0]) == max(map(len, share.prompts))
            assert len(share.prompts) == 1 or share.longest * len(share.prompts) <= budget
            assert set(share.which) == set(share.indices)
        for index in share.indices:
            start = share.start(index)
            assert start < samples[index].loss_mask.index(1)
            if share.prompts:
                assert share.prompts[share.which[index]] == tuple(samples[index].token_ids[:start])
    assert found == shares([replace(each, advantage=2.0) for each in samples], indices, budget)
