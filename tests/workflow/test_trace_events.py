import json
import math
import re
from io import StringIO
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from workflow import trace
from workflow.completion import Completion, Sampling, Usage
from workflow.failures import Failure, LimitExceeded
from workflow.limits import Limits
from workflow.trace import (
    AgentTurn,
    Answered,
    CandidateDrawn,
    CodeRan,
    Delivered,
    EnvironmentStepped,
    Event,
    LimitHit,
    Printed,
    Rewarded,
    RewardTerm,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    Trace,
    TurnRewarded,
    Valued,
    event_to_json,
)

text = st.text()
number = st.floats(0, 1e6)
json_value: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
fields = st.dictionaries(text, json_value, max_size=3)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": text}),
    max_size=3,
)
samplings = st.builds(Sampling, temperature=number, seed=st.none() | st.integers(0, 2**31), stop=st.tuples(text))
usages = st.builds(Usage, prompt_tokens=st.integers(0, 9), cost_usd=st.none() | number)
logprobs = st.lists(st.floats(-100, 0) | st.just(-math.inf), max_size=4)
completions = st.builds(
    Completion,
    text=text,
    finish_reason=st.sampled_from(["stop", "length", "abort"]),
    token_ids=st.none() | st.lists(st.integers(0, 2**31), max_size=4),
    logprobs=st.none() | logprobs,
    prompt_token_ids=st.none() | st.lists(st.integers(0, 9), max_size=4),
    usage=usages,
    weights_version=st.none() | st.integers(0, 9),
)
limits = st.builds(Limits, wall_s=st.floats(1e-3, 1e6), tokens=st.integers(0, 9))
failures = st.builds(Failure, kind=st.just("program_failed"), message=text, fields=fields)
sources = st.sampled_from(["delivery", "final_answer", "solution", "excerpt"])
EVENTS: dict[type, Any] = {
    RunStarted: st.builds(RunStarted, t=number, run_id=text, question=text, program=text, engine=text, limits=limits),
    AgentTurn: st.builds(
        AgentTurn,
        t=number,
        key=text,
        path=text,
        agent=text,
        messages=messages,
        tools=st.lists(fields, max_size=2),
        sampling=samplings,
        completion=st.none() | completions,
        error=st.none() | text,
    ),
    ToolCalled: st.builds(ToolCalled, path=text, agent=text, name=text, arguments=fields),
    ToolReturned: st.builds(ToolReturned, path=text, agent=text, name=text, content=text, is_error=st.booleans()),
    CodeRan: st.builds(
        CodeRan, code=text, exit_status=st.integers(-9, 255), stdout=text, stderr=text, limit=st.none() | text
    ),
    EnvironmentStepped: st.builds(
        EnvironmentStepped,
        path=text,
        agent=text,
        text=text,
        commit=st.booleans(),
        from_agent=st.none() | text,
        action=st.none() | st.lists(text | st.lists(st.integers(0, 9), max_size=3), max_size=3),
        legal=st.booleans(),
        wrong=text,
        before=text,
        after=text,
        done=st.booleans(),
        solved=st.booleans(),
    ),
    Delivered: st.builds(Delivered, path=text, agent=text, text=text, source=sources),
    Printed: st.builds(Printed, text=text),
    LimitHit: st.builds(LimitHit, limit_kind=st.just("wall_s"), limit=number | st.just(math.inf), used=number),
    Answered: st.builds(Answered, text=text, from_agent=st.none() | text),
    RunEnded: st.builds(RunEnded, failure=st.none() | failures, usage=usages),
    CandidateDrawn: st.builds(
        CandidateDrawn,
        key=text,
        agent=text,
        number=st.integers(0, 9),
        chosen=st.booleans(),
        completion=completions,
        reward=number,
        terms=st.just([]),
    ),
    Valued: st.builds(
        Valued,
        key=text,
        agent=text,
        value=st.none() | number,
        q=st.none() | number,
        visits=st.integers(0, 99),
        siblings=st.integers(1, 9),
    ),
    TurnRewarded: st.builds(TurnRewarded, key=text, agent=text, reward=number, terms=st.just([])),
    Rewarded: st.builds(
        Rewarded,
        t=number,
        total=number,
        terms=st.lists(st.builds(RewardTerm, name=text, value=number, weight=number, reason=text), max_size=3),
    ),
}


def test_every_event_type_is_tested_here() -> None:
    assert set(EVENTS) == set(get_args(get_args(Event)[0]))


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_events_survive_the_round_trip_as_one_line_each(kind: type) -> None:
    @settings(max_examples=50, deadline=None)
    @given(EVENTS[kind])
    def check(event: Event) -> None:
        line = event_to_json(event)
        assert "\n" not in line
        json.loads(line, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
        assert Trace.from_lines([line + "\n"]).events == [event]

    check()


@given(st.lists(st.one_of(*EVENTS.values()), max_size=6))
@settings(max_examples=25, deadline=None)
def test_traces_survive_the_round_trip(events: list[Event]) -> None:
    written = "".join(Trace(events=events).lines())
    assert Trace.from_lines(StringIO(written)).events == events


def test_halves_of_surrogate_pairs_do_not_stop_a_trace() -> None:
    event = ToolCalled(path="p", agent="a\ud800", name="n", arguments={"x": "é\udfff"})
    read = Trace.from_lines([event_to_json(event) + "\n"]).events
    assert read == [ToolCalled(path="p", agent="a?", name="n", arguments={"x": "é?"})]


LINES = list(Trace(events=[Printed(text="1"), Printed(text="2"), Printed(text="3")]).lines())


@pytest.mark.parametrize("torn", ["{", '{"type": "pri', LINES[2][:-5]])
def test_a_torn_last_line_is_dropped(torn: str) -> None:
    assert [event.type for event in Trace.from_lines([*LINES[:2], torn]).events] == ["print", "print"]


def test_a_last_line_without_its_newline_counts_if_it_is_whole() -> None:
    assert len(Trace.from_lines([*LINES[:2], LINES[2].rstrip("\n")]).events) == 3


@pytest.mark.parametrize(
    "bad", ["{\n", '{"type": "shout"}\n', '{"type": "print"}\n', "[]\n", '{"type": "print", "text": 3}\n']
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_corrupt_line_is_an_error_that_names_it(bad: str, position: int) -> None:
    lines = [*LINES]
    lines[position] = bad
    with pytest.raises(ValueError, match=f"trace line {position + 1}: "):
        Trace.from_lines(lines)


def test_blank_lines_are_skipped_but_counted() -> None:
    assert len(Trace.from_lines([LINES[0], "\n", LINES[1]]).events) == 2
    with pytest.raises(ValueError, match="trace line 3: "):
        Trace.from_lines([LINES[0], "\n", "bad\n", LINES[1]])


def test_unknown_fields_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"trace line 1: Unexpected keyword.*colour"):
        Trace.from_lines(['{"type": "print", "text": "x", "colour": "red"}\n'])
    term = '{"name": "a", "value": 1, "weight": 1, "reason": "", "colour": "red"}'
    with pytest.raises(ValueError, match=r"trace line 1: Unexpected keyword.*colour"):
        Trace.from_lines([f'{{"type": "reward", "total": 1, "terms": [{term}]}}\n'])


def test_views() -> None:
    started = RunStarted(run_id="1", question="Q", engine="e")
    done = AgentTurn(
        key="A#0", path="A", agent="A", messages=[], completion=Completion(text="x", usage=Usage(prompt_tokens=3))
    )
    lost = AgentTurn(key="A#1", path="A", agent="A", messages=[], error="gone")
    ended = RunEnded()
    whole = Trace(events=[started, done, lost, Answered(text="1"), Answered(text="2"), ended])
    assert whole.started is started
    assert whole.ended is ended
    assert whole.answer == Answered(text="2")
    assert whole.agent_turns == [done, lost]
    assert whole.usage == Usage(prompt_tokens=3)
    empty = Trace()
    assert (empty.started, empty.ended, empty.answer, empty.usage) == (None, None, None, Usage())


def test_failures_are_recorded_with_their_fields() -> None:
    record = LimitExceeded("agent_calls", 3, 4).record()
    assert record.fields == {"limit_kind": "agent_calls", "limit": 3, "used": 4}
    line = event_to_json(RunEnded(failure=record))
    assert Trace.from_lines([line]).events == [RunEnded(failure=record)]


def test_the_trace_module_names_all_events_in_its_union() -> None:
    adapter: TypeAdapter[Event] = TypeAdapter(trace.Event)
    assert adapter.validate_python({"type": "print", "text": "x"}) == Printed(text="x")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1.7e308, -1e101])
def test_a_reward_that_credit_cannot_square_is_none(wrong: float) -> None:
    term = RewardTerm(name="coach", value=wrong, weight=1.0, reason="")
    for total, terms, told in ((wrong, [], "total"), (0.0, [term], "'coach'")):
        with pytest.raises(ValueError, match=re.escape(f"a reward whose {told} is {wrong} teaches nothing. Fix: ")):
            Rewarded(total=total, terms=terms)
