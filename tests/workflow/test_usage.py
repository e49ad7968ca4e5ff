"""What a usage report says is the sum of the agent turns and of the Designer's replies, however they are divided."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.completion import Completion, Usage
from workflow.trace import AgentTurn, Printed, RunEnded, Trace
from workflow.usage import Tally, usage_report

COUNTS = st.integers(0, 10**6)
USAGES = st.builds(
    Usage,
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    prefix_tokens=st.none() | COUNTS,
    cost_usd=st.none() | st.floats(0, 10),
)
COMPLETIONS = st.builds(Completion, text=st.just("x"), usage=USAGES, cached=st.none() | st.booleans())
TURNS = st.builds(
    AgentTurn,
    key=st.just("w#0"),
    path=st.just("w"),
    agent=st.sampled_from(["Solver", "Judge", "designer", ""]),
    messages=st.just([]),
    completion=st.none() | COMPLETIONS,
)
EVENTS = TURNS | st.just(Printed(text="x")) | st.builds(RunEnded, usage=USAGES)
TRACES = st.lists(EVENTS, max_size=8).map(lambda events: Trace.model_construct(events=events))


def known(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return math.fsum(present) if present else None


def same(one: Tally, other: Tally) -> bool:
    """Equal but for the rounding of costs."""
    if (one.usage.cost_usd is None) != (other.usage.cost_usd is None):
        return False
    if one.usage.cost_usd != pytest.approx(other.usage.cost_usd):
        return False
    return counts(one) == counts(other)


def counts(tally: Tally) -> list[int | None]:
    usage = tally.usage
    return [
        tally.calls,
        tally.failed,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prefix_tokens,
        tally.cache_hits,
        tally.cache_misses,
        tally.hit_tokens,
    ]


def added(tallies: Iterable[Tally]) -> Tally:
    parts = list(tallies)
    return Tally(
        calls=sum(part.calls for part in parts),
        failed=sum(part.failed for part in parts),
        usage=Usage.total(part.usage for part in parts),
        cache_hits=sum(part.cache_hits for part in parts),
        cache_misses=sum(part.cache_misses for part in parts),
        hit_tokens=sum(part.hit_tokens for part in parts),
    )


@given(st.lists(TRACES, max_size=3), st.lists(COMPLETIONS, max_size=4))
def test_every_division_adds_up_to_the_turns(traces: list[Trace], designed: list[Completion]) -> None:
    report = usage_report(traces, designed)
    turns = [event for trace in traces for event in trace.events if isinstance(event, AgentTurn)]
    replies = [turn.completion for turn in turns if turn.completion is not None] + designed
    total = report.total
    assert total.calls == len(turns) + len(designed)
    assert total.failed == sum(turn.completion is None for turn in turns)
    assert total.usage.prompt_tokens == sum(reply.usage.prompt_tokens for reply in replies)
    assert total.usage.completion_tokens == sum(reply.usage.completion_tokens for reply in replies)
    assert total.usage.prefix_tokens == known(reply.usage.prefix_tokens for reply in replies)
    assert total.usage.cost_usd == pytest.approx(known(reply.usage.cost_usd for reply in replies))
    assert total.cache_hits == sum(1 for reply in replies if reply.cached is True)
    assert total.cache_misses == sum(1 for reply in replies if reply.cached is False)
    hit = [reply.usage for reply in replies if reply.cached]
    assert total.hit_tokens == sum(usage.prompt_tokens + usage.completion_tokens for usage in hit)
    assert same(added(report.by_role.values()), total)
    assert same(Tally.total(report.by_role.values()), total)
    assert same(added(report.by_agent.values()), report.by_role.get("executor", Tally()))
    assert set(report.by_agent) == {turn.agent for turn in turns}
    for agent, tally in report.by_agent.items():
        own = [turn.completion for turn in turns if turn.agent == agent]
        assert tally.calls == len(own)
        assert tally.usage == Usage.total(reply.usage for reply in own if reply is not None)


@given(TRACES)
def test_one_trace_uses_what_it_says(trace: Trace) -> None:
    assert usage_report([trace]).total.usage == trace.usage


def test_numbers_by_hand() -> None:
    def turn(agent: str, prompt: int, completion: int, cost: float | None, cached: bool | None) -> AgentTurn:
        usage = Usage(prompt_tokens=prompt, completion_tokens=completion, prefix_tokens=prompt // 2, cost_usd=cost)
        done = Completion(text="x", usage=usage, cached=cached)
        return AgentTurn(key="k", path="w", agent=agent, messages=[], completion=done)

    failed = AgentTurn(key="k", path="w", agent="Judge", messages=[], error="the run ended first")
    trace = Trace(events=[turn("Solver", 100, 10, 0.5, False), turn("Solver", 200, 20, 0.0, True), failed])
    report = usage_report([trace], [Completion(text="x", usage=Usage(prompt_tokens=1000, completion_tokens=300))])
    solver = Tally(
        calls=2,
        usage=Usage(prompt_tokens=300, completion_tokens=30, prefix_tokens=150, cost_usd=0.5),
        cache_hits=1,
        cache_misses=1,
        hit_tokens=220,
    )
    assert report.by_agent == {"Solver": solver, "Judge": Tally(calls=1, failed=1)}
    assert report.by_role["executor"] == solver.model_copy(update={"calls": 3, "failed": 1})
    assert report.by_role["designer"].usage == Usage(prompt_tokens=1000, completion_tokens=300)
    assert report.total.usage == Usage(prompt_tokens=1300, completion_tokens=330, prefix_tokens=150, cost_usd=0.5)
    assert usage_report() == usage_report([Trace()])
    assert usage_report().by_role == {}


def test_costs_beyond_all_floats_are_infinite() -> None:
    """As a trace that somebody made up may have them; half a sum would be a lie."""
    assert Usage.total([Usage(cost_usd=1e308), Usage(cost_usd=1e308)]).cost_usd == float("inf")
