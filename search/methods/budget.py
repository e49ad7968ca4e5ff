"""What a search may spend, and what it has spent. Counting only: who stops for it is in `states` and the methods."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from workflow.completion import Completion
from workflow.failures import Failure


class BudgetSpent(Exception):
    """The search ends with the best so far. `kind` is the budget's name."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the search's budget of {kind} is spent")
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of one search; None is no limit."""

    agent_calls: int | None = None
    """Replies drawn; a draw that would go past it is not made."""
    tokens: int | None = None
    """Generated tokens; no draw is made once they are used up."""
    wall_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("agent_calls", "tokens", "wall_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"budget {name}={value} is none. Fix: a number above 0, or leave it out")


@dataclass(slots=True)
class Spent:
    """By one search so far: AC, MC and tokens of the paper's tables (section 5.1)."""

    agent_calls: int = 0
    """AC: every reply drawn, duplicates too."""
    scored: int = 0
    """MC: states that a model of values scored."""
    generated: int = 0
    """Tokens of the replies."""
    prompt_tokens: int = 0
    """Of the calls, as the engine counts them."""
    scored_tokens: int = 0
    """Read by models of values."""
    cost_usd: float | None = None
    """Of the replies, where a price is configured."""
    began: float = field(default_factory=time.monotonic, repr=False)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def left_s(self, budget: Budget) -> float | None:
        """Seconds; None where there is no limit."""
        return None if budget.wall_s is None else max(budget.wall_s - self.seconds, 0.0)

    def may_draw(self, budget: Budget, calls: int) -> None:
        """Raises `BudgetSpent`. No calls are always free."""
        if not calls:
            return
        if budget.agent_calls is not None and self.agent_calls + calls > budget.agent_calls:
            raise BudgetSpent("agent_calls")
        if budget.tokens is not None and self.generated >= budget.tokens:
            raise BudgetSpent("tokens")
        if budget.wall_s is not None and self.seconds >= budget.wall_s:
            raise BudgetSpent("wall_s")

    def drew(self, reply: Completion | Failure) -> None:
        self.agent_calls += 1
        if isinstance(reply, Completion):
            self.generated += reply.usage.completion_tokens
            self.prompt_tokens += reply.usage.prompt_tokens
            if reply.usage.cost_usd is not None:
                self.cost_usd = (self.cost_usd or 0.0) + reply.usage.cost_usd
