"""What the reward of a turn is made of, whatever the problem. Computes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workflow.trace import RewardTerm

Shaping = Literal["dense", "outcome"]
"""Whether rewards follow what a turn achieves (B.1 to B.5), or that the problem is solved and a format kept (B.6)."""
TurnRole = Literal["reasoner", "tool", "coder", "tester"]
"""What an agent is for in math (the first two) and in code. In games what it does says it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The team's part of a turn's reward in [0, 1], why, and the terms of the agent's own, whose weights are 1 at most
    together."""

    team: float
    seen: str
    local: list[RewardTerm]
    timed_out: bool = False
    """Whether a clock ended code that they were seen by."""
