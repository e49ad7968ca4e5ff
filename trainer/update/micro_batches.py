"""From samples to padded tensors: what is wrong with a sample, which samples share an optimizer
step and which a micro-batch, the tensors.

Knows no model. Samples end, for all that follows, at the last token that the policy chose: what comes
after it is not computed.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from trainer.samples import Sample
from trainer.update.backend import ImitationObjective, Objective, ValueObjective
from trainer.update.loss import sample_weights

PADDING = 0.1
"""Share of a micro-batch that may be padding, once it holds `ENOUGH` tokens."""
ENOUGH = 1024
"""Tokens from which on larger micro-batches were seen to be no faster (0.6M weights on one CPU core)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples as tensors, right-padded to the longest: [batch, tokens], or [batch] where it says one per sample.
    A sample may begin behind a prompt that others have, too (`trainer.update.shared_prompts`).

    No attention mask is needed: a causal model's chosen tokens never see what stands to their right.
    """

    indices: list[int]
    """Which samples."""
    starts: list[int]
    """Which token of each sample is the first here."""
    token_ids: torch.Tensor
    mask: torch.Tensor
    """Boolean."""
    behaviour: torch.Tensor
    advantages: torch.Tensor
    """One per sample."""
    temperatures: torch.Tensor
    """One per sample."""


def used(sample: Sample) -> int:
    """How many of the sample's tokens matter: up to the last chosen one; 0 where none was chosen."""
    mask = sample.loss_mask
    return next((length for length in range(len(mask), 0, -1) if mask[length - 1]), 0)


def mini_batches(samples: Sequence[Sample], objective: Objective) -> list[dict[int, float]]:
    """For each optimizer step that has anything to compute: which samples are computed, and the weight of each one's
    tokens in that step's loss (`trainer.update.loss.sample_weights`).

    Samples of a policy are dealt in their order into `objective.mini_batches` parts of nearly equal size, those that
    are only held apart from the others, with weights of their own. Weights are those in one loss of all samples, times
    the number of parts: so a question weighs what Eq. 2 says whichever parts it is cut into, and the mean of the parts'
    losses is that loss. Those with advantage 0 count in the weights of the others; without KL they are not computed.
    Raises ValueError for a value's target that is out of bounds.
    """
    if isinstance(objective, ImitationObjective):
        lengths = [sum(sample.loss_mask) for sample in samples]
        all_alike = sample_weights(lengths, [""] * len(samples), "token")
        part = {index: weight for index, weight in enumerate(all_alike) if lengths[index]}
        return [part] if part else []
    if isinstance(objective, ValueObjective):
        wrong = next((index for index, sample in enumerate(samples) if not -1 <= sample.advantage <= 1), None)
        if wrong is not None:
            raise ValueError(f"sample {wrong} has the target {samples[wrong].advantage}. Fix: targets in [-1, 1]")
        part = {index: sample.weight / len(samples) for index, sample in enumerate(samples) if used(sample)}
        return [part] if part else []
    parts: list[dict[int, float]] = [{} for _ in range(objective.mini_batches)]
    for held in (False, True):
        dealt = [index for index, sample in enumerate(samples) if sample.held is held]
        lengths = [sum(samples[index].loss_mask) for index in dealt]
        weights = sample_weights(lengths, [samples[index].group for index in dealt], objective.aggregation)
        filled = min(len(parts), len(dealt))
        for number, part in enumerate(parts):
            first, last = (len(dealt) * place // len(parts) for place in (number, number + 1))
            part |= {
                index: filled * weight
                for index, weight in zip(dealt[first:last], weights[first:last], strict=True)
                if weight and (samples[index].advantage or objective.kl_coefficient)
            }
    return [part for part in parts if part]


def micro_batches(lengths: Sequence[int], budget: int, before: int = 0) -> list[list[int]]:
    """Indices of samples that are computed together: of like length, the longest first, equal ones in their order.

    Rows times the longest stay within `budget` padded tokens (a longer sample is alone), and padding within `PADDING`
    of a micro-batch that is large enough. `before` each row come so many tokens that are not computed, but held.
    """
    batches: list[list[int]] = []
    held = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        if batches:
            width, rows = lengths[batches[-1][0]], len(batches[-1]) + 1
            padding = width * rows - held - length
            if (before + width) * rows <= budget and (held < ENOUGH or padding <= PADDING * width * rows):
                batches[-1].append(index)
                held += length
                continue
        batches.append([index])
        held = length
    return batches


def padded(
    samples: Sequence[Sample] | Mapping[int, Sample], indices: list[int], device: torch.device, starts: list[int]
) -> Batch:
    """The samples at `indices`, each from its token in `starts` on, as one batch on `device`."""
    chosen = [samples[index] for index in indices]
    cuts = [slice(start, used(sample)) for start, sample in zip(starts, chosen, strict=True)]

    def columns(rows: list[Sequence[int]] | list[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        tensors = [torch.tensor(row[cut], dtype=dtype) for row, cut in zip(rows, cuts, strict=True)]
        return pad_sequence(tensors, batch_first=True).to(device)

    return Batch(
        indices=indices,
        starts=starts,
        token_ids=columns([sample.token_ids for sample in chosen], torch.long),
        mask=columns([sample.loss_mask for sample in chosen], torch.bool),
        behaviour=columns([sample.behaviour_logprobs for sample in chosen], torch.float32),
        advantages=torch.tensor([sample.advantage for sample in chosen], dtype=torch.float32, device=device),
        temperatures=torch.tensor([sample.temperature for sample in chosen], dtype=torch.float32, device=device),
    )


def check_samples(samples: Sequence[Sample], vocabulary: int, context: int | None) -> None:
    """Raise ValueError, naming the first sample that a model of this vocabulary and context (in tokens) cannot learn
    from, or that belongs to another policy than the first."""
    for number, sample in enumerate(samples):
        problem = _problem(sample, vocabulary, context)
        if not problem and sample.policy != samples[0].policy:
            problem = f"is of policy {sample.policy!r}, the first of {samples[0].policy!r}. Fix: one update per policy"
        if problem:
            raise ValueError(f"sample {number} {problem}")


def _problem(sample: Sample, vocabulary: int, context: int | None) -> str:
    length = len(sample.token_ids)
    for name in ("loss_mask", "behaviour_logprobs"):
        if len(getattr(sample, name)) != length:
            return f"has {length} token_ids and {len(getattr(sample, name))} {name}. Fix: give one per token"
    if context is not None and length > context:
        return f"has {length} tokens, the model's context is {context}. Fix: lower the limits on prompts and replies"
    if length and not 0 <= min(sample.token_ids) <= max(sample.token_ids) < vocabulary:
        strange = next(token for token in sample.token_ids if not 0 <= token < vocabulary)
        return f"has the token id {strange}, the model has {vocabulary}. Fix: sample with the model that learns"
    if not {0, 1}.issuperset(sample.loss_mask):
        return f"has a loss_mask of {sorted(set(sample.loss_mask))}. Fix: 1 where the policy chose the token, else 0"
    if length and sample.loss_mask[0]:
        return "has a chosen token without any before it. Fix: keep the prompt, or the beginning-of-text token"
    if not all(map(math.isfinite, sample.behaviour_logprobs)):
        at = next(at for at, value in enumerate(sample.behaviour_logprobs) if not math.isfinite(value))
        return f"has the behaviour log-probability {sample.behaviour_logprobs[at]} at token {at}. Fix: see the engine"
    if not math.isfinite(sample.advantage):
        return f"has the advantage {sample.advantage}. Fix: see the rewards that it was made from"
    if not 0 <= sample.weight < math.inf:
        return f"has the weight {sample.weight}. Fix: a finite weight of at least 0"
    if not 0 < sample.temperature < math.inf:
        return f"has the temperature {sample.temperature}. Fix: sample what is learnt from at a temperature above 0"
    return ""
