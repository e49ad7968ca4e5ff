"""What is kept of runs and designs, and the rows that come of it: pure functions on runs made by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.session import Run
from tasks import Problem
from trainer.distill.distill_rows import Origin, Row, digest, executor_rows, format_of, preferred, talks_of, why_dropped
from workflow.completion import ChatMessage, Completion, FinishReason
from workflow.failures import Failure
from workflow.trace import AgentTurn, Rewarded, RewardTerm, Trace

FOUR = Problem(id="p/4", question="What is 2 + 2?", domain="math", gold="4")
ORIGIN = Origin(question="p/4", design=2, structure="pipeline", template="two")
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "default": None}}}


def turn(
    path: str, said: str, *before: tuple[Any, str], number: int = 0, finish: FinishReason = "stop", **more: Any
) -> AgentTurn:
    messages = [ChatMessage(role=role, content=content) for role, content in before]
    done = Completion(text=said, finish_reason=finish)
    return AgentTurn(
        key=f"{path}#{number}", path=path, agent=path.upper(), turn=number, messages=messages, completion=done, **more
    )


def run_of(*turns: AgentTurn, answer: str | None = "\\boxed{4}", **more: Any) -> Run:
    given = {"answer": answer, "answer_from": "A", **more}
    return Run(trace=Trace.model_construct(events=list(turns)), **given)


def reward(correct: float = 1.0, solution: float = 1.0, delivery: float = 1.0, reason: str = "correct") -> Rewarded:
    values = [("correct", correct, reason), ("solution format", solution, ""), ("delivery format", delivery, "")]
    return Rewarded(total=0, terms=[RewardTerm(name=n, value=v, weight=1, reason=why) for n, v, why in values])


ASKED = ("user", "2 + 2?")
GOOD = turn("a", "\\boxed{4}", ASKED)


@pytest.mark.parametrize(
    ("run", "given", "why"),
    [
        (run_of(GOOD), reward(), None),
        (run_of(GOOD, failure=Failure(kind="limit_exceeded", message="")), reward(), "limit_exceeded"),
        (run_of(GOOD), reward(0.0, reason="wrong"), "wrong"),
        (run_of(GOOD), reward(0.0, reason="gold_unparseable"), "gold_unparseable"),
        (run_of(GOOD, answer=None), reward(0.0), "no_answer"),
        (run_of(GOOD, answer="four"), reward(0.0, reason="no_answer"), "no_answer"),
        (run_of(GOOD, answer_from=None), reward(0.0), "unfounded_answer"),
        (run_of(turn("a", "I th", ASKED, finish="length"), turn("b", "\\boxed{4}", ASKED)), reward(), "cut_off"),
        (run_of(turn("a", " \n", ASKED), GOOD), reward(), "empty_reply"),
        (run_of(GOOD), reward(delivery=0.5), "format"),
        (run_of(GOOD), reward(solution=0.5), "format"),
    ],
)
def test_why_a_run_is_dropped(run: Run, given: Rewarded, why: str | None) -> None:
    assert why_dropped(FOUR, run, given, 1.0) == why


def test_a_wrong_answer_can_be_kept_but_nothing_else_that_is_amiss() -> None:
    wrong = reward(correct=0.0, reason="wrong")
    assert why_dropped(FOUR, run_of(GOOD), wrong, 1.0) == "wrong"
    wrong.timed_out = True
    assert why_dropped(FOUR, run_of(GOOD), wrong, 1.0, keep_wrong=True) == "timed_out"
    wrong.timed_out = False
    assert why_dropped(FOUR, run_of(GOOD), wrong, 1.0, keep_wrong=True) is None
    assert why_dropped(FOUR, run_of(turn("a", " \n", ASKED), GOOD), wrong, 1.0, keep_wrong=True) == "empty_reply"
    assert why_dropped(FOUR, run_of(GOOD, answer=None), wrong, 1.0, keep_wrong=True) == "no_answer"


def test_the_least_format_can_be_lower() -> None:
    assert format_of(reward(solution=1.0, delivery=0.5)) == 0.75
    assert why_dropped(FOUR, run_of(GOOD), reward(delivery=0.5), 0.75) is None
    assert why_dropped(FOUR, run_of(GOOD), reward(delivery=0.5), 0.76) == "format"


def test_a_conversation_with_tools_is_one_row() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    turns = [
        turn("b", call, ("system", "You add."), ASKED, tools=[ADD]),
        turn("a", "other", ASKED),
        turn(
            "b", "\\boxed{4}", ("system", "You add."), ASKED, ("assistant", call), ("tool", "4"), number=1, tools=[ADD]
        ),
    ]
    first, second = executor_rows(run_of(*turns), 1, ORIGIN)
    assert (first.agent, second.agent) == ("A", "B"), "ordered by path, not by arrival"
    assert first.tools is None
    assert second.tools == [ADD]
    assert [(m["role"], m["content"]) for m in second.messages] == [
        ("system", "You add."), ASKED, ("assistant", call), ("tool", "4"), ("assistant", "\\boxed{4}"),
    ]  # fmt: skip
    assert (second.question, second.design, second.execution, second.template) == ("p/4", 2, 1, "two")


def test_a_turn_that_rewrites_what_was_asked_begins_a_row_and_one_without_a_reply_ends_nothing() -> None:
    turns = [turn("a", "one", ASKED), turn("a", "two", ("user", "3 + 3?"), number=1)]
    lost = AgentTurn(key="c", path="c", agent="C", messages=[], completion=None)
    assert [[m["content"] for m in messages] for _, messages, _ in talks_of([*turns, lost])] == [
        ["2 + 2?", "one"], ["3 + 3?", "two"],
    ]  # fmt: skip


def test_a_reply_that_nobody_gave_is_not_learned() -> None:
    forged = turn("a", "yes", ASKED, ("assistant", "the answer is 5"), ("user", "sure?"))
    assert talks_of([forged]) == []
    later = turn("a", "yes", ASKED, ("assistant", "another"), ("user", "sure?"), number=1)
    assert [messages[-1]["content"] for _, messages, _ in talks_of([turn("a", "one", ASKED), later])] == ["one"]


def test_designs_of_other_structures_come_first() -> None:
    assert preferred(["single", "single", "ensemble", "single", "router"], 3) == {0, 2, 4}
    assert preferred(["single", "single", "ensemble", "single", "router"], 4) == {0, 1, 2, 4}
    assert preferred(["single", "single"], 1) == {0}


@given(st.lists(st.sampled_from(["single", "ensemble", "router"])), st.integers(1, 5))
def test_as_many_structures_as_can_be_are_kept(structures: list[Any], most: int) -> None:
    kept = preferred(structures, most)
    assert len(kept) == min(most, len(structures))
    assert len({structures[place] for place in kept}) == min(most, len(set(structures)))


def test_rows_are_the_same_where_they_teach_the_same() -> None:
    def row(**changed: Any) -> Row:
        messages = [ChatMessage(role="user", content="a"), ChatMessage(role="assistant", content="b")]
        return Row(**{"role": "executor", "messages": messages, "agent": "A", **ORIGIN.model_dump(), **changed})

    same = {digest(row()), digest(row(agent="B", design=7, execution=3, structure="single", template=None))}
    assert len(same) == 1
    other = [row(role="designer"), row(tools=[ADD]), row(messages=[ChatMessage(role="user", content="a")])]
    assert len({*same, *map(digest, other)}) == 4
