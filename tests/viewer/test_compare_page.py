"""Two runs side by side: the first difference is found, told in words and marked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inert import text_of
from made_runs import agent, made, ran, turn

from viewer.reading.traces import ReadRun
from viewer.run.compare_page import common, compare_page
from viewer.run.first_difference import Comparison, compared
from workflow import EnsembleNode, Workflow
from workflow.completion import ChatMessage, Completion, Sampling
from workflow.failures import ProgramFailed
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
    RunEnded,
    ToolCalled,
    ToolReturned,
    TurnRewarded,
    Valued,
)


def of(left: ReadRun, right: ReadRun) -> Comparison:
    return compared(left.trace, right.trace)


def told(left: ReadRun, right: ReadRun) -> str:
    found = of(left, right).first
    return found.in_words() if found is not None else ""


def test_runs_that_differ_in_time_tokens_and_seeds_are_the_same() -> None:
    left = made(turn("w/A", 0, 1, sampling=Sampling(seed=1)))
    right = made(turn("w/A", 2, 9, sampling=Sampling(seed=2)))
    assert told(left, right) == ""
    assert of(left, right).same == 2
    page = text_of(compare_page(left, right).body)
    assert page.startswith("What was asked, said, done and earned is the same in both")
    assert "2 events are the same in both" in page


def test_the_program_comes_first() -> None:
    left = made(turn("w/A"), program="a\nb\nc\nd")
    right = made(turn("w/A", text="other"), program="a\nb\nx\nd\ne")
    assert told(left, right) == "the program differs, first in line 3"
    page = compare_page(left, right, names=("one", "two"))
    shown = text_of(page.body)
    assert shown.startswith(
        "The program differs, first in line 3. one c two x Program 1 a 1 a 2 b 2 b 3 c 3 x 4 d 4 d 5 e"
    )
    assert "The reply in call w/A#0 of A differs." in shown, "and what differs in what was said"
    assert page.title == "one and two compared"


def test_the_question_comes_before_all() -> None:
    assert told(made(question="a"), made(question="b")) == "the question differs"


def with_turn(**more: Any) -> ReadRun:
    reply = more.pop("completion", None)
    event = turn("w/A", **more)
    if reply is not None:
        event.completion = reply
    return made(turn("w/First"), event, turn("w/Last"))


USER = ChatMessage(role="user", content="Q?")


@pytest.mark.parametrize(
    ("more", "expected", "texts"),
    [
        ({"text": "ok!"}, "the reply in call w/A#0 of A differs", ("ok", "ok!")),
        ({"text": None, "error": "gone"}, "the reply in call w/A#0 of A differs", ("ok", "gone")),
        (
            {"messages": [ChatMessage(role="user", content="Q!")]},
            "message 1 (user) of the prompt in call w/A#0 of A differs",
            ("Q?", "Q!"),
        ),
        (
            {"messages": [USER, ChatMessage(role="tool", content="7")]},
            "message 2 (tool) of the prompt in call w/A#0 of A differs",
            (None, "7"),
        ),
        ({"agent": "B"}, "the agent of call w/A#0 differs", ("A", "B")),
        ({"tools": [{"name": "x"}]}, "the tools in call w/A#0 of A differs", ("[]", "[{'name': 'x'}]")),
        ({"sampling": Sampling(temperature=0.5)}, "the sampling in call w/A#0 of A differs", None),
        (
            {"completion": Completion(text="ok", reasoning="hm")},
            "the reasoning in call w/A#0 of A differs",
            (None, "hm"),
        ),
        (
            {"completion": Completion(text="ok", finish_reason="length")},
            "the end of the reply in call w/A#0 of A differs",
            ("stop", "length"),
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_differs_in_a_call(more: dict[str, Any], expected: str, texts: tuple[Any, Any] | None) -> None:
    found = of(with_turn(), with_turn(**more))
    assert found.events is not None
    assert found.events.in_words() == expected
    assert (found.events.left, found.events.right, found.same) == (2, 2, 1)
    if texts is not None:
        assert (found.events.left_text, found.events.right_text) == texts
    other = of(with_turn(**more), with_turn()).events
    assert other is not None
    assert other.turned() == found.events


GIVEN: dict[str, Any] = {"path": "w/A", "agent": "A"}
STEP = EnvironmentStepped(**GIVEN, text="R", commit=True, legal=True, before="a", after="b", done=False, solved=False)
CODE = CodeRan(code="x", exit_status=0, stdout="1", stderr="")


@pytest.mark.parametrize(
    ("event", "change", "expected"),
    [
        (ToolCalled(**GIVEN, name="run"), {"name": "go"}, "the tool that A calls differs"),
        (ToolCalled(**GIVEN, name="run"), {"arguments": {"x": 1}}, "what A calls run with differs"),
        (ToolReturned(**GIVEN, name="run", content="1"), {"content": "2"}, "what run returns to A differs"),
        (ToolReturned(**GIVEN, name="run", content="1"), {"is_error": True}, "whether run fails differs"),
        (CODE, {"code": "y"}, "the code that is run differs"),
        (CODE, {"stdout": "2"}, "what the code prints differs"),
        (CODE, {"limit": "cpu_s"}, "the limit that ends the code differs"),
        (STEP, {"text": "L"}, "what A does in the game differs"),
        (STEP, {"after": "c"}, "the position in the game differs"),
        (Delivered(**GIVEN, text="a", source="excerpt"), {"text": "b"}, "what A hands on differs"),
        (Printed(text="a"), {"text": "b"}, "what the program prints differs"),
        (LimitHit(limit_kind="tokens", limit=1, used=2), {"limit": 2.0}, "the limit tokens differs"),
        (Answered(text="a"), {"from_agent": "A"}, "the agent that the answer comes from differs"),
        (Rewarded(total=1, terms=[]), {"total": 2.0}, "the reward differs"),
        (Valued(key="k", agent="A", value=0.5), {"value": 0.25}, "what call k was worth differs"),
        (Valued(key="k", agent="A", q=0.5), {"q": 0.25}, "Q of call k differs"),
        (TurnRewarded(key="k", agent="A", reward=1, terms=[]), {"reward": 2.0}, "what call k earned differs"),
        (
            CandidateDrawn(
                key="k", agent="A", number=1, chosen=True, completion=Completion(text=""), reward=1, terms=[]
            ),
            {"reward": 2.0},
            "what candidate 1 of k earned differs",
        ),
    ],
)
def test_what_differs_in_other_events(event: Event, change: dict[str, Any], expected: str) -> None:
    left, right = made(turn("w/A"), event), made(turn("w/A"), replace(event, **change))
    assert told(left, right) == expected
    assert text_of(compare_page(left, right).body).lower().startswith(expected.lower())


def test_how_runs_end_differs() -> None:
    left, right = made(turn("w/A")), made(turn("w/A"), ended=False)
    right.trace.events.append(RunEnded(failure=ProgramFailed("E", "no").record()))
    assert told(left, right) == "how the run ends differs"


def test_what_one_run_alone_does() -> None:
    left, right = made(turn("w/A"), turn("w/B")), made(turn("w/A"))
    assert told(left, right) == "left asks B (call w/B#0), right does not"
    assert told(right, left) == "right asks B (call w/B#0), left does not"
    shown = text_of(compare_page(left, right, names=("execution 0", "execution 1")).body)
    assert shown.startswith(
        "Execution 0 asks B (call w/B#0), execution 1 does not. execution 0 ok execution 1 (nothing)"
    )


def test_each_does_something_of_its_own() -> None:
    left, right = made(turn("w/A"), turn("w/B")), made(turn("w/A"), turn("w/C", text="c"))
    assert told(left, right) == "left asks B (call w/B#0), where right asks C (call w/C#0)"
    assert "1 event is the same in both" in text_of(compare_page(left, right).body)


def test_what_comes_later_is_no_cause() -> None:
    """The right run has run code before it was asked otherwise."""
    left = made(turn("w/A"), turn("w/B", messages=[USER]))
    right = made(turn("w/A"), CODE, turn("w/B", messages=[ChatMessage(role="user", content="1")]))
    assert told(left, right) == "right runs code, left does not"
    assert told(right, left) == "left runs code, right does not"
    late = made(turn("w/A"), turn("w/B", messages=[ChatMessage(role="user", content="1")]), CODE)
    assert told(left, late) == "message 1 (user) of the prompt in call w/B#0 of B differs"


def test_parts_that_ran_side_by_side_may_have_come_in_any_order() -> None:
    a, b = turn("e/A[0]", 0, 5), turn("e/B[1]", 0, 5)
    assert told(made(a, b), made(b, a)) == ""
    assert told(made(a, b, turn("e/J")), made(b, a, turn("e/J", text="x"))) == "the reply in call e/J#0 of J differs"


def test_two_executions_of_one_design() -> None:
    flow = Workflow("w").add_node(EnsembleNode("vote", [agent("A"), agent("B")], "consensus", agent("J")))
    runs = [ran(flow, lambda request, word=word: word if request.agent == "B" else "same") for word in ("x", "y")]
    assert told(*runs) == "the reply in call w/vote/B[1]#0 of B differs"
    page = compare_page(*runs, routes=("run/one", ""))
    shown = text_of(page.body)
    assert 'href="#/run/one"' in page.body
    assert "<mark>x</mark>" in page.body
    assert "The program is the same." not in shown, "there is none"
    # The same before it (A's turn and what it hands on) is folded.
    assert shown.index("the same in both") < shown.index("1. A") < shown.index("2. B")


def test_candidates_stand_at_their_turn() -> None:
    done = Completion(text="ok")
    drawn = CandidateDrawn(key="w/A#0", agent="A", number=0, chosen=True, completion=done, reward=1, terms=[])
    left, right = made(turn("w/A"), turn("w/B"), drawn), made(turn("w/A"), turn("w/B"), replace(drawn, reward=2.0))
    shown = text_of(compare_page(left, right).body)
    assert shown.startswith("What candidate 0 of w/A#0 earned differs.")
    assert shown.count("1. A") == 2
    assert "not on record" not in shown


def test_where_texts_part_is_marked() -> None:
    left, right = "a" * 5_000 + "left" + "b" * 9_000, "a" * 5_000 + "right"
    page = compare_page(made(turn("w/A", text=left)), made(turn("w/A", text=right))).body
    assert "<mark>left" in page
    assert "<mark>right</mark>" in page
    shown = text_of(page)
    assert "… 4,800 characters as there …" in shown
    assert "… 5,004 characters more …" in shown


@given(st.text("ab", max_size=20), st.text("ab", max_size=20))
def test_what_texts_have_in_common(left: str, right: str) -> None:
    same = common(left, right)
    assert left[:same] == right[:same]
    assert same == min(len(left), len(right)) or left[same] != right[same]


def test_facts_that_differ_are_marked() -> None:
    page = compare_page(made(Rewarded(total=1, terms=[])), made(Rewarded(total=0.5, terms=[]))).body
    rows = [row for row in page.split("<tr")[1:] if 'class="differs"' in row.split(">")[0]]
    assert ["reward" in row for row in rows] == [True]


def test_long_runs_are_compared_in_a_bounded_page() -> None:
    events = [turn("w/A", n, n + 1, text="y" * 3_000, number=n) for n in range(2_000)]
    other = [*events[:100], replace(events[100], completion=Completion(text="z")), *events[101:]]
    page = compare_page(made(*events), made(*other)).body
    assert len(page) < 3_000_000
    shown = text_of(page)
    assert "100 events are the same in both" in shown
    assert "Of these the first 60 rows are shown." in shown
    assert shown.count("1,841 more events are not shown.") == 2
