"""Counts what one run uses against its limits: agent calls, tokens, tool calls, bytes printed.

Believes nothing that a program says: `engine.session` counts what passes through it. Not here: the wall clock (the
driver's) and what the kernel limits (CPU, memory: `sandbox.jail`).
"""

from __future__ import annotations

from workflow.failures import LimitExceeded, LimitKind
from workflow.limits import Limits


class LimitCounter:
    """What one run has used so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._used: dict[LimitKind, int] = {"agent_calls": 0, "tokens": 0, "tool_calls": 0, "output_bytes": 0}

    def spend(self, kind: LimitKind, amount: int) -> None:
        """Count. Raises `LimitExceeded`, which ends the run, once the limit is passed."""
        self._used[kind] += amount
        limit = getattr(self._limits, kind)
        if self._used[kind] > limit:
            raise LimitExceeded(kind, limit, self._used[kind])
