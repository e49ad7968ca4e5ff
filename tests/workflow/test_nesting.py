"""JSON of agents that is nested deep, or pretends not to be: read as a parser does, and told to its agent."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import run_workflow
from engine.replay import ReplayEngine, ReplayEntry
from engine.session import Run
from workflow import AgentNode, ToolRegistry
from workflow.nesting import depth_of
from workflow.tools import DEEPEST_CALL, parse_tool_calls
from workflow.trace import ToolCalled, ToolReturned, Trace

LOOK = ("look", lambda x: "seen", "Look.", {"type": "object", "properties": {"x": {}}})
BRACKETS = st.text(alphabet='[]{}"\\,: \n', max_size=12)
VALUES = st.recursive(
    BRACKETS | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BRACKETS, inner, max_size=3),
    max_leaves=12,
)


def calling(reply: str) -> Run:
    """What becomes of an agent's call, after which it is done."""
    tools = ToolRegistry()
    tools.register(*LOOK)
    engine = ReplayEngine([ReplayEntry(agent="A", reply=said) for said in (reply, "done")])
    return asyncio.run(run_workflow(AgentNode("A", "Go.", tool_registry=tools), "q", engine))


def levels(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


@given(VALUES)
def test_it_is_the_depth_of_what_a_parser_makes_of_it(value: Any) -> None:
    for ascii_alone in (True, False):
        assert depth_of(json.dumps(value, ensure_ascii=ascii_alone)) == levels(value)


@given(BRACKETS, st.integers(1, 3000))
def test_no_text_before_hides_what_a_parser_meets(before: str, deep: int) -> None:
    text = f"[{json.dumps(before)}, {'[' * deep}"
    assert depth_of(text) == deep + 1
    assert depth_of(f'["{"]" * 3000}", {"[" * deep}') == deep + 1


@given(BRACKETS)
def test_texts_that_are_no_json_are_counted_as_far_as_a_parser_goes(text: str) -> None:
    assert 0 <= depth_of(text) <= len(text)


@pytest.mark.parametrize("deep", [DEEPEST_CALL - 2, DEEPEST_CALL - 1, 60, 250, 900, 985, 100_000])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_deep_call_is_told_to_the_agent_and_the_trace_can_be_kept(deep: int, quoted: bool) -> None:
    arguments = f'{{"x": {"[" * deep}{"]" * deep}}}'
    said = json.dumps(arguments) if quoted else arguments
    run = calling(f'<tool_call>{{"name": "look", "arguments": {said}}}</tool_call>')
    assert run.failure is None
    assert run.answer == "done"
    assert Trace.from_lines(run.trace.lines()).events == run.trace.events
    called = [event for event in run.trace.events if isinstance(event, ToolCalled)]
    [returned] = [event for event in run.trace.events if isinstance(event, ToolReturned)]
    brackets = deep + (1 if quoted else 2)
    assert (len(called), returned.is_error) == ((1, False) if brackets <= DEEPEST_CALL else (0, True))
    if brackets > DEEPEST_CALL and not quoted:
        assert "nested deeper than 32 levels" in returned.content


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\ud800": 1}', '[{"\\udfff": "\\ud800"}]'])
def test_a_call_with_halves_of_surrogate_pairs_can_be_kept(text: str) -> None:
    run = calling(f'<tool_call>{{"name": "look", "arguments": {{"x": {text}}}}}</tool_call>')
    assert run.answer == "done"
    assert Trace.from_lines(run.trace.lines()).events == run.trace.events


@given(st.lists(VALUES, max_size=3))
def test_a_call_is_read_whatever_its_strings_hold(values: list[Any]) -> None:
    [call] = parse_tool_calls(f"<tool_call>{json.dumps({'name': 'look', 'arguments': {'x': values}})}</tool_call>")
    assert call.arguments == {"x": values}
