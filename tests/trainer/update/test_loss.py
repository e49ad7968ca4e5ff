"""The losses against numbers worked by hand, their properties, and their gradient against the exact one."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.update.backend import PolicyObjective
from trainer.update.loss import (
    chosen_logprobs,
    clipped_surrogate,
    divergence,
    imitation_loss,
    importance,
    policy_terms,
    ratios,
    sample_weights,
)

LN2 = math.log(2)


def tensor(*rows: Any) -> Any:
    return torch.tensor(rows)


def close(found: Any, *rows: Any) -> None:
    torch.testing.assert_close(found, torch.tensor(rows), rtol=1e-5, atol=1e-6)


def terms(logprobs: Any, mask: Any, advantages: list[float], objective: PolicyObjective, **given: Any) -> Any:
    """With old, behaviour and current log-probabilities the same unless given, and weights as the objective says."""
    lengths = [sum(row) for row in mask.long().tolist()]
    groups = given.pop("groups", [""] * len(lengths))
    given.setdefault("old", logprobs.detach())
    given.setdefault("behaviour", given["old"])
    given.setdefault("weights", torch.tensor(sample_weights(lengths, groups, objective.aggregation)))
    return policy_terms(logprobs, mask=mask, advantages=torch.tensor(advantages), objective=objective, **given)


# Eq. 3: ratios


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token", [1.0, math.exp(0.2), math.exp(-0.1)]),
        ("sequence", [math.exp(0.1)] * 3),
        ("sequence-mean", [math.exp(0.05)] * 3),
    ],
)
def test_eq3_ratio_of_log_ratios_0p2_and_minus_0p1(kind: Any, expected: list[float]) -> None:
    logprobs, old = tensor([9.0, -1.0, -0.5]), tensor([-9.0, -1.2, -0.4])
    close(ratios(logprobs, old, tensor([False, True, True]), kind), expected)


@pytest.mark.parametrize("kind", ["token", "sequence", "sequence-mean"])
def test_eq3_ratios_that_would_overflow_still_give_a_gradient(kind: Any) -> None:
    logprobs = tensor([0.0, -1.0]).requires_grad_()
    mask = tensor([False, True])
    old = tensor([0.0, -200.0])
    terms(logprobs, mask, [1.0], PolicyObjective(ratio=kind), old=old).loss.sum().backward()
    assert logprobs.grad.tolist() == [[0.0, 0.0]]  # clipped


# Eq. 2: the clipped surrogate


def test_eq2_min_of_plain_and_clipped() -> None:
    ratio = tensor([1.5, 0.5, 1.1], [1.5, 0.5, 1.1])
    value, clipped = clipped_surrogate(ratio, torch.tensor([1.0, -2.0]), 0.2, 0.2)
    close(value, [1.2, 0.5, 1.1], [-3.0, -1.6, -2.2])
    assert clipped.tolist() == [[True, False, False], [False, True, False]]


def test_eq2_clip_higher_has_bounds_of_its_own() -> None:
    ratio = tensor([1.5, 0.5], [1.5, 0.5])
    value, _ = clipped_surrogate(ratio, torch.tensor([1.0, -1.0]), 0.1, 0.28)
    close(value, [1.28, 0.5], [-1.5, -0.9])


def test_eq2_with_the_ratio_of_eq3_is_the_mean_over_trajectories() -> None:
    """rho = 1.5 with A = 1 is clipped to 1.2, rho = 0.5 with A = -1 to -0.8: the loss is -(1.2 - 0.8) / 2."""
    old = tensor([0.0, -1.0, -1.0], [0.0, -2.0, 0.0])
    logprobs = tensor([0.0, -1.0 + math.log(3), -1.0 - LN2], [0.0, -2.0 - LN2, 0.0]).requires_grad_()
    mask = tensor([False, True, True], [False, True, False])
    found = terms(logprobs, mask, [1.0, -1.0], PolicyObjective(ratio="sequence"), old=old)
    assert found.loss.sum().item() == pytest.approx(-0.2)
    found.loss.sum().backward()
    assert not logprobs.grad.any()  # both are clipped


def test_eq2_gradient_at_the_old_policy_is_minus_the_advantage_over_counts() -> None:
    logprobs = tensor([0.0, -1.0, -2.0], [0.0, -0.5, 0.0]).requires_grad_()
    mask = tensor([False, True, True], [False, True, False])
    terms(logprobs, mask, [1.0, -3.0], PolicyObjective()).loss.sum().backward()
    close(logprobs.grad, [0.0, -0.25, -0.25], [0.0, 1.5, 0.0])


@pytest.mark.parametrize(("aggregation", "expected"), [("trajectory", 2 / 3), ("token", 5 / 6), ("group", 1 / 4)])
def test_eq2_aggregation_of_advantages_1_2_minus_1_over_1_3_2_tokens(aggregation: Any, expected: float) -> None:
    """Groups a, a, b: (1 + 2 - 1) / 3; (1 + 3 * 2 - 2) / 6; ((1 + 2) / 2 - 1) / 2."""
    mask = tensor([True, False, False], [True, True, True], [True, True, False])
    objective = PolicyObjective(aggregation=aggregation)
    found = terms(torch.full((3, 3), -1.0), mask, [1.0, 2.0, -1.0], objective, groups=["a", "a", "b"])
    assert found.loss.sum().item() == pytest.approx(-expected)


@pytest.mark.parametrize(("aggregation", "share"), [("group", 1 / 2), ("trajectory", 4 / 52), ("token", 40 / 280)])
def test_what_a_designer_weighs_where_both_roles_learn(aggregation: Any, share: float) -> None:
    """One question, M = N = 4, three agents in each run: 4 designs of 10 tokens, 48 agents' replies of 5."""
    lengths, groups = [10] * 4 + [5] * 48, ["designer/q"] * 4 + ["executor/q"] * 48
    weights = sample_weights(lengths, groups, aggregation)
    of = [weight * length for weight, length in zip(weights, lengths, strict=True)]
    assert sum(of[:4]) / sum(of) == pytest.approx(share)


def test_roles_weigh_the_same_also_where_one_has_fewer_questions() -> None:
    """No design of the second question could run: the Designer has two groups, the Executor one."""
    groups = ["designer/q", "designer/q", "designer/r", "executor/q"]
    assert sample_weights([1, 1, 2, 4], groups, "group") == [1 / 8, 1 / 8, 1 / 8, 1 / 8]


def test_a_sample_without_tokens_counts_as_one_and_adds_nothing() -> None:
    assert sample_weights([0, 2], ["a", "a"], "trajectory") == [0.0, 0.25]
    assert sample_weights([0, 2], ["a", "b"], "group") == [0.0, 0.25]
    assert sample_weights([0, 2], ["a", "b"], "token") == [0.0, 0.5]
    assert sample_weights([0], ["a"], "token") == [0.0]


# Importance, divergence, imitation


def test_truncated_importance_weights_of_one_half_three_and_one() -> None:
    old, behaviour = tensor([-1.0, -1.0, -1.0]), tensor([-1.0 + LN2, -1.0 - math.log(3), 5.0])
    weights, below, above = importance(old.requires_grad_(), behaviour, tensor([True, True, False]), 2.0)
    close(weights, [0.5, 2.0, 1.0])
    assert (below.tolist(), above.tolist()) == ([[False] * 3], [[False, True, False]])
    assert not weights.requires_grad


def test_importance_weights_beyond_either_bound_are_cut_or_masked() -> None:
    """Weights 1/4, 1/2, 1, 3 and 8 with the bounds 1/2 and 5: IcePop takes 0 for the first and the last."""
    ratios = [0.25, 0.5, 1.0, 3.0, 8.0]
    old, behaviour = tensor([0.0] * 5), tensor([-math.log(each) for each in ratios])
    mask = tensor([True] * 5)
    cut, below, above = importance(old, behaviour, mask, 5.0, 0.4999)
    close(cut, [0.4999, 0.5, 1.0, 3.0, 5.0])
    masked, *_ = importance(old, behaviour, mask, 5.0, 0.4999, "mask")
    close(masked, [0.0, 0.5, 1.0, 3.0, 0.0])
    assert below.tolist() == [[True, False, False, False, False]]
    assert above.tolist() == [[False, False, False, False, True]]
    objective = PolicyObjective(correction="mask", truncation=5.0, truncation_low=0.4999)
    found = terms(old, mask, [1.0], objective, behaviour=behaviour)
    assert found.loss.item() == pytest.approx(-(0.5 + 1 + 3) / 5)
    assert found.truncated.tolist() == [[True, False, False, False, True]]
    assert found.below.tolist() == below.tolist()


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"truncation_low": 3.0}, "truncation_low = 3 and truncation = 2 "),
        ({"truncation_low": 1.5, "correction": "mask"}, "do not have 1 between them"),
        ({"truncation": 0.5}, "do not have 1 between them"),
        ({"truncation": None, "correction": "mask"}, 'correction = "mask" bounds weights that '),
        ({"truncation": None, "truncation_low": 0.5}, r"truncation_low = 0\.5 bounds weights that "),
    ],
)
def test_bounds_that_teach_nothing_or_bound_nothing_are_refused(bounds: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"{told}.*Fix: "):
        PolicyObjective(**bounds)


def test_bounds_may_meet_at_one() -> None:
    """Tokens of the policy's own then still teach."""
    mask = tensor([True, True])
    objective = PolicyObjective(correction="mask", truncation=1.0, truncation_low=1.0)
    found = terms(tensor([0.0, 0.0]), mask, [1.0], objective, behaviour=tensor([0.0, -LN2]))
    assert found.loss.item() == pytest.approx(-1 / 2)


def test_truncated_importance_weighs_each_token_of_the_surrogate() -> None:
    old, mask = tensor([-1.0, -1.0]), tensor([True, True])
    behaviour = tensor([-1.0 + LN2, -1.0 - math.log(3)])
    found = terms(old, mask, [1.0], PolicyObjective(), behaviour=behaviour)
    assert found.loss.item() == pytest.approx(-(0.5 + 2.0) / 2)
    assert found.gap[0].tolist() == pytest.approx([LN2, math.log(3)])
    left_out = terms(old, mask, [1.0], PolicyObjective(truncation=None), behaviour=behaviour)
    assert left_out.loss.item() == pytest.approx(-1.0)


def test_kl_k3_of_references_twice_and_half_as_likely() -> None:
    logprobs, mask = tensor([-1.0, -1.0, 7.0]), tensor([True, True, False])
    reference = tensor([-1.0 + LN2, -1.0 - LN2, -7.0])
    close(divergence(logprobs, reference, mask), [2 - LN2 - 1, 0.5 + LN2 - 1, 0.0])
    found = terms(logprobs, mask, [0.0], PolicyObjective(kl_coefficient=0.1), reference=reference)
    assert found.loss.item() == pytest.approx(0.1 * (1 - LN2 + LN2 - 0.5) / 2)


def test_imitation_is_the_mean_negative_log_likelihood() -> None:
    logprobs = tensor([9.0, -1.0, -2.0], [9.0, -6.0, 9.0])
    mask = tensor([False, True, True], [False, True, False])
    weights = torch.tensor(sample_weights([2, 1], ["", ""], "token"))
    assert imitation_loss(logprobs, mask, weights).sum().item() == pytest.approx(3.0)


# Log-probabilities from hidden states


def head_of(vocabulary: int, width: int, seed: int = 0) -> Any:
    head = torch.nn.Linear(width, vocabulary, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randn(vocabulary, width, generator=torch.Generator().manual_seed(seed)))
    return head


def test_chosen_logprobs_of_a_coin_at_temperature_2() -> None:
    """Logits (h, 0): ln sigmoid(h / 2) for token 0, and the coin's entropy; place i predicts token i + 1."""
    head = torch.nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0], [0.0]]))
    hidden = torch.tensor([[[2 * math.log(3)], [0.0], [2 * math.log(4)]]])
    ids, mask = torch.tensor([[1, 0, 0, 1]]), torch.tensor([[False, True, True, True]])
    logprobs, entropy = chosen_logprobs(hidden, head, ids, mask, torch.tensor([2.0]))
    close(logprobs, [0.0, math.log(3 / 4), math.log(1 / 2), math.log(1 / 5)])
    close(
        entropy,
        [0.0, -0.75 * math.log(0.75) - 0.25 * math.log(0.25), LN2, -0.8 * math.log(0.8) - 0.2 * math.log(0.2)],
    )
    assert not entropy.requires_grad


@pytest.mark.parametrize("chunk_logits", [1, 14, 7 * 5, 1 << 20])
def test_chunks_of_logits_change_neither_values_nor_gradients(chunk_logits: int) -> None:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(7, (3, 6), generator=generator)
    mask = torch.rand(3, 6, generator=generator) < 0.7
    mask[:, 0] = False
    heat = torch.tensor([1.0, 0.5, 2.0])
    start = torch.randn(3, 5, 4, generator=generator)
    hidden, head = start.clone().requires_grad_(), head_of(7, 4)
    logprobs, entropy = chosen_logprobs(hidden, head, ids, mask, heat, chunk_logits=chunk_logits)
    (logprobs * torch.arange(18.0).view(3, 6)).sum().backward()

    plain, other = start.clone().requires_grad_(), head_of(7, 4)
    everywhere = (other(plain) / heat[:, None, None]).log_softmax(-1)
    expected = everywhere.gather(-1, ids[:, 1:, None])[..., 0] * mask[:, 1:]
    (expected * torch.arange(18.0).view(3, 6)[:, 1:]).sum().backward()
    torch.testing.assert_close(logprobs[:, 1:], expected)
    torch.testing.assert_close(entropy[:, 1:], -(everywhere.exp() * everywhere).sum(-1) * mask[:, 1:])
    torch.testing.assert_close(hidden.grad, plain.grad)
    torch.testing.assert_close(head.weight.grad, other.weight.grad)


def test_no_chosen_token_gives_zeros() -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    logprobs, entropy = chosen_logprobs(torch.zeros(2, 2, 4), head_of(7, 4), mask.long(), mask, torch.ones(2))
    assert logprobs.tolist() == entropy.tolist() == [[0.0] * 3] * 2


# Properties

OBJECTIVES = st.builds(
    PolicyObjective,
    ratio=st.sampled_from(["token", "sequence", "sequence-mean"]),
    aggregation=st.sampled_from(["trajectory", "token", "group"]),
    clip_low=st.floats(0.05, 0.5),
    clip_high=st.floats(0.05, 0.5),
    truncation=st.none() | st.floats(1.0, 4.0),
    kl_coefficient=st.sampled_from([0.0, 0.3]),
)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(0, 10_000))


def drawn(shape: tuple[int, int, int], objective: PolicyObjective) -> dict[str, Any]:
    """Random arguments of `policy_terms`, float64, each sample with at least one chosen token."""
    batch, tokens, seed = shape
    generator = torch.Generator().manual_seed(seed)

    def logprobs() -> Any:
        return -2 * torch.rand(batch, tokens, generator=generator, dtype=torch.float64)

    mask = torch.rand(batch, tokens, generator=generator) < 0.6
    mask[:, -1] = True
    groups = [str(number % 2) for number in range(batch)]
    weights = sample_weights(mask.sum(-1).tolist(), groups, objective.aggregation)
    return {
        "logprobs": logprobs(),
        "old": logprobs(),
        "behaviour": logprobs(),
        "reference": logprobs() if objective.kl_coefficient else None,
        "mask": mask,
        "advantages": torch.randn(batch, generator=generator, dtype=torch.float64),
        "weights": torch.tensor(weights, dtype=torch.float64),
    }


def gradient_of(values: dict[str, Any], objective: PolicyObjective) -> tuple[Any, Any]:
    logprobs = values["logprobs"].detach().clone().requires_grad_()
    found = policy_terms(**{**values, "logprobs": logprobs}, objective=objective)
    found.loss.sum().backward()
    return found.loss.detach(), logprobs.grad


@given(SHAPES, OBJECTIVES, st.sampled_from([0.0, -3.0, 50.0, math.inf, math.nan]))
def test_what_stands_where_the_mask_is_0_changes_nothing(shape: Any, objective: PolicyObjective, junk: float) -> None:
    values = drawn(shape, objective)
    loss, gradient = gradient_of(values, objective)
    for name in ("logprobs", "old", "behaviour", "reference"):
        if values[name] is not None:
            values[name] = values[name].masked_fill(~values["mask"], junk)
    again, same = gradient_of(values, objective)
    assert torch.equal(again, loss)
    assert torch.equal(same, gradient)
    assert not gradient[~values["mask"]].any()


@given(SHAPES, st.randoms(use_true_random=False))
def test_tokens_and_states_where_the_mask_is_0_change_no_logprob(shape: Any, random: Any) -> None:
    batch, tokens, seed = shape
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(batch, tokens + 1, generator=generator) < 0.5
    mask[:, 0] = False
    ids = torch.randint(5, mask.shape, generator=generator)
    hidden = torch.randn(batch, tokens, 4, generator=generator)
    head, heat = head_of(5, 4), torch.ones(batch)
    logprobs, entropy = chosen_logprobs(hidden, head, ids, mask, heat)
    other = torch.where(mask, ids, random.randrange(5))
    changed = torch.where(mask[:, 1:, None], hidden, math.nan)
    again, same = chosen_logprobs(changed, head, other, mask, heat)
    assert torch.equal(again, logprobs)
    assert torch.equal(same, entropy)
    assert not logprobs[~mask].any()


@given(SHAPES, OBJECTIVES, st.randoms(use_true_random=False))
def test_permuted_samples_have_permuted_losses(shape: Any, objective: PolicyObjective, random: Any) -> None:
    values = drawn(shape, objective)
    loss, gradient = gradient_of(values, objective)
    order = random.sample(range(shape[0]), shape[0])
    again, same = gradient_of({n: v[order] if v is not None else None for n, v in values.items()}, objective)
    torch.testing.assert_close(again, loss[order])
    torch.testing.assert_close(same, gradient[order])


@given(SHAPES, OBJECTIVES, st.integers(1, 4))
def test_padding_changes_no_loss(shape: Any, objective: PolicyObjective, more: int) -> None:
    values = drawn(shape, objective)
    loss, gradient = gradient_of(values, objective)
    for name in ("logprobs", "old", "behaviour", "reference", "mask"):
        if values[name] is not None:
            values[name] = torch.nn.functional.pad(values[name], (0, more))
    again, same = gradient_of(values, objective)
    torch.testing.assert_close(again, loss)
    torch.testing.assert_close(same[:, : shape[1]], gradient)


@given(SHAPES, OBJECTIVES, st.floats(0.1, 10.0))
def test_scaled_advantages_scale_loss_and_gradient(shape: Any, objective: PolicyObjective, scale: float) -> None:
    objective = objective.model_copy(update={"kl_coefficient": 0.0})
    values = drawn(shape, objective)
    loss, gradient = gradient_of(values, objective)
    again, scaled = gradient_of({**values, "advantages": scale * values["advantages"]}, objective)
    torch.testing.assert_close(again, scale * loss)
    torch.testing.assert_close(scaled, scale * gradient)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc")), min_size=1),
    st.sampled_from(["trajectory", "token", "group"]),
)
def test_weights_of_all_tokens_sum_to_one_where_every_sample_has_some(rows: Any, aggregation: Any) -> None:
    lengths, groups = [length + 1 for length, _ in rows], [group for _, group in rows]
    weights = sample_weights(lengths, groups, aggregation)
    assert math.fsum(w * n for w, n in zip(weights, lengths, strict=True)) == pytest.approx(1)


# The gradient of the expected reward (Eqs. 1 and 8)

REWARDS = ((0.1, 0.9), (0.7, 0.3))
"""Of execution 0 or 1 under design 0 or 1."""
THETA = (0.4, -0.3)
"""The Designer picks design 1 with probability sigmoid(a), the Executor execution 1 with sigmoid(b * (1 + design))."""
EXECUTIONS = 2


def exact_gradient() -> Any:
    a, b = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in THETA)
    expected = sum(
        (torch.sigmoid(a) if design else torch.sigmoid(-a))
        * (torch.sigmoid(b * (1 + design)) if execution else torch.sigmoid(-b * (1 + design)))
        * REWARDS[design][execution]
        for design in (0, 1)
        for execution in (0, 1)
    )
    return torch.stack(torch.autograd.grad(expected, (a, b)))


def chosen_of(logit: Any, picked: Any) -> Any:
    """[samples, 2]: a prompt token, then the choice."""
    logprob = torch.nn.functional.logsigmoid(torch.where(picked, logit, -logit))
    return torch.stack([torch.zeros_like(logprob), logprob], -1)


@pytest.mark.parametrize("drawn_from", [(0.4, -0.3), (0.1, 0.2)])
@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence-mean"])
def test_mean_gradient_is_that_of_the_expected_reward(ratio: Any, drawn_from: tuple[float, float]) -> None:
    """Designer: advantage is the mean reward of its executions. Executor: its own reward. Less a baseline of 0.5.

    Also with an engine whose weights differ from the trainer's, by importance sampling. 100 batches of 2,000 designs;
    each component lies within 4 standard errors, and these are below 3% of the larger component."""
    generator = torch.Generator().manual_seed(7)
    objective = PolicyObjective(ratio=ratio, truncation=1e6)
    batches = []
    for _ in range(100):
        count = 2_000

        def pick(logit: Any, shape: tuple[int, ...]) -> Any:
            return torch.rand(shape, generator=generator, dtype=torch.float64) < torch.sigmoid(logit)

        a, b = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in THETA)
        far_a, far_b = (torch.tensor(value, dtype=torch.float64) for value in drawn_from)
        designs = pick(far_a, (count,))
        per_run = designs[:, None].expand(count, EXECUTIONS)
        executions = pick(far_b * (1 + per_run.double()), (count, EXECUTIONS))
        rewards = torch.tensor(REWARDS, dtype=torch.float64)[per_run.long(), executions.long()]
        # The reward under the trainer's Executor, where the engine's differs: runs are weighed by what it would choose.
        lean = 1 + per_run.double()
        correction = (chosen_of(b * lean, executions) - chosen_of(far_b * lean, executions))[..., 1].exp().detach()
        runs = chosen_of((b * lean).flatten(), executions.flatten())
        design_weight = (chosen_of(a, designs) - chosen_of(far_a, designs))[:, 1].exp().detach()
        total = torch.zeros((), dtype=torch.float64)
        for logprobs, behaviour, advantages in [
            (chosen_of(a, designs), chosen_of(far_a, designs), ((rewards - 0.5) * correction).mean(-1)),
            (
                runs,
                chosen_of((far_b * lean).flatten(), executions.flatten()),
                ((rewards - 0.5) * design_weight[:, None]).flatten(),
            ),
        ]:
            mask = torch.tensor([[False, True]]).expand(len(logprobs), 2)
            weights = torch.tensor(
                sample_weights([1] * len(logprobs), [""] * len(logprobs), "trajectory"), dtype=torch.float64
            )
            found = policy_terms(
                logprobs,
                old=logprobs,
                behaviour=behaviour.detach(),
                mask=mask,
                advantages=advantages,
                weights=weights,
                objective=objective,
            )
            total = total + found.loss.sum()
        batches.append(-torch.stack(torch.autograd.grad(total, (a, b))))
    each = torch.stack(batches)
    mean, error, exact = each.mean(0), each.std(0) / math.sqrt(len(each)), exact_gradient()
    assert (error < 0.03 * exact.abs().max()).all(), (error, exact)
    assert ((mean - exact).abs() < 4 * error).all(), (mean, error, exact)
