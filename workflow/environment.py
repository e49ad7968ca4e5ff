"""The game that a run plays, as programs and nodes see it: they look at it, and say what to do.

Only requests are made here. The game itself is on the host (`tasks.environments`), which reads what an action is and
what it does; what it earns is the trainer's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workflow.bridge import perform
from workflow.checks import contract
from workflow.failures import ContractError
from workflow.labels import label_problem
from workflow.messages import Message
from workflow.requests import Act, Observe


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees of a game."""

    text: str
    done: bool
    """Nothing can be done any more: it is solved, or its turns are used up."""


class Environment:
    """In programs the global `environment`, which is None where the problem is no game. Every call takes a tool call
    off the run's limit."""

    __slots__ = ()

    @contract
    def observe(self, agent: str) -> Observation:
        """What `agent` sees of the game now: `text`, and whether it is `done`."""
        return perform(Observe(_named(agent)))

    @contract
    def act(self, agent: str, text: Any) -> Observation:
        """Do what a reply of `agent`, text or a `Message`, says, and see where that leads. Its action is what stands
        after the last `####`, or the delivery, or the whole text; it earns something only where an agent wrote it."""
        return perform(Act(_named(agent), _text_of(text)))

    @contract
    def propose(self, agent: str, text: Any) -> Observation:
        """What `act` would lead to. Nothing is done."""
        return perform(Act(_named(agent), _text_of(text), commit=False))


def _named(agent: str) -> str:
    problem = label_problem(agent) if agent else "is empty"
    if problem:
        raise ContractError(f"Environment: argument 'agent', a name, {problem} (got {agent!r:.80})")
    return agent


def _text_of(said: Any) -> str:
    if isinstance(said, Message):
        return said.content
    if not isinstance(said, str):
        raise ContractError(f"Environment: argument 'text' is a reply, text or a Message (got {said!r:.80})")
    return said
