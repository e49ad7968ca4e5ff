"""What samples add to the loss of a mini-batch and to the report of an update, whichever backend computes them.

Knows the objectives (`trainer.update.loss` has their arithmetic), and no model, optimizer or process.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from trainer.update.backend import ImitationObjective, Objective, PolicyObjective, UpdateFailed, ValueObjective
from trainer.update.forward import rows_of
from trainer.update.loss import imitation_loss, policy_terms, value_loss
from trainer.update.micro_batches import Batch

Terms = Callable[[Batch, torch.Tensor], torch.Tensor]
"""From a batch and its log-probabilities [batch, tokens], or for values their logits [batch], to the loss of each
sample."""
Tally = dict[str, list[torch.Tensor]]
"""Values at chosen tokens, for the report."""


def wants_reference(objective: Objective, has_reference: bool) -> bool:
    """Whether log-probabilities of the reference policy are needed. Raises ValueError where there is none."""
    if not isinstance(objective, PolicyObjective) or not objective.kl_coefficient:
        return False
    if not has_reference:
        raise ValueError(
            f"kl_coefficient is {objective.kl_coefficient}, and there is no reference policy. Fix: make the "
            "backend with keeps_reference=True, or set kl_coefficient to 0"
        )
    return True


def terms_of(
    objective: Objective,
    part: Mapping[int, float],
    old: Mapping[int, torch.Tensor],
    reference: Mapping[int, torch.Tensor],
    tally: Tally,
) -> Terms:
    """The loss of a batch of samples whose weights are `part`, and whose old and reference log-probabilities are
    given where they are needed."""

    def weights_of(batch: Batch) -> torch.Tensor:
        return torch.tensor([part[index] for index in batch.indices], device=batch.token_ids.device)

    def imitation(batch: Batch, logprobs: torch.Tensor) -> torch.Tensor:
        return imitation_loss(logprobs, batch.mask, weights_of(batch))

    if isinstance(objective, ImitationObjective):
        return imitation
    if isinstance(objective, ValueObjective):
        return lambda batch, logits: value_loss(logits, batch.advantages, weights_of(batch), objective)

    def policy(batch: Batch, logprobs: torch.Tensor) -> torch.Tensor:
        before = rows_of(old, batch)
        found = policy_terms(
            logprobs,
            old=logprobs.detach() if before is None else before,
            behaviour=batch.behaviour,
            mask=batch.mask,
            advantages=batch.advantages,
            weights=weights_of(batch),
            objective=objective,
            reference=rows_of(reference, batch),
        )
        for name in ("ratio", "clipped", "kl", "gap", "truncated", "below"):
            tally[name].append(getattr(found, name)[batch.mask].float())
        return found.loss

    return policy


def means(tally: Mapping[str, Sequence[torch.Tensor]]) -> dict[str, float]:
    """The part of an `UpdateReport` that is about tokens."""
    found = {name: torch.cat(list(values)).double() for name, values in tally.items()}
    plain = ("clipped", "kl", "entropy", "truncated", "below")
    report = {name: float(found[name].mean()) for name in plain if name in found}
    if "ratio" in found:
        report |= {"ratio_mean": float(found["ratio"].mean()), "ratio_max": float(found["ratio"].max())}
    if "gap" in found:
        gap = found["gap"].sort().values
        p99 = gap[math.ceil(0.99 * len(gap)) - 1]
        report |= {"gap_mean": float(gap.mean()), "gap_p99": float(p99), "gap_max": float(gap[-1])}
    return report


def infinite_loss(index: int, loss: float, advantage: float) -> UpdateFailed:
    return UpdateFailed(
        f"the loss of sample {index} is {loss} (advantage {advantage}); no step was "
        "taken. Fix: a lower learning_rate; if its behaviour log-probabilities are far off, "
        "see the engine's weights, or, in a new run, lower truncation"
    )


def infinite_norm(norm: float | str, culprit: str = "") -> UpdateFailed:
    return UpdateFailed(
        f"the gradient norm is {norm}{f', by {culprit}' if culprit else ''}; no step was taken. Fix: a lower "
        'learning_rate, or dtype="float32"'
    )


def too_little_memory(steps: int, budget: int) -> UpdateFailed:
    """After so many optimizer steps of an update, with so many tokens at once."""
    return UpdateFailed(
        f"memory ran out after {steps} steps of this update, with at most {budget} "
        "tokens at once (a longer sample is alone). Fix: a lower max_tokens_per_micro_batch, "
        "gradient_checkpointing, or, in a new run, lora"
    )
