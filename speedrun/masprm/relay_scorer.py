"""A perfect model of values for the relay, which knows after each step whether all went right so far. Not for results:
it marks what a perfect V would reach."""

from __future__ import annotations

from collections.abc import Sequence

from search.scoring import Score, ScoredState
from speedrun.masprm.chains import read_chain, wrong_step
from workflow.completion import Completion

STEP = 0.8
"""Share of the steps to come that will be right."""


class RelayScorer:
    """Satisfies `search.scoring.Scorer`."""

    name = "perfect"

    async def score(self, states: Sequence[ScoredState]) -> list[Score]:
        return [Score(worth(state.question, _replies(state))) for state in states]

    async def close(self) -> None:
        """Nothing is open."""


def worth(question: str, replies: Sequence[str]) -> float:
    """The expected R: -1 once a step went wrong, else what is left is right by chance."""
    chain = read_chain(question)
    assert chain is not None, question
    if wrong_step(question, replies) is not None:
        return -1.0
    return 2 * STEP ** (len(chain.numbers) - len(replies)) - 1


def _replies(state: ScoredState) -> list[str]:
    return [turn.reply.text if isinstance(turn.reply, Completion) else "" for turn in state.turns]
