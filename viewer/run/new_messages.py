"""What is new in the prompt of an agent's turn, compared with the turn before it at the same place.

Agents are asked with all that was said before, again and again; a reader wants to see each thing once.
"""

from __future__ import annotations

from dataclasses import dataclass

from workflow.completion import ChatMessage
from workflow.trace import AgentTurn, Trace


@dataclass(frozen=True, slots=True)
class Prompt:
    new: list[ChatMessage]
    before: int
    """Messages that are as in the turn before; its reply, where it comes next, is one of them."""
    earlier: int | None
    """Index of the event of that turn."""


def turns_before(trace: Trace) -> dict[int, int]:
    """By index of an agent turn: that of the turn before it at the same path, for those that have one."""
    last: dict[str, int] = {}
    found: dict[int, int] = {}
    for index, event in enumerate(trace.events):
        if isinstance(event, AgentTurn):
            if event.path in last:
                found[index] = last[event.path]
            last[event.path] = index
    return found


def prompt_of(turn: AgentTurn, earlier: AgentTurn | None, index: int | None = None) -> Prompt:
    if earlier is None:
        return Prompt(turn.messages, 0, None)
    known = list(earlier.messages)
    if earlier.completion is not None:
        known.append(ChatMessage(role="assistant", content=earlier.completion.text))
    before = 0
    for mine, theirs in zip(turn.messages, known, strict=False):
        if mine != theirs:
            break
        before += 1
    return Prompt(turn.messages[before:], before, index if before else None)
