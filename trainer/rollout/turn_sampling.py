"""Runs whose turns are scored one by one; tree sampling at agents' turns: Stronger-MAS, Alg. 1, for any program.

At each call of an agent K replies are drawn from one prompt, each is scored, and the run goes on with one of them. The
K are a group of their own (`trainer.credit.rules.at_grpo`). Without a tree K is 1, at all turns. How runs part is in
`search`; nothing here computes advantages.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from engine.protocol import Engine
from engine.session import Run
from search import AgentStep, Branching, CodeStep, Decision, Ended
from search.branching import Position
from trainer.config import BranchingConfig
from trainer.samples import Coordinates, candidate_trajectory
from trainer.trees import Candidate
from workflow.completion import Completion, Usage
from workflow.failures import Failure
from workflow.trace import CandidateDrawn, Rewarded, TurnRewarded

Score = Callable[[Run], Coroutine[Any, Any, Rewarded]]
"""Of a run that has ended, which says of itself whether a clock ended it. It is rewarded whatever its failure, which is
none of engine or sandbox."""
TurnScore = Callable[[Decision, Position], Coroutine[Any, Any, Rewarded]]
"""Of the reply to a call that led to a position."""
Reply = Completion | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A run with what its replies earned."""

    run: Run
    reward: Rewarded
    candidates: list[Candidate]
    events: list[CandidateDrawn | TurnRewarded]
    """One for each candidate, for the Trace."""
    usage: Usage
    """Of all replies that were drawn."""


class TurnSampling:
    """Grows one run. Each reply is run on to the end and scored there, unless there is a `turn_score`. Without a
    `config` the run does not part, and each of its replies is scored. `question`, `design` and `execution` say where it
    stands in the step."""

    def __init__(
        self,
        branching: Branching,
        engine: Engine,
        config: BranchingConfig | None,
        score: Score,
        turn_score: TurnScore | None = None,
        *,
        question: str,
        design: int,
        execution: int,
    ) -> None:
        self._branching, self._engine, self._config = branching, engine, config
        self._score, self._turn_score = score, turn_score
        self._question, self._design, self._execution = question, design, execution
        self._steps: dict[tuple[str, int], asyncio.Task[tuple[Reply, Position]]] = {}
        """By digest of the path before, and number: a run to the end takes steps that the next decision needs."""
        self._replies: dict[tuple[str, int], asyncio.Task[Reply]] = {}
        """By the same."""
        self._rewards: dict[str, asyncio.Task[Rewarded]] = {}
        """By digest of the path to a run's end: it is graded once."""

    async def grow(self) -> Sampled:
        """Raises `EngineFailed` and `SandboxUnavailable`, and `NoTokens` for replies that cannot be learned from; no
        reply is made up for them."""
        candidates: list[Candidate] = []
        events: list[CandidateDrawn | TurnRewarded] = []
        try:
            position = await self._branching.start()
            while isinstance(position, Decision):
                if self._config is None or turn_of(position) < self._config.turns:
                    position = await self._decided(position, candidates, events)
                else:
                    _, position = await self._step(position, 0)
            replies = [task.result()[0] for task in self._steps.values()]
            usage = Usage.total(reply.usage for reply in replies if isinstance(reply, Completion))
            end, reward = await self._end(position)
            if self._config is None and end.run.timed_out:  # all of the run, as where it is rewarded as a whole
                candidates = [replace(each, reward=replace(each.reward, timed_out=True)) for each in candidates]
                events = [replace(event, timed_out=True) for event in events]
            return Sampled(run=end.run, reward=reward, candidates=candidates, events=events, usage=usage)
        finally:
            tasks = [*self._steps.values(), *self._replies.values(), *self._rewards.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._branching.close()

    async def _decided(
        self, decision: Decision, candidates: list[Candidate], events: list[CandidateDrawn | TurnRewarded]
    ) -> Position:
        """Draw K replies, score each, and go on with one."""
        numbers = range(1 if self._config is None else self._config.candidates)
        steps = await asyncio.gather(*(self._step(decision, number) for number in numbers))
        reached = {id(position): (reply, position) for reply, position in steps}
        scores = await asyncio.gather(*(self._scored(decision, *step) for step in reached.values()))
        scored = [dict(zip(reached, scores, strict=True))[id(position)] for _, position in steps]
        # What went past a limit itself is no reply to go on with, nor what a clock ended, unless there is no other.
        said = [number for number in numbers if isinstance(steps[number][0], Completion)] or [0]
        said = [number for number in said if not scored[number].timed_out] or said
        chosen = said[self._chosen(decision, [scored[number].total for number in said])]
        for number, ((reply, _), score) in enumerate(zip(steps, scored, strict=True)):
            if isinstance(reply, Failure):
                continue  # no token was chosen
            request = decision.request
            coordinates = Coordinates(
                question=self._question,
                design=self._design,
                execution=self._execution if self._config is None else number,
                agent=request.agent,
                path=path_of(request.key),
                turn=turn_of(decision),
                point=f"{self._execution}/{decision.path.digest}",
            )
            candidates.append(
                Candidate(
                    trajectory=candidate_trajectory(reply, request.sampling, coordinates),
                    reward=score,
                    chosen=number == chosen,
                )
            )
            earned: dict[str, Any] = {"t": score.t, "key": request.key, "agent": request.agent}
            earned |= {"reward": score.total, "terms": score.terms, "timed_out": score.timed_out}
            events.append(
                TurnRewarded(**earned)
                if self._config is None
                else CandidateDrawn(**earned, number=number, chosen=number == chosen, completion=reply)
            )
        reply, position = steps[chosen]
        first = next(said for said, at in steps if at is position)
        # What is recorded of the run are this reply's own figures.
        return position if first is reply else await self._branching.go_on(decision, reply)

    async def _scored(self, decision: Decision, reply: Reply, position: Position) -> Rewarded:
        if self._turn_score is None or isinstance(reply, Failure):
            return (await self._end(position))[1]
        reward = await self._turn_score(decision, position)
        since = position.path.steps[len(decision.path.steps) :]
        by_clock = any(isinstance(step, CodeStep) and step.reply.limit == "wall_s" for step in since)
        by_clock |= isinstance(position, Ended) and position.run.timed_out
        return replace(reward, timed_out=reward.timed_out or by_clock)

    def _chosen(self, decision: Decision, rewards: list[float]) -> int:
        """The largest reward, ties to the lowest number (Alg. 1, line 13), unless the configuration says otherwise."""
        if self._config is None or self._config.select == "first":
            return 0
        if self._config.select == "random":
            return random.Random(f"{self._branching.program.seed}/{decision.path.digest}").randrange(len(rewards))
        return rewards.index(max(rewards))

    async def _step(self, decision: Decision, number: int) -> tuple[Reply, Position]:
        """The reply with this number, and where it leads: candidates that are the same go on once, as the first one."""

        async def step() -> tuple[Reply, Position]:
            reply = await self._reply(decision, number)
            for lower in range(number):
                if _state(decision, await self._reply(decision, lower)) == _state(decision, reply):
                    return reply, (await self._step(decision, lower))[1]
            return reply, await self._branching.go_on(decision, reply)

        place = decision.path.digest, number
        if place not in self._steps:
            self._steps[place] = asyncio.create_task(step())
        return await self._steps[place]

    async def _reply(self, decision: Decision, number: int) -> Reply:
        place = decision.path.digest, number
        if place not in self._replies:
            self._replies[place] = asyncio.create_task(self._branching.candidate(decision, self._engine, number))
        return await self._replies[place]

    async def _end(self, position: Position) -> tuple[Ended, Rewarded]:
        """Where a run comes that goes on with the first reply each time, and what that is worth."""
        while isinstance(position, Decision):
            _, position = await self._step(position, 0)
        digest = position.path.digest
        if digest not in self._rewards:
            self._rewards[digest] = asyncio.create_task(self._score(position.run))
        return position, await self._rewards[digest]


def _state(decision: Decision, reply: Reply) -> list[Any]:
    """All of a reply that the run's state depends on."""
    return AgentStep.of(decision.request, reply).reached()


def path_of(key: str) -> str:
    """Where in the program a request was made: `AgentTurn.path`."""
    return key.rpartition("#")[0]


def turn_of(decision: Decision) -> int:
    """How often the agent at this path had replied before, over all rounds of a loop."""
    path = path_of(decision.request.key)
    return sum(path_of(step.key) == path for step in decision.path.decisions)
