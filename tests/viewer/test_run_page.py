"""The page of one run: it says what the Trace says, does nothing, and stays readable whatever is in the Trace."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from inert import read_page, text_of
from made_runs import agent, made, ran, turn

from engine.authorship import Authorship
from viewer.reading.run_outcome import FAILURES, LIMITS, answered_in, outcome_of
from viewer.reading.traces import ReadRun, read_trace
from viewer.run.new_messages import prompt_of
from viewer.run.run_page import MOST_ROWS, run_page
from viewer.run.run_site import RunSite
from viewer.sites import NoSuchPage
from workflow import AgentNode, ToolRegistry, Workflow
from workflow.completion import ChatMessage, Completion, OwnSampling, Sampling, Usage
from workflow.failures import Failure, FailureKind, Finding, LimitExceeded, LimitKind, ProgramFailed, ProgramRejected
from workflow.graph import describe
from workflow.limits import Limits
from workflow.trace import (
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
    Trace,
    TurnRewarded,
    event_to_json,
)


def shown(run: ReadRun, **options: Any) -> str:
    return text_of(run_page(run, **options).body)


def ended(failure: Failure | None, *events: Event) -> ReadRun:
    start = RunStarted(run_id="r", question="Q?", program="a\nb\nc\n", engine="made")
    return read_trace("r", Trace.model_construct(events=[start, *events, RunEnded(failure=failure)]))


# How it ended


def test_an_answer_is_told_with_the_reply_that_it_answered_in() -> None:
    flow = Workflow("w").add_nodes([agent("A"), agent("B")])
    run = ran(flow, lambda request: rf"I think \boxed{{{request.agent}7}}")
    page = run_page(run, graph=describe(flow))
    told = text_of(page.body)
    assert told.startswith("The run answered B7 from B, in reply 2 the whole answer I think")
    assert '<button type="button" class="to" data-goto="e3">from B, in reply 2</button>' in page.body
    assert page.title == "run.jsonl: The run answered"
    assert "agent calls 2" in told
    assert "6 in prompts, 4 in replies" in told


def test_an_answer_that_no_agent_gave_is_said_to_be_the_programs() -> None:
    told = shown(made(turn("w/A", text=r"\boxed{1}"), Answered(text="2")))
    assert "from no agent: it stands in no agent's own words, the program made it" in told


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (r"so \boxed{5}", 1),
        ("first words", 1),
        (r"other words \boxed{6}", 2),
        ("<solution>\nx = 1\n</solution>", 2),
        ("not there", None),
    ],
)
def test_the_reply_of_an_answer_is_the_latest_that_holds_it(answer: str, found: int | None) -> None:
    first = turn("w/A", text=r"first words \boxed{5}")
    second = turn("w/A", text="```python\nx = 1\n```\n" + r"\boxed{6}", number=1)
    other = turn("w/B", text=answer)
    answered = Answered(text=answer, from_agent="A")
    run = made(first, second, other, answered)
    assert answered_in(run.trace, answered) == found
    assert ("in none of whose replies" in shown(run)) == (found is None)


@pytest.mark.parametrize(
    ("replies", "answer", "number"),
    [
        ([r"\boxed{5}", r"I doubt \boxed{5}. It is \boxed{7}", r"No. \boxed{9}"], r"\boxed{5}", 1),
        ([r"\boxed{5}", r"\boxed{7}", r" \boxed{5} ", r"Not \boxed{5}, \boxed{9}"], r"\boxed{5}", 3),
        ([r"So \boxed{5}", r"I doubt \boxed{5}. It is \boxed{7}"], r"The answer: \boxed{5}", 1),
        (["It is 5", "It is 15, or 5.2"], "5", 1),
        (["5", "rather 5 than 6", "6"], "5", 1),
        ([r"first \boxed{5} then \boxed{7}", r"\boxed{9}"], r"\boxed{5}", 1),
        (["echo\none\ntwo", "three"], "one\ntwo", 1),
        (["```\nx = 1\n```", "I doubt x = 1\n```\nx = 2\n```"], "```python\nx = 1\n```", 1),
    ],
)
def test_the_reply_that_says_just_this_or_whose_answer_it_is_goes_first(
    replies: list[str], answer: str, number: int
) -> None:
    turns = [turn("w/A", text=text, number=place) for place, text in enumerate(replies)]
    assert f"from A, in reply {number}" in shown(made(*turns, Answered(text=answer, from_agent="A")))


def test_an_agent_that_is_credited_has_a_reply() -> None:
    """What is credited to an agent stands in one of its replies."""
    texts = [r"\boxed{5}", r"so \boxed{7} or \boxed{5}", "x = 1", "```python\nx = 1\n```", "it is 5", "a\nb\nc"]
    for replies in itertools.permutations(texts, 2):
        for answer in (*texts, r"made of \boxed{5}", "5", "a\nb", "<solution>\nx = 1\n</solution>"):
            heard = Authorship()
            for reply in replies:
                heard.heard("A", [], reply)
            if heard.of(answer) is not None:
                turns = [turn("w/A", text=text, number=place) for place, text in enumerate(replies)]
                answered = Answered(text=answer, from_agent="A")
                assert answered_in(made(*turns, answered).trace, answered) is not None, (replies, answer)


def test_a_failure_is_told_in_words_with_its_line() -> None:
    run = ended(ProgramFailed("ValueError", "no such thing", 2).record())
    told = shown(run)
    assert told.startswith("The program failed ValueError: no such thing (line 2) line 2 of the program")
    assert "1a 2b failed here 3c" in told
    assert read_page(run_page(run).body).goes >= {"line-2"}


def test_a_limit_is_told_in_words() -> None:
    hit = LimitHit(limit_kind="agent_calls", limit=4, used=5)
    told = shown(ended(LimitExceeded("agent_calls", 4, 5).record(), hit))
    assert told.startswith("The run hit a limit")
    assert "Limit hit: agent calls: 5 used, 4 allowed." in told
    assert set(LIMITS) == set(get_args(LimitKind))
    assert set(FAILURES) == set(get_args(FailureKind))


def test_what_the_check_found_is_told() -> None:
    findings = [Finding(line=3, code="x", message="os is not allowed", fix="leave it out")]
    told = shown(ended(ProgramRejected(findings).record()))
    assert "The program was refused before it ran" in told
    assert "line 3: os is not allowed Fix: leave it out" in told


@pytest.mark.parametrize("findings", [None, 3, "text", [3, None, {}], [{"line": "<b>", "message": ["x"]}]])
def test_a_failure_with_fields_of_any_kind_is_shown(findings: Any) -> None:
    failure = Failure(kind="program_rejected", message="m", fields={"findings": findings, "line": findings})
    assert "m" in shown(ended(failure))


def test_a_run_that_goes_on_says_so() -> None:
    page = run_page(made(turn("w/A"), ended=False)).body
    told = text_of(page)
    assert told.startswith("The run has no end on record: it goes on, or was killed")
    assert "there is no end: the run goes on, or was killed" in told
    assert '"lines":["no end yet"]' in page


def test_a_file_with_nothing_in_it_is_a_page() -> None:
    told = shown(read_trace("empty.jsonl", Trace()))
    assert "there are no events" in told
    assert "Nothing yet." in told


def test_a_reward_is_told_term_by_term() -> None:
    terms = [
        RewardTerm(name="correct", value=1.0, weight=1.0, reason="as the gold answer"),
        RewardTerm(name="solution format", value=0.5, weight=0.2, reason="half a box"),
    ]
    told = shown(made(Rewarded(total=1.1, terms=terms)))
    assert "Reward 1.1 term value weight adds why correct 1 1 1 as the gold answer" in told
    assert "solution format 0.5 0.2 0.1 half a box" in told


# What was said


def test_only_what_is_new_in_a_prompt_is_shown_and_the_whole_folded() -> None:
    system, user = ChatMessage(role="system", content="You are A."), ChatMessage(role="user", content="Question?")
    said, tool = ChatMessage(role="assistant", content="call"), ChatMessage(role="tool", content="seven")
    first = turn("w/A", text="call", messages=[system, user])
    second = turn("w/A", number=1, turn=1, messages=[system, user, said, tool])
    third = turn("w/A", number=2, messages=[system, ChatMessage(role="user", content="Another?")])
    assert prompt_of(first, None).new == [system, user]
    assert (prompt_of(second, first, 1).new, prompt_of(second, first, 1).before) == ([tool], 3)
    assert (prompt_of(third, second, 2).new, prompt_of(third, second, 2).earlier) == (third.messages[1:], 2)
    told = shown(made(first, second, third, question=""))
    assert "3 messages as at no. 1 tool seven the whole prompt, 4 messages, 28 characters" in told
    assert "1 message as at no. 2 user Another?" in told
    assert told.count("You are A.") == 3, "once, and in both whole prompts"


def test_what_agents_do_is_told_in_the_order_of_time() -> None:
    tools = ToolRegistry()
    tools.register("look", lambda place: f"at {place}", "Look.", {"type": "object", "properties": {"place": {}}})
    replies = iter(
        ['<tool_call>{"name": "look", "arguments": {"place": "home"}}</tool_call>', r"<delivery>\boxed{3}</delivery>"]
    )
    run = ran(Workflow("w").add_node(AgentNode("A", "s", tools, 3)), lambda request: next(replies))
    told = shown(run)
    parts = ["1. A at", "A calls look at", '{"place": "home"} look returns', "to A at", "at home 2. A at"]
    parts += ["A hands on at", "the run ended at"]
    places = [told.index(part) for part in parts]
    assert places == sorted(places)
    assert "how it was asked, with 1 tool" in told
    assert "turn 2 of this activation" in told


def test_code_its_streams_and_its_limit_are_told() -> None:
    run = made(
        CodeRan(t=1, code="1/0", stdin="in", exit_status=1, stdout="out", stderr="ZeroDivision", duration_s=0.5),
        CodeRan(code="while 1: pass", exit_status=-9, stdout="", stderr="", limit="cpu_s"),
    )
    told = shown(run)
    assert "program: code ran at 0.50 s · exit status 1 · took 0.50 s code 1/0 stdin in stdout out stderr Zero" in told
    assert "stopped by its limit cpu_s" in told


def test_what_is_printed_in_a_row_is_one_row() -> None:
    run = made(Printed(text="a"), Printed(text="b\n"), turn("w/A"), Printed(text="c"))
    told = shown(run)
    assert "printed at 0.00 s · 2 times ab" in told
    assert told.count("printed") == 2


def test_actions_in_a_game_are_told() -> None:
    given = {"agent": "P", "before": "x", "after": "y"}
    run = made(
        EnvironmentStepped(text="go R", commit=False, action=["R"], legal=True, done=False, solved=False, **given),
        EnvironmentStepped(
            text="??", commit=True, legal=False, wrong="unreadable", done=True, solved=False, from_agent="P", **given
        ),
    )
    told = shown(run)
    assert 'P proposes: ["R"] at 0.00 s · said by no agent · legal said go R' in told
    assert "P acts: no action at 0.00 s · not legal · over, not solved said ?? wrong unreadable" in told


def test_candidates_and_what_turns_earned_stand_at_their_turns() -> None:
    terms = [RewardTerm(name="team", value=1.0, weight=0.5, reason="closer")]
    drawn = [
        CandidateDrawn(key="w/A#0", agent="A", number=number, chosen=number == 1, completion=Completion(text=text),
                       reward=reward, terms=terms)
        for number, text, reward in ((0, "left", 0.25), (1, "right", 1.5))
    ]  # fmt: skip
    told = shown(
        made(
            turn("w/A", text="right"), turn("w/B"), *drawn, TurnRewarded(key="w/B#0", agent="B", reward=2, terms=terms)
        )
    )
    assert "2 candidates: 0.25, 1.5 (chosen) no. 0: 0.25 left term value" in told
    assert "no. 1, chosen: 1.5 right" in told
    assert told.index("no. 1, chosen") < told.index("2. B") < told.index("earned 2")
    assert "closer" in told
    stray = shown(made(drawn[0]))
    assert "A: a reward for a turn that is not on record" in stray


def test_what_an_agent_asked_for_and_did_not_get_is_told() -> None:
    own: OwnSampling = {"temperature": 0.2, "max_tokens": 10}
    event = turn("w/A", overruled=own, sampling=Sampling(temperature=1.0, max_tokens=64, seed=5))
    told = shown(made(event))
    assert "asked for temperature 0.2, got 1; max_tokens 10, got 64: the sampling of the run held." in told
    assert "sampling temperature 1, top_p 1, at most 64 tokens, seed 5" in told


def test_a_call_without_a_reply_says_why() -> None:
    told = shown(made(turn("w/A", text=None, error="the run ended first")))
    assert "no reply the run ended first" in told
    assert "1, 1 without a reply" in told


def test_cost_cache_and_reasons_are_told() -> None:
    done = Completion(
        text="x", reasoning="because", finish_reason="length", cached=True, model="m", weights_version=3,
        usage=Usage(prompt_tokens=10, completion_tokens=2, prefix_tokens=4, cost_usd=0.25),
    )  # fmt: skip
    event = turn("w/A")
    event.completion = done
    told = shown(made(event))
    assert "10 + 2 tokens · $0.2500 · finished by length · from the cache" in told
    assert "reasoning, 7 characters because" in told
    assert "10 in prompts (4 of a known prefix), 2 in replies" in told
    assert "1 of 1 replies, 12 tokens not paid again" in told
    assert "weights version 3" in told


# Long runs


def test_a_long_run_has_several_pages() -> None:
    run = made(*(turn(f"w/A{number % 3}", number, number + 1, number=number) for number in range(1_200)))
    first, last = run_page(run, base="run"), run_page(run, base="run", first=1_000)
    assert 'href="#/run?from=500"' in first.body
    assert "<b>1,001–1,201</b>" in last.body
    assert 'id="e1"' in first.body
    assert 'id="e1200"' in last.body
    assert 'id="e1200"' not in first.body
    alone = shown(run)
    assert "701 of 1,201 events are not on this page." in alone
    for page in (first, last):
        text_of(page.body)


@pytest.mark.parametrize("first", [-5, 10**9, 499, 501])
def test_any_beginning_is_that_of_a_page(first: int) -> None:
    run = made(*(Printed(text="x") if number % 2 else Delivered(path="p", agent="A", text="t", source="excerpt")
                 for number in range(1_100)))  # fmt: skip
    assert run_page(run, base="run", first=first).body.count("<article") in (MOST_ROWS, 101)


def test_replies_of_a_megabyte_are_cut_and_the_cut_is_counted() -> None:
    events = [turn("w/A", number, number + 1, text="<&'\">" * 200_000, number=number) for number in range(30)]
    body = run_page(made(*events)).body
    assert len(body) < 6_000_000
    told = text_of(body)
    assert "further characters are in the file alone." in told
    cut = re.search(r"([\d,]+) characters of long texts are in the file alone", told)
    assert cut
    assert int(cut[1].replace(",", "")) > 20_000_000


def test_prompts_that_grow_do_not_make_the_page_grow_with_their_square() -> None:
    messages: list[ChatMessage] = []
    events = []
    for number in range(300):
        messages = [*messages, ChatMessage(role="user", content=f"{number} " * 500)]
        events.append(turn("w/A", number, number + 1, text="ok", number=number, messages=messages))
        messages = [*messages, ChatMessage(role="assistant", content="ok")]
    body = run_page(made(*events)).body
    assert len(body) < 6_000_000
    assert "is in the file alone." in text_of(body)


def test_very_many_agents_are_counted() -> None:
    told = shown(made(*(turn(f"e/A{number}[{number}]") for number in range(200))))
    assert "140 more agents are not listed." in told


# The site of one file


def test_a_file_that_grows_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = made(turn("w/A"), turn("w/B")).trace.events
    lines = [event_to_json(event) + "\n" for event in whole]
    path.write_text("".join(lines[:2]) + lines[2][:20])
    site = RunSite(path)
    before = site.version("run")
    assert "cut short" in text_of(site.page("run").body)
    assert site.version("run") == before
    path.write_text("".join(lines))
    assert site.version("run") != before
    told = text_of(site.page("run").body)
    assert "2. B" in told
    assert "cut short" not in told


def test_routes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    long = made(*(turn("w/A", number, number + 1, number=number) for number in range(1_100))).trace.events
    path.write_text("".join(event_to_json(event) + "\n" for event in long))
    site = RunSite(path)
    assert list(site.routes()) == ["run", "run?from=500", "run?from=1000"]
    assert 'id="e1100"' in site.page("run?from=1000").body
    for wrong in ("", "runs", "run/x", "run?from=x", "run?from=-1", "run?from=²", "run?from=99999999999999"):
        with pytest.raises(NoSuchPage):
            site.page(wrong)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        site.page("run")
    with pytest.raises(FileNotFoundError):
        site.version("run")


def test_an_ended_run_that_answered_nothing() -> None:
    assert outcome_of(made(turn("w/A"))).state == "silent"
    assert ran(Workflow("w").add_node(agent("A")), limits=Limits(agent_calls=0)).trace.ended is not None
