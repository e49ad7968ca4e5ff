"""What a model of values is asked, and what it says. Models are made and run in `trainer.values`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from search.paths import AgentStep


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
