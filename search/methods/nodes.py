"""States of a search: the replies given so far, each an edge from the state before (MASPRM, section 3).

Values only. How a tree grows is in `states`, which child a search goes to in the methods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from workflow.completion import Completion
from workflow.failures import Failure

Reply = Completion | Failure
"""A failure is a call that went past a limit itself; no other kind is one."""


class SearchRefused(ValueError):
    """What was asked for cannot be searched; the message says what to do."""


class AsksNobody(SearchRefused):
    """The program ended, somehow, before it asked any agent."""

    def __init__(self, failure: str | None, answer: str | None) -> None:
        self.why = f"it ended with {failure}" if failure else f"its answer is {answer!r:.100}"
        """How it ended, in a few words."""
        super().__init__(f"the program asks no agent ({self.why}), so there is nothing to search. Fix: run it")


@dataclass(frozen=True, slots=True)
class Action:
    """A reply to the call that a state waits for."""

    key: str
    agent: str
    reply: Reply


@dataclass(frozen=True, slots=True)
class End:
    """How the run of a terminal state ended."""

    answer: str | None
    failure: str | None = None
    """Its kind."""
    reward: float | None = None
    """R(s_T): +1 where the answer is right, else -1; None where nothing grades it."""
    verdict: str = ""
    """Why, in a few words."""
    timed_out: bool = False
    """Whether a clock ended the run, or what it was graded by: on another machine it could be another end."""


@dataclass(slots=True, eq=False)
class Node:
    """A state, and the edge that leads to it. N and W belong to that edge."""

    id: int
    """Its place in the tree; -1 as long as it has none."""
    parent: Node | None = None
    action: Action | None = None
    """None at the root alone."""
    number: int = 0
    """Which child of its parent it is, from 0, in the order drawn."""
    psi: float | None = None
    """Mean log-probability of the action's tokens (Eq. 1); None where the engine gave none."""
    value: float | None = None
    """V(s), once a guide has said it."""
    outcome: float | None = None
    """Y of a terminal state, once it was asked for."""
    copies: int = 1
    """Replies of one text that were merged into this one."""
    visits: int = 0
    """N(s, a)."""
    total: float = 0.0
    """W(s, a)."""
    virtual: bool = False
    """Whether N began with 1 and W with V (section 4.2)."""
    pending: int = 0
    """Simulations under way through this edge; each counts as a visit that lost, for the others."""
    children: list[Node] = field(default_factory=list)
    seen: bool = False
    """Whether the run has come here: `end` is then known."""
    end: End | None = None
    """None where a decision waits."""

    @property
    def q(self) -> float:
        """W / max(1, N)."""
        return self.total / max(1, self.visits)

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def path(self) -> list[Node]:
        """From the root's child to this one; empty at the root."""
        path: list[Node] = []
        node: Node = self
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path[::-1]

    def back_up(self, value: float) -> None:
        """Along the edges from the root to here, once each (Alg. 1, lines 14 to 16)."""
        for node in self.path:
            node.visits += 1
            node.total += value


def likelihood(reply: Reply) -> float | None:
    """psi of Eq. 1: the mean over the reply's tokens of log p; None where the engine gave none."""
    if isinstance(reply, Failure) or not reply.logprobs:
        return None
    return sum(reply.logprobs) / len(reply.logprobs)


def psi_of(action: Action) -> float | None:
    """`likelihood`. Raises `SearchRefused` where the engine's numbers are none, as NaN would win any comparison."""
    psi = likelihood(action.reply)
    if psi is not None and not isfinite(psi):
        engine = action.reply.model if isinstance(action.reply, Completion) else ""
        raise SearchRefused(
            f"engine {engine or 'without a name'} gave agent {action.agent!r} (call {action.key}) log-probabilities "
            f"whose mean is {psi}. Fix: an engine that gives finite ones, or none"
        )
    return psi


def said_by(reply: Reply) -> tuple[str | None, ...]:
    """What makes two replies to one call the same."""
    if isinstance(reply, Failure):
        return reply.kind, reply.message, "failure"
    return reply.text, reply.reasoning, reply.finish_reason
