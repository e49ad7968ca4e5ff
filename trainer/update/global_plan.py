"""Who computes what where several ranks share an update: one plan from the lengths of all samples, made in one place.

Every rank gets as many micro-batches as every other, and in each of them cuts the output head's work into as many
pieces, since with partitioned weights each call of a module is an exchange between all ranks. Pure; what an empty
micro-batch is filled with is the rank's business (`trainer.update.deepspeed_rank`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.update.micro_batches import micro_batches


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one rank computes at once, while all others compute theirs."""

    indices: tuple[int, ...]
    """Which samples; none where this rank only keeps the others company."""
    chunks: int
    """Pieces that the logits are made in; the same on all ranks."""


def global_plan(
    lengths: Mapping[int, int], chosen: Mapping[int, int], *, ranks: int, budget: int, chunk_tokens: int
) -> list[list[MicroBatch]]:
    """For each rank its micro-batches, in order.

    `lengths` has the tokens of each sample that is computed and `chosen` how many of them the policy chose. Each sample
    is in one micro-batch of one rank; micro-batches stay within `budget` padded tokens (a longer sample is alone), and
    no piece of the logits is of more than `chunk_tokens` tokens.
    """
    cut = [
        [tuple(share[row] for row in rows) for rows in micro_batches([lengths[index] for index in share], budget)]
        for share in balanced(lengths, ranks)
    ]
    count = max(map(len, cut))
    full = [[*each, *[()] * (count - len(each))] for each in cut]
    chunks = [
        max(1, *(math.ceil(sum(chosen[index] for index in batch) / chunk_tokens) for batch in at_once))
        for at_once in zip(*full, strict=True)
    ]
    return [[MicroBatch(*each) for each in zip(batches, chunks, strict=True)] for batches in full]


def balanced(lengths: Mapping[int, int], ranks: int) -> list[list[int]]:
    """Samples dealt to ranks, the longest first, each to the rank with the fewest tokens: no two ranks differ by more
    tokens than the longest sample has."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    held = [0] * ranks
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        least = held.index(min(held))
        shares[least].append(index)
        held[least] += lengths[index]
    return shares
