"""What a model of values is asked, and what it says: whatever it says comes through `scored`, which checks it.

Models are made and run in `trainer.values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from search.methods import SearchRefused
from search.paths import AgentStep
from workflow.failures import Failure

ROUNDING = 1e-6
"""By how much a value may be beyond [-1, 1]; it is taken back."""


@dataclass(frozen=True, slots=True)
class ScoredState:
    """A state after an action (MASPRM, section 3), or for an outcome model the question with a final answer."""

    question: str
    turns: tuple[AgentStep, ...]
    """All replies so far, in the order decided, each with the messages it answers; the last one acted. Where the engine
    owns its tokens, a reply's `prompt_token_ids` and `token_ids` are what the policy read and wrote."""
    answer: str | None = None
    """Of an outcome model alone: what the run's answer is, "" where it has none."""


class Score(NamedTuple):
    value: float
    """In [-1, 1]."""
    tokens: int = 0
    """Read for it."""


class Scorer(Protocol):
    """V or Y. Safe to be asked from many tasks at once, of which one in torch makes batches."""

    name: str

    async def score(self, states: Sequence[ScoredState]) -> list[Score]:
        """One for each state. A value depends on its state alone."""
        ...

    async def close(self) -> None: ...


async def scored(scorer: Scorer, states: Sequence[ScoredState]) -> list[Score]:
    """What the scorer says of each state. Raises `SearchRefused` for what is no value: a search would follow it."""
    scores = await scorer.score(states)
    if len(scores) != len(states):
        raise SearchRefused(
            f"the model of values {scorer.name} was asked about {len(states)} states and gave {len(scores)} values. "
            "Fix: see the scorer"
        )
    for state, score in zip(states, scores, strict=True):
        if not -1 - ROUNDING <= score.value <= 1 + ROUNDING:  # NaN is not, either
            raise SearchRefused(
                f"the model of values {scorer.name} gives {score.value} to {_excerpt(state)}, and values are from -1 "
                "to 1. Fix: see its weights for NaN, or use a wider dtype"
            )
    return [score._replace(value=min(max(score.value, -1.0), 1.0)) for score in scores]


def _excerpt(state: ScoredState) -> str:
    if state.answer is not None:
        return f"the answer {state.answer!r:.60}"
    if not state.turns:
        return f"the question {state.question!r:.60}"
    last = state.turns[-1]
    said = last.reply.kind if isinstance(last.reply, Failure) else last.reply.text
    return f"the reply {said!r:.60} of {last.agent!r} ({last.key})"
