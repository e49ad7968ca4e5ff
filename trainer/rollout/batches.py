"""Which problems each step trains on: a pure function of the step's number, so that nothing about it need be saved.

Every source is shuffled anew for each of its epochs. Nothing here reads files (`tasks.data.benchmarks` does).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.problems import Problem
from trainer.rollout.rollout import derived_seed


@dataclass(frozen=True, slots=True)
class Source:
    """Problems of one kind and their share of every batch, relative to the other sources'."""

    name: str
    problems: Sequence[Problem]
    share: float = 1.0


class Batches:
    """`size` problems for each step, no problem twice in one batch.

    Each source gives the same number at every step, the nearest to its share (largest remainders first, the earlier
    source where they are equal). The few problems at the end of an epoch that fill no batch are left out of that epoch.
    Raises ValueError for a source that gets no place or has too few problems, and for ids that occur twice.
    """

    def __init__(self, sources: Sequence[Source], size: int, seed: int) -> None:
        self.sources, self.size, self.seed = sources, size, seed
        self.counts = apportioned([source.share for source in sources], size)
        seen: dict[str, str] = {}
        for source, count in zip(sources, self.counts, strict=True):
            if count == 0:
                raise ValueError(
                    f"{source.name}: share {source.share:g} is no place in a batch of {size}. Fix: raise it"
                )
            if len(source.problems) < count:
                have = len(source.problems)
                raise ValueError(f"{source.name}: {have} problems do not fill {count} places. Fix: use smaller batches")
            for problem in source.problems:
                if problem.id in seen:
                    raise ValueError(f"problem id {problem.id!r} stands in {seen[problem.id]} and {source.name}")
                seen[problem.id] = source.name

    def at(self, step: int) -> list[Problem]:
        """The batch of one step, counted from 0: the sources in their order."""
        batch: list[Problem] = []
        for source, count in zip(self.sources, self.counts, strict=True):
            epoch, position = divmod(step, len(source.problems) // count)
            order = list(range(len(source.problems)))
            random.Random(derived_seed(self.seed, "order", source.name, epoch)).shuffle(order)
            batch += [source.problems[index] for index in order[position * count : (position + 1) * count]]
        return batch


def apportioned(shares: Sequence[float], places: int) -> list[int]:
    """Whole places by shares, the largest remainders first, the earlier share where they are equal."""
    exact = [share / sum(shares) * places for share in shares]
    counts = [int(each) for each in exact]
    by_remainder = sorted(range(len(shares)), key=lambda index: (counts[index] - exact[index], index))
    for index in by_remainder[: places - sum(counts)]:
        counts[index] += 1
    return counts
