"""Votes among runs that have ended (MASPRM, section 5.1): which answer, and which run gave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.methods.guides import FAILED_PSI
from workflow.voting import vote_key


@dataclass(frozen=True, slots=True)
class Vote:
    answer: str | None
    """A run without one has no vote."""
    weight: float = 1.0
    psi: float | None = None
    """Of the reply that the answer is in: the sum over a class decides ties. None is less than any."""


def plurality(votes: Sequence[Vote]) -> int | None:
    """Index of the run that speaks for the heaviest answer: of those that gave it the one with the largest psi; None
    where nobody answered.

    Negative weights count as they are: an answer that many runs give may lose to one that a single run gives.
    Ties go to the larger sum of psi, then to the answer named first.
    """
    classes: dict[str, list[int]] = {}
    for index, vote in enumerate(votes):
        if vote.answer is not None:
            classes.setdefault(vote_key(vote.answer), []).append(index)
    if not classes:
        return None

    def weight(members: list[int]) -> tuple[float, float]:
        total = sum(votes[index].weight for index in members)
        return round(total, 9), sum(_psi(votes[index]) for index in members)

    return max(max(classes.values(), key=weight), key=lambda index: _psi(votes[index]))


def _psi(vote: Vote) -> float:
    """Below all that are known, where it is not."""
    return FAILED_PSI if vote.psi is None else vote.psi
