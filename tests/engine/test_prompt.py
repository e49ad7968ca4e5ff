"""Conversations in plain form: schemas in the system turn, tool results in user turns."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.prompt import plain_messages, text_with_calls, tool_instructions
from workflow.completion import ChatMessage
from workflow.tools import ToolRegistry

TOOL = {
    "type": "function",
    "function": {"name": "größe", "description": "{braces} stay", "parameters": {"type": "object", "properties": {}}},
}


def turn(role: Any, content: str) -> ChatMessage:
    return {"role": role, "content": content}


def test_without_tools_nothing_changes() -> None:
    messages = [turn("system", "s"), turn("user", "u"), turn("assistant", "a")]
    assert plain_messages(messages, []) == messages


def test_schemas_join_the_system_turn() -> None:
    plain = plain_messages([turn("system", "Be brief."), turn("user", "u")], [TOOL])
    assert [message["role"] for message in plain] == ["system", "user"]
    assert plain[0]["content"] == "Be brief.\n\n" + tool_instructions([TOOL])
    line = next(line for line in plain[0]["content"].splitlines() if "größe" in line)
    assert json.loads(line) == TOOL


def test_a_system_turn_is_added_where_there_is_none() -> None:
    plain = plain_messages([turn("user", "u")], [TOOL])
    assert plain == [turn("system", tool_instructions([TOOL])), turn("user", "u")]
    assert plain_messages([turn("system", ""), turn("user", "u")], [TOOL]) == plain


def test_results_in_a_row_share_a_user_turn() -> None:
    messages = [turn("user", "u"), turn("tool", "1"), turn("tool", "2"), turn("user", "v"), turn("tool", "3")]
    assert plain_messages(messages, []) == [
        turn("user", "u"),
        turn("user", "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"),
        turn("user", "v"),
        turn("user", "<tool_response>\n3\n</tool_response>"),
    ]


def test_the_conversation_that_was_given_is_left_alone() -> None:
    messages = [turn("system", "s"), turn("tool", "1"), turn("tool", "2")]
    before = json.dumps(messages)
    plain_messages(messages, [TOOL])
    assert json.dumps(messages) == before


def test_the_schemas_of_a_registry_fit() -> None:
    tools = ToolRegistry()
    tools.register("add", lambda a, b: a + b, "Adds.", {"type": "object", "properties": {"a": {}, "b": {}}})
    assert json.dumps(tools.get_tool_schemas()[0]) in tool_instructions(tools.get_tool_schemas())


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text()), max_size=8))
def test_every_word_stays_and_no_tool_turn_does(turns: list[tuple[str, str]]) -> None:
    plain = plain_messages([turn(role, content) for role, content in turns], [])
    assert "tool" not in [message["role"] for message in plain]
    text = "".join(message["content"] for message in plain)
    place = 0
    for _, content in turns:
        place = text.index(content, place) + len(content)


def test_native_calls_as_text() -> None:
    assert text_with_calls("thinking", [("f", '{"x": 1}')]) == (
        'thinking\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    )
    assert '"arguments": {}' in text_with_calls("", [("f", " ")])
    assert '{"x":' in text_with_calls("", [("f", '{"x": ')])
