"""What every game is to a run that plays it: positions, and what an action makes of one.

The games are in `tasks.environments`; requests and what programs see are in `workflow.environment`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from workflow.environment import Observation


class Game(Protocol):
    """A position of the game that a run plays, on the host: an immutable value."""

    @property
    def digest(self) -> str: ...

    @property
    def solved(self) -> bool:
        """What the rules say of this position; a limit that is reached is not solved."""
        ...

    def observe(self, agent: str) -> Observation:
        """What an agent sees."""
        ...

    def act(self, agent: str, text: str) -> Played:
        """What a text does here; this position stays what it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One action in a game."""

    after: Game
    seen: Observation
    """By the agent, of what came of it."""
    action: list[Any] | None
    """As it was read, in JSON; None where the text could not be read."""
    legal: bool
    wrong: str
    """Why it could not be read, or what ended it; empty where all of it was legal."""
