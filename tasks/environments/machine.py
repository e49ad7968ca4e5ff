"""What every game is: immutable states, actions that lead from one to the next, and what is seen of an action.

Nothing here knows a particular game, and nothing says what an action earns (`trainer`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar


class LevelError(ValueError):
    """A text is no level. `line` and `column` count from 1; 0 where the whole is wrong."""

    def __init__(self, what: str, line: int = 0, column: int = 0) -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{place}{what}")
        self.what, self.line, self.column = what, line, column


class Edit(NamedTuple):
    """A digit into a cell; rows and columns count from 1, and 0 clears the cell."""

    row: int
    column: int
    value: int


Action = tuple[str, ...] | tuple[Edit, ...]
"""Moves (`U`, `D`, `L`, `R`) or edits, in their order."""


@dataclass(frozen=True, kw_only=True)
class State(ABC):
    """A position in a game. Equal states have equal digests, and the same is seen in them."""

    kind: ClassVar[str]
    turn: int = 0
    """Actions so far, unreadable ones included."""
    turns: int
    """How many there may be."""

    @property
    @abstractmethod
    def board(self) -> str:
        """The position as text, in the form of levels."""

    @property
    @abstractmethod
    def situation(self) -> str:
        """What an agent is told beside the board."""

    @property
    @abstractmethod
    def solved(self) -> bool:
        """What the rules say of this position, and nothing else: no limit counts as solved."""

    @abstractmethod
    def play(self, text: str) -> Step[State]:
        """What a text does here; the turn is not counted. The game is not over."""

    @property
    def done(self) -> bool:
        """Nothing can be done any more."""
        return self.solved or self.turn >= self.turns

    @property
    def digest(self) -> str:
        """32 hexadecimal digits."""
        said = f"{self.kind} {self.turn}/{self.turns}\n{self._identity}"
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    @property
    def _identity(self) -> str:
        """All that tells this position from others."""
        return self.board


StateT = TypeVar("StateT", bound=State, covariant=True)


@dataclass(frozen=True, slots=True)
class Step(Generic[StateT]):
    """One action: what was read, and where it leads."""

    before: StateT
    after: StateT
    action: Action | None
    """As it was read, with what was not played; None where the text could not be read."""
    applied: int
    """How many of its moves or edits were played."""
    wrong: str = ""
    """Why it could not be read, or what ended it; empty where all of it was legal."""

    @property
    def readable(self) -> bool:
        return self.action is not None

    @property
    def legal(self) -> bool:
        """It could be read, and met nothing illegal. Moves behind the solution are not played, and break no rule."""
        return self.readable and not self.wrong

    @property
    def done(self) -> bool:
        return self.after.done

    @property
    def solved(self) -> bool:
        return self.after.solved
