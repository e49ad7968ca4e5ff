"""Sums up the attempts of an evaluation. A pure function of them; making them is `trainer.evaluate.evaluation`'s
business."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from trainer.evaluate.attempts import Attempt
from trainer.evaluate.metrics import (
    Diversity,
    PassRate,
    Spread,
    diversity,
    failure_counts,
    grouped,
    pass_at_powers,
    pass_rate,
    shares,
    spread,
)
from workflow.answers import Domain
from workflow.failures import FailureKind
from workflow.graph import GraphNode
from workflow.usage import PolicyRole, Tally

Name = TypeVar("Name", bound=Hashable)
NO_PROGRAM = "none"
"""What stands in `EvalReport.structures` for designs that may not run."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class StructureRow(_Frozen):
    """One structure: its share of the attempts, and how often these are correct."""

    share: float
    attempts: int
    correct: float


class EvalReport(_Frozen):
    """What an evaluation found. Rates and shares are in [0, 1]; none is given where there are no attempts."""

    problems: int
    attempts: int
    accuracy: PassRate | None
    """Mean over problems of each one's pass rate."""
    pass_at: dict[int, float]
    """pass@k for powers of two, up to the fewest attempts of any problem."""
    by_task: dict[str, PassRate]
    """By the tasks' names; empty where none were given."""
    by_domain: dict[Domain, PassRate]
    answered: float
    """Share of attempts with an answer in the form that the domain asks for."""
    structures: dict[str, StructureRow]
    failures: dict[FailureKind, int]
    diversity: Diversity
    """Of sampled designs, each counted; a program of the bank or a given one counts once."""
    reply_tokens: dict[PolicyRole, Spread]
    """Completion tokens per reply."""
    turns: Spread | None = None
    """Actions of the attempts that solved their game; None where there are none."""
    usage: Tally
    """All calls, with their cost where it is known."""
    usage_by_role: dict[PolicyRole, Tally]
    attempt_s: Spread
    """Seconds per attempt: design, run and grade."""


def report_of(attempts: Sequence[Attempt]) -> EvalReport:
    """The report on some attempts; their order does not matter."""
    grades = grouped((attempt.problem, attempt.correct) for attempt in attempts)
    roles: tuple[PolicyRole, ...] = ("designer", "executor")
    tallies: dict[PolicyRole, list[Tally]] = {
        role: [attempt.usage[role] for attempt in attempts if role in attempt.usage] for role in roles
    }
    replies: dict[PolicyRole, list[int]] = {
        role: [n for attempt in attempts for n in attempt.reply_tokens.get(role, [])] for role in roles
    }
    return EvalReport(
        problems=len(grades),
        attempts=len(attempts),
        accuracy=pass_rate(grades) if grades else None,
        pass_at=pass_at_powers(grades),
        by_task=_rates((attempt for attempt in attempts if attempt.task), lambda attempt: attempt.task),
        by_domain=_rates(attempts, lambda attempt: attempt.domain),
        answered=sum(attempt.answered for attempt in attempts) / max(len(attempts), 1),
        structures=_structures(attempts),
        failures=failure_counts(attempt.failure for attempt in attempts),
        diversity=diversity(_designs(attempts)),
        reply_tokens={role: spread(each) for role, each in replies.items() if each},
        turns=_turns_to_solve(attempts),
        usage=Tally.total(tally for each in tallies.values() for tally in each),
        usage_by_role={role: Tally.total(each) for role, each in tallies.items() if each},
        attempt_s=spread(attempt.duration_s for attempt in attempts),
    )


def _turns_to_solve(attempts: Iterable[Attempt]) -> Spread | None:
    turns = [attempt.turns for attempt in attempts if attempt.correct and attempt.turns is not None]
    return spread(turns) if turns else None


def _rates(attempts: Iterable[Attempt], name: Callable[[Attempt], Name]) -> dict[Name, PassRate]:
    groups: dict[Name, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(name(attempt), []).append(attempt)
    return {
        key: pass_rate(grouped((attempt.problem, attempt.correct) for attempt in group))
        for key, group in groups.items()
    }


def _structures(attempts: Sequence[Attempt]) -> dict[str, StructureRow]:
    rows = {}
    for structure, share in shares(attempt.structure for attempt in attempts).items():
        grades = [attempt.correct for attempt in attempts if attempt.structure == structure]
        row = StructureRow(share=share, attempts=len(grades), correct=sum(grades) / len(grades))
        rows[structure or NO_PROGRAM] = row
    return rows


def _designs(attempts: Iterable[Attempt]) -> list[GraphNode]:
    """The graph of each design that was made."""
    seen: set[str | None] = set()
    designs = []
    for attempt in attempts:
        if attempt.graph is None or (attempt.designer != "policy" and attempt.program in seen):
            continue
        seen.add(attempt.program)
        designs.append(attempt.graph)
    return designs
