"""A scorer whose values are written down, for tests of what asks one. No model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search.scoring import Score, ScoredState
from workflow.failures import Failure


class ScriptedScorer:
    """Values by text: of the newest reply, or for an outcome model of the answer."""

    name = "scripted"

    def __init__(self, values: Mapping[str, float], default: float = 0.0) -> None:
        self.asked: list[ScoredState] = []
        self._values, self._default = values, default

    async def score(self, states: Sequence[ScoredState]) -> list[Score]:
        self.asked += states
        return [Score(self._values.get(_text(state), self._default)) for state in states]

    async def close(self) -> None: ...


def _text(state: ScoredState) -> str:
    if state.answer is not None:
        return state.answer
    reply = state.turns[-1].reply
    return reply.kind if isinstance(reply, Failure) else reply.text
