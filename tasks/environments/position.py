"""A game as a run plays it: `workflow.game.Game` over the states of any game, and what a run has done in one.

What earns what is the trainer's business. Nothing here trusts a record: a game that was played is played again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.environments.machine import State, Step
from tasks.environments.playing import act, observe, reset
from tasks.problems import Problem
from workflow.environment import Observation
from workflow.game import Played
from workflow.trace import EnvironmentStepped, Event


@dataclass(frozen=True, slots=True)
class Position:
    state: State

    @property
    def digest(self) -> str:
        return self.state.digest

    @property
    def solved(self) -> bool:
        return self.state.solved

    def observe(self, agent: str) -> Observation:
        return Observation(observe(self.state, agent), self.state.done)

    def act(self, agent: str, text: str) -> Played:
        step = act(self.state, agent, text)
        seen = observe(step.after, agent)
        return Played(
            after=Position(step.after),
            seen=Observation(f"{_said_of(step)}\n\n{seen}" if step.wrong else seen, step.done),
            action=None if step.action is None else json.loads(json.dumps(step.action)),
            legal=step.legal,
            wrong=step.wrong,
        )


def _said_of(step: Step[State]) -> str:
    return (
        f"{step.wrong[0].upper()}{step.wrong[1:]}."
        if step.readable or step.before.done
        else f"No action: {step.wrong}."
    )


def begins(problem: Problem) -> Position | None:
    """Where a run of this problem begins to play; None where it is no game. Raises `LevelError`."""
    return None if problem.environment is None else Position(reset(problem))


def played(problem: Problem, events: Iterable[Event]) -> list[tuple[EnvironmentStepped, Step[State]]]:
    """What a run did in the game, proposals included, each with what it recorded of it. Raises ValueError for a record
    that is not of this problem."""
    state = reset(problem)
    steps: list[tuple[EnvironmentStepped, Step[State]]] = []
    for event in events:
        if isinstance(event, EnvironmentStepped):
            step = act(state, event.agent, event.text)
            if (step.before.digest, step.after.digest) != (event.before, event.after):
                raise ValueError(
                    f"the record of a game is not of problem {problem.id!r}: action {len(steps) + 1}, "
                    f"{event.text[-80:]!r}, leads from or to another position. Fix: take the run's own problem"
                )
            steps.append((event, step))
            state = step.after if event.commit else state
    return steps
