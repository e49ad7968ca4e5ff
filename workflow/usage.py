"""What runs used: calls, tokens, cost and hits of the reply cache, in total, by role and by agent.

Pure sums over what the Trace and the Designer's replies say. It knows no prices and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from workflow.completion import Completion, Usage
from workflow.trace import Trace

PolicyRole = Literal["designer", "executor"]
"""Who is asked: the policy that writes programs, or the one that plays their agents (docs/architecture.md, 9)."""


class Tally(BaseModel):
    """The sum over some calls."""

    model_config = ConfigDict(frozen=True)

    calls: int = 0
    failed: int = 0
    """Calls without a reply; what they used is unknown."""
    usage: Usage = Usage()
    """Of all replies, those from the cache included: their tokens count as before, their cost is 0."""
    cache_hits: int = 0
    cache_misses: int = 0
    """Replies that a cache was asked for in vain; 0 as well where there was no cache."""
    hit_tokens: int = 0
    """Tokens of the hits, which nobody computed again."""

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        parts = list(tallies)
        return cls(
            calls=sum(part.calls for part in parts),
            failed=sum(part.failed for part in parts),
            usage=Usage.total(part.usage for part in parts),
            cache_hits=sum(part.cache_hits for part in parts),
            cache_misses=sum(part.cache_misses for part in parts),
            hit_tokens=sum(part.hit_tokens for part in parts),
        )


class UsageReport(BaseModel):
    """`by_role` adds up to `total`, `by_agent` to the executor's share; who was not asked is left out."""

    model_config = ConfigDict(frozen=True)

    total: Tally = Tally()
    by_role: dict[PolicyRole, Tally] = {}
    by_agent: dict[str, Tally] = {}
    """The agents of the programs by name, in the order in which their first calls ended."""


def usage_report(traces: Iterable[Trace] = (), designer: Iterable[Completion] = ()) -> UsageReport:
    """What some runs used, and the Designer's replies, which stand in no Trace."""
    turns = [turn for trace in traces for turn in trace.agent_turns]
    played: list[Completion | None] = [turn.completion for turn in turns]
    designed: list[Completion | None] = list(designer)
    agents: dict[str, list[Completion | None]] = {}
    for turn in turns:
        agents.setdefault(turn.agent, []).append(turn.completion)
    roles: dict[PolicyRole, list[Completion | None]] = {"designer": designed, "executor": played}
    return UsageReport(
        total=_tally([*designed, *played]),
        by_role={role: _tally(replies) for role, replies in roles.items() if replies},
        by_agent={agent: _tally(replies) for agent, replies in agents.items()},
    )


def _tally(replies: Sequence[Completion | None]) -> Tally:
    """The sum over some calls; None is a call without a reply."""
    done = [reply for reply in replies if reply is not None]
    hits = [reply for reply in done if reply.cached]
    return Tally(
        calls=len(replies),
        failed=len(replies) - len(done),
        usage=Usage.total(reply.usage for reply in done),
        cache_hits=len(hits),
        cache_misses=sum(reply.cached is False for reply in done),
        hit_tokens=sum(reply.usage.total_tokens for reply in hits),
    )
