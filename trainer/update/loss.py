"""The losses: pure functions over padded tensors of shape [batch, tokens], Eqs. 2 and 3 of MetaAgent-X with their kin.

All are zero, and pass no gradient, where the mask is 0, whatever stands there. Denominators are no business of the
padded tensors: `sample_weights` gives each sample one weight, made once for a whole mini-batch, so that how it is cut
into micro-batches and padded changes nothing. Runs no model and takes no optimizer step
(`trainer.update.torch_backend`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.checkpoint import checkpoint

from trainer.update.backend import PolicyObjective, ValueObjective

CHUNK_LOGITS = 1 << 26
"""Logits in memory at once, tokens times vocabulary: 256 MiB in float32, and a few times that while they are used."""

LOG_RATIO = 20.0
"""Logarithms of ratios are cut at plus and minus this, where they pass no gradient: products over long outputs would
overflow, and infinity times the 0 of a clipped branch is no number."""


def chosen_logprobs(
    hidden: torch.Tensor,
    head: Any,
    token_ids: torch.Tensor,
    mask: torch.Tensor,
    temperatures: torch.Tensor,
    *,
    chunk_logits: int = CHUNK_LOGITS,
    chunks: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Natural log-probability of each chosen token and entropy (nats, no gradient) of the distribution it came from.

    `hidden` is [batch, tokens - 1, width]: place i predicts token i + 1 through `head`, a linear layer onto the
    vocabulary. `token_ids` and the boolean `mask` are [batch, tokens], `temperatures` [batch]. Both results are float32
    [batch, tokens] and 0 where the mask is. Logits are made only where it is 1, in chunks that are made again in the
    backward pass rather than kept: of at most `chunk_logits`, or so many `chunks`, of which some may be empty.
    """
    rows, columns = mask[:, 1:].nonzero(as_tuple=True)
    states = hidden.flatten(0, 1).index_select(0, rows * hidden.shape[1] + columns)
    targets, heat = token_ids[rows, columns + 1], temperatures[rows]
    if chunks is None:
        size = max(1, chunk_logits // head.weight.shape[0])
        chunks = math.ceil(len(states) / size)
    else:
        size = max(1, math.ceil(len(states) / chunks))
    pieces = []
    for start in range(0, size * chunks, size):
        piece = (states[start : start + size], head, targets[start : start + size], heat[start : start + size])
        if chunks > 1 and torch.is_grad_enabled():
            pieces.append(checkpoint(_of_logits, *piece, use_reentrant=False, preserve_rng_state=False))
        else:
            pieces.append(_of_logits(*piece))
    flat = [torch.cat(parts) for parts in zip(*pieces, strict=True)] or [states.new_zeros(0)] * 2
    predicted = mask.clone()
    predicted[:, 0] = False
    empty = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    logprobs, entropy = (empty.masked_scatter(predicted, values.float()) for values in flat)
    return logprobs, entropy


def _of_logits(
    states: torch.Tensor, head: Any, targets: torch.Tensor, heat: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs = (head(states).float() / heat[:, None]).log_softmax(-1)
    with torch.no_grad():
        entropy = -torch.linalg.vecdot(logprobs.exp(), logprobs)
    return logprobs.gather(-1, targets[:, None])[:, 0], entropy


def sample_weights(
    lengths: Sequence[int], groups: Sequence[str], aggregation: Literal["group", "trajectory", "token"]
) -> list[float]:
    """What each chosen token of each sample weighs in the loss of one mini-batch, which is the sum over all tokens.

    `lengths` are chosen tokens per sample. `group`: the mean over roles, which a group's name begins with before a
    slash, of the mean over their groups of the mean over a group's samples (the 1/|G| of Eq. 2) of the mean over
    tokens; `trajectory`: the mean over all samples of the mean over their tokens; `token`: the
    mean over all tokens (DAPO, Yu et al., 2025, Eq. 8). A sample without tokens counts as one, and adds nothing.
    """
    if aggregation == "token":
        total = sum(lengths)
        return [1 / total if length else 0.0 for length in lengths]
    of = groups if aggregation == "group" else [""] * len(lengths)
    sizes = Counter(of)
    counts = Counter(group.partition("/")[0] for group in sizes)
    return [
        1 / (len(counts) * counts[group.partition("/")[0]] * sizes[group] * length) if length else 0.0
        for length, group in zip(lengths, of, strict=True)
    ]


def ratios(
    logprobs: torch.Tensor, old: torch.Tensor, mask: torch.Tensor, kind: Literal["token", "sequence", "sequence-mean"]
) -> torch.Tensor:
    """pi / pi_old at each token: of the token (GRPO), of the whole output, which is the exponential of the sum of
    log-ratios (Eq. 3 as written), or of the geometric mean over its tokens (GSPO, Zheng et al., 2025, Eq. 7). The
    latter two are the same at all tokens of a sample. [batch, tokens]."""
    log_ratios = (logprobs - old).masked_fill(~mask, 0)
    if kind == "token":
        return log_ratios.clamp(-LOG_RATIO, LOG_RATIO).exp()
    total = log_ratios.sum(-1, keepdim=True)
    if kind == "sequence-mean":
        total = total / mask.sum(-1, keepdim=True).clamp(min=1)
    return total.clamp(-LOG_RATIO, LOG_RATIO).exp().expand_as(log_ratios)


def clipped_surrogate(
    ratio: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) of Eq. 2, to be made large, and where the clipped branch was
    the smaller one. `ratio` is [batch, tokens], `advantages` [batch]."""
    plain = ratio * advantages[:, None]
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages[:, None]
    return torch.minimum(plain, bounded), bounded < plain


def importance(
    old: torch.Tensor,
    behaviour: torch.Tensor,
    mask: torch.Tensor,
    high: float,
    low: float = 0.0,
    correction: Literal["truncate", "mask"] = "truncate",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Importance weights w = pi_old / pi_behaviour at each token, without gradient, and where they were below and above
    the bounds. `truncate` cuts them there (Yao et al., 2025, "Your efficient RL framework secretly brings you
    off-policy RL training"); `mask` takes 0 in place of those beyond (IcePop, Ling team, 2025)."""
    weights = (old - behaviour).detach().masked_fill(~mask, 0).exp()
    below, above = (weights < low) & mask, (weights > high) & mask
    bounded = weights.masked_fill(below | above, 0) if correction == "mask" else weights.clamp(low, high)
    return bounded, below, above


def divergence(logprobs: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """KL(pi || pi_reference) estimated at each token as r - log r - 1 with r = pi_reference / pi (k3 of Schulman, 2020;
    Eq. 4 of GRPO, Shao et al., 2024): never negative, 0 where both agree."""
    log_ratio = (reference - logprobs).masked_fill(~mask, 0).clamp(-LOG_RATIO, LOG_RATIO)
    return log_ratio.expm1() - log_ratio


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """What a batch says under a `PolicyObjective`: the loss per sample, and its parts per token for the report."""

    loss: torch.Tensor
    """[batch], weighted: the mini-batch's loss is the sum over its samples. The rest is [batch, tokens]."""
    ratio: torch.Tensor
    clipped: torch.Tensor
    kl: torch.Tensor
    gap: torch.Tensor
    """|log pi_old - log pi_behaviour|."""
    truncated: torch.Tensor
    below: torch.Tensor


def policy_terms(
    logprobs: torch.Tensor,
    *,
    old: torch.Tensor,
    behaviour: torch.Tensor,
    mask: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    objective: PolicyObjective,
    reference: torch.Tensor | None = None,
) -> PolicyTerms:
    """Eq. 2 with the importance weights of `importance` at each token, plus kl_coefficient times `divergence` where
    `reference` is given. `weights` [batch] comes from `sample_weights`; log-probabilities are [batch, tokens]."""
    old = old.detach()
    ratio = ratios(logprobs, old, mask, objective.ratio)
    value, clipped = clipped_surrogate(ratio, advantages, objective.clip_low, objective.clip_high)
    below = above = torch.zeros_like(mask)
    if objective.truncation is not None:
        correction, below, above = importance(
            old, behaviour, mask, objective.truncation, objective.truncation_low, objective.correction
        )
        value = value * correction
    cost = -value
    kl = torch.zeros_like(cost)
    if reference is not None:
        kl = divergence(logprobs, reference, mask)
        cost = cost + objective.kl_coefficient * kl
    return PolicyTerms(
        loss=cost.masked_fill(~mask, 0).sum(-1) * weights,
        ratio=ratio.detach(),
        clipped=clipped,
        kl=kl.detach(),
        gap=(old - behaviour).masked_fill(~mask, 0).abs(),
        truncated=below | above,
        below=below,
    )


def imitation_loss(logprobs: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of the chosen tokens, [batch], weighted; with `token` weights the sum is the mean over
    all chosen tokens."""
    return -logprobs.masked_fill(~mask, 0).sum(-1) * weights


def value_loss(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, objective: ValueObjective
) -> torch.Tensor:
    """What is asked for of V = tanh(`logits`) against `targets` in [-1, 1], all [batch], weighted; finite with finite
    gradients whatever the logits."""
    if objective.loss == "bce":
        # (1 + tanh(z)) / 2 is the logistic function of 2 z.
        each = torch.nn.functional.binary_cross_entropy_with_logits(2 * logits, (1 + targets) / 2, reduction="none")
    elif objective.loss == "mse":
        each = torch.nn.functional.mse_loss(logits.tanh(), targets, reduction="none")
    else:
        each = torch.nn.functional.huber_loss(logits.tanh(), targets, reduction="none", delta=objective.delta)
    return each * weights
