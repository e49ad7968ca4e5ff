"""Whatever is in a Trace: nothing on the page of its run does anything, and there always is a page."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import get_args

import pytest
from any_events import any_event
from hypothesis import given, settings
from hypothesis import strategies as st
from inert import read_page, text_of
from made_runs import HOSTILE, agent, made, turn

from viewer.reading.traces import read_trace
from viewer.run.compare_page import compare_page
from viewer.run.first_difference import compared
from viewer.run.run_page import run_page
from workflow import EnsembleNode
from workflow.completion import ChatMessage, Completion, Sampling
from workflow.failures import Failure
from workflow.graph import describe
from workflow.trace import (
    AgentTurn,
    Answered,
    CandidateDrawn,
    CodeRan,
    Delivered,
    EnvironmentStepped,
    Event,
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
)


@pytest.mark.parametrize(
    "html",
    [
        *("<script>x</script>", "<img src=x>", "<iframe></iframe>", "<svg></svg>", "<p onclick=x>", "<form action=x>"),
        *("<a href='javascript:x'>", "<a href='http://x'>", "<p style='background:url(x)'>", "<!-- x -->", "<!x>"),
        *("\u202e", "<p title='\u202e'>", "<p id=a><p id=a>", "<button data-goto=nowhere>"),
    ],
)
def test_what_could_do_something_on_a_page_is_seen(html: str) -> None:
    assert read_page("<p>good</p>").wrong == []
    assert read_page(f"<p>good</p>{html}").wrong != []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_inert_wherever_they_stand(text: str) -> None:
    done = Completion(text=text, reasoning=text, model=text, token_ids=[1], logprobs=[-1.0])
    messages = [ChatMessage(role=role, content=text) for role in ("system", "user", "assistant", "tool")]
    terms = [RewardTerm(name=text, value=1, weight=1, reason=text)]
    tools = [{"type": text, text: [text]}]
    call = AgentTurn(key=text, path=text, agent=text, messages=messages, tools=tools, completion=done, continues=text,
                     sampling=Sampling(stop=(text,)), t=1, duration_s=1)  # fmt: skip
    events: list[Event] = [
        RunStarted(run_id=text, question=text, program=f"x = {text!r}\n# {text}\n", engine=text, jail=text),
        call,
        AgentTurn(key=text + "1", path=f"a/{text}[1]", agent=text, messages=messages, error=text),
        ToolCalled(path=text, agent=text, name=text, arguments={text: [text]}),
        ToolCalled(path="", agent=text, name=text, arguments={"code": text}),
        ToolReturned(path=text, agent=text, name=text, content=text, is_error=True),
        CodeRan(path=text, code=text, stdin=text, exit_status=1, stdout=text, stderr=text, limit=text),
        EnvironmentStepped(path=text, agent=text, text=text, commit=True, action=[text], legal=False, wrong=text,
                           before=text, after=text, done=True, solved=False, from_agent=text + "x"),
        Delivered(path=text, agent=text, text=text, source="delivery"),
        Printed(text=text),
        Answered(text=text, from_agent=text),
        CandidateDrawn(key=text, agent=text, number=0, chosen=True, completion=done, reward=1, terms=terms),
        CandidateDrawn(key="gone", agent=text, number=0, chosen=True, completion=done, reward=1, terms=terms),
        Valued(key=text, agent=text, value=0.5),
        Valued(key="gone", agent=text, q=0.5, visits=3, siblings=4),
        TurnRewarded(key=text, agent=text, reward=1, terms=terms),
        Rewarded(total=1, terms=terms),
        RunEnded(failure=Failure(kind="program_rejected", message=text, fields={"findings": [{"fix": text}, text]})),
    ]  # fmt: skip
    run = read_trace(text, Trace.model_construct(events=events))
    graph = describe(EnsembleNode("vote", [agent("A"), agent("B")]))
    graph.name = graph.kind = graph.detail = graph.children[0].name = graph.children[1].condition = text
    page = run_page(run, graph=graph, words=lambda ids: [text], base=text)
    text_of(page.body)
    assert not re.search("[\ud800-\udfff\u202e\x1b]", page.title)
    other = compare_page(
        run, made(turn(f"w/{text}", text=text + "?"), program=text), names=(text, "b"), routes=(text, "")
    )
    text_of(other.body)
    assert not re.search("[\ud800-\udfff\u202e\x1b]", other.title)
    for block in re.findall(r'<script type="application/json">(.*?)</script>', page.body, re.DOTALL):
        json.loads(block)


@settings(max_examples=150)
@given(st.lists(any_event, max_size=8))
def test_any_events_make_a_page(some: list[Event]) -> None:
    text_of(run_page(read_trace("any", Trace.model_construct(events=some)), base="run").body)


@settings(max_examples=60)
@given(st.lists(any_event, max_size=6), st.lists(any_event, max_size=6))
def test_any_two_runs_can_be_compared(some: list[Event], others: list[Event]) -> None:
    left, right = (read_trace("any", Trace.model_construct(events=events)) for events in (some, others))
    text_of(compare_page(left, right).body)
    assert compared(left.trace, left.trace).first is None


def test_every_kind_of_event_is_among_those_tried() -> None:
    union, _ = get_args(Event)
    kinds = {field.default for kind in get_args(union) for field in fields(kind) if field.name == "type"}
    assert kinds == {
        "run_started", "agent_call", "tool_call", "tool_result", "code_run", "environment_step", "delivery", "print",
        "limit", "answer", "run_ended", "candidate", "turn_rewarded", "valued", "reward",
    }, "a new kind of event needs a row of its own, here and in viewer.run_rows"  # fmt: skip
