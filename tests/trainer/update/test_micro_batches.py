"""Which samples share an optimizer step and a micro-batch, and how they are padded."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.samples import Sample
from trainer.update.backend import ImitationObjective, PolicyObjective
from trainer.update.micro_batches import ENOUGH, PADDING, check_samples, micro_batches, mini_batches, padded


def sample(mask: list[int], advantage: float = 1.0, group: str = "") -> Sample:
    return Sample(
        policy="p0",
        token_ids=list(range(len(mask))),
        loss_mask=mask,
        behaviour_logprobs=[-1.0 * one for one in mask],
        advantage=advantage,
        group=group,
    )


@given(st.lists(st.integers(1, 3000)), st.integers(1, 10_000))
def test_every_sample_is_in_one_micro_batch_within_the_bounds(lengths: list[int], budget: int) -> None:
    batches = micro_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        held = [lengths[index] for index in batch]
        assert held == sorted(held, reverse=True)
        assert len(batch) == 1 or held[0] * len(batch) <= budget
        assert held[0] * len(batch) - sum(held) <= max(held[0] * ENOUGH, PADDING * held[0] * len(batch))


def test_micro_batches_of_like_length() -> None:
    assert micro_batches([5, 9, 5, 9], 18) == [[1, 3], [0, 2]]
    assert micro_batches([5, 9, 5, 9], 36) == [[1, 3, 0, 2]]  # small ones are not worth more
    assert micro_batches([400, 100, 400, 400, 100], 1 << 14) == [[0, 2, 3], [1, 4]]
    assert micro_batches([30, 7, 7], 14) == [[0], [1, 2]]  # longer than the budget
    assert micro_batches([], 10) == []


def test_mini_batches_are_dealt_in_order_with_weights_of_all_their_samples() -> None:
    samples = [sample([0, 1, 1]), sample([0, 1, 1], 0.0), sample([0, 1]), sample([0, 0]), sample([0, 1], 0.0)]
    assert mini_batches(samples, PolicyObjective(mini_batches=2)) == [{0: 2 / 10}, {2: 2 / 5}]
    assert mini_batches(samples, PolicyObjective(kl_coefficient=0.1)) == [{0: 1 / 10, 1: 1 / 10, 2: 1 / 5, 4: 1 / 5}]
    assert mini_batches(samples, PolicyObjective(aggregation="token")) == [{0: 1 / 6, 2: 1 / 6}]
    assert mini_batches(samples[:2], PolicyObjective(mini_batches=4)) == [{0: 1 / 2}]
    assert mini_batches(samples, ImitationObjective()) == [{0: 1 / 6, 1: 1 / 6, 2: 1 / 6, 4: 1 / 6}]
    assert mini_batches(samples[3:4], ImitationObjective()) == []


@given(st.lists(st.booleans(), min_size=1), st.sampled_from(["group", "trajectory", "token"]), st.integers(1, 4))
def test_held_samples_change_no_weight_of_the_others(held: list[bool], aggregation: Any, steps: int) -> None:
    """A Designer stage of a shared policy: its 64 designs weigh what they weigh without the agents' 640 replies."""
    objective = PolicyObjective(mini_batches=steps, aggregation=aggregation, kl_coefficient=0.1)
    samples = [
        replace(
            sample([0, *[1] * (1 + place % 3)], float(not each), f"{'executor' if each else 'designer'}/q"), held=each
        )
        for place, each in enumerate(held)
    ]
    found = mini_batches(samples, objective)
    for kind in (False, True):
        alone = [index for index, each in enumerate(held) if each is kind]
        weights = [
            {alone[index]: weight for index, weight in part.items()}
            for part in mini_batches([samples[index] for index in alone], objective)
        ]
        of_kind = [{index: weight for index, weight in part.items() if index in alone} for part in found]
        assert [part for part in of_kind if part] == weights


@given(st.lists(st.integers(0, 5), min_size=1), st.sampled_from(["group", "trajectory", "token"]), st.integers(1, 5))
def test_a_question_weighs_the_same_whatever_parts_it_is_cut_into(sizes: list[int], how: Any, steps: int) -> None:
    """Eq. 2 is one mean over questions: no one of them may weigh more because few others share its optimizer step."""
    samples = [
        sample([0, *[1] * (1 + place % 3)], 1.0, f"{'designer' if place % 2 else 'executor'}/q{question}")
        for question, size in enumerate(sizes)
        for place in range(size)
    ]
    whole = (mini_batches(samples, PolicyObjective(aggregation=how)) or [{}])[0]
    parts = mini_batches(samples, PolicyObjective(aggregation=how, mini_batches=steps))
    dealt = {index: weight for part in parts for index, weight in part.items()}
    assert len(parts) == min(steps, len(samples))
    assert dealt == pytest.approx({index: len(parts) * weight for index, weight in whole.items()})


def test_padding_is_on_the_right_and_samples_end_at_their_last_chosen_token() -> None:
    long, short = sample([0, 1, 0, 1, 0, 0], 2.0), replace(sample([0, 1]), temperature=0.5)
    for one in (short, replace(short, token_ids=array("i", [0, 1]), loss_mask=array("b", [0, 1]))):
        batch = padded([long, sample([0, 0]), one], [0, 2], torch.device("cpu"), [0, 0])
        assert batch.indices == [0, 2]
        assert batch.token_ids.tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
        assert batch.mask.tolist() == [[False, True, False, True], [False, True, False, False]]
        assert batch.behaviour.tolist() == [[0, -1, 0, -1], [0, -1, 0, 0]]
        assert (batch.advantages.tolist(), batch.temperatures.tolist()) == ([2.0, 1.0], [1.0, 0.5])


def test_arrays_are_checked_like_lists() -> None:
    ids, mask, logprobs = array("i", [1, 2]), array("b", [0, 1]), array("f", [0.0, -1.0])
    fits = replace(sample([0, 1]), token_ids=ids, loss_mask=mask, behaviour_logprobs=logprobs)
    check_samples([fits], 3, 2)
    with pytest.raises(ValueError, match="sample 1 has the token id 2, the model has 2"):
        check_samples([replace(fits, token_ids=[0, 1]), fits], 2, 2)
    check_samples([replace(fits, token_ids=[], loss_mask=[], behaviour_logprobs=[])], 3, 2)
