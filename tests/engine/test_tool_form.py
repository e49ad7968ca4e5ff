"""Tool calls in the forms of other families, through templates written in their manner."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from growth import check_linear
from hypothesis import given
from hypothesis import strategies as st

from engine.chat import ChatFormat
from engine.tool_form import ToolForm, in_our_form, learned, native_messages, speaks_ours
from workflow.completion import ChatMessage, PreviousTurn
from workflow.tools import parse_tool_calls

ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
SCHEMAS = "{% if tools and loop.first %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
BARE = (
    "{% for m in messages %}<|im_start|>{{ 'ipython' if m.role == 'tool' else m.role }}\n" + SCHEMAS + "{% if "
    "m.tool_calls is defined %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% elif m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
) + ASK
"""As Llama 3 has it: one call, which is the whole reply."""
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" + SCHEMAS + "{% if m.tool_calls is defined %}{{ m.content }}"
    "[TOOL_CALLS] [{% for call in m.tool_calls %}{{ {'name': call.function.name, 'arguments': call.function.arguments, "
    "'id': call.id} | tojson }}{{ ', ' if not loop.last }}{% endfor %}]{% elif m.role == 'tool' %}{% if "
    "m.tool_call_id | length != 9 %}{{ raise_exception('bad id') }}{% endif %}[TOOL_RESULTS] {{ {'content': m.content, "
    "'call_id': m.tool_call_id} | tojson }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
) + ASK
"""As Mistral has it: a list of calls behind a mark, with ids."""
XML = BARE.replace('{"name": "', "<function=").replace('", "parameters": ', ">").replace("| tojson }}}", "| tojson }}")
PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + ASK
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}},
}
FORGETFUL = MARKED.replace("{% for m", "{% set last = messages[-1].role %}{% for m", 1).replace(
    "{% else %}{{ m.content }}", "{% elif m.role != 'system' or last == 'user' %}{{ m.content }}"
)
"""Drops the system turn once a tool has answered, as Mistral's older templates do."""
CALLS = {
    BARE: '{"name": "add", "parameters": {"a": 1}}',
    MARKED: '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=6), values, max_size=3)


@pytest.fixture(scope="module")
def tiny() -> Any:
    pytest.importorskip("transformers")
    from benchmarks import tiny_models

    return tiny_models


def chat_of(tiny: Any, template: str) -> ChatFormat:
    tokenizer = tiny.make_tokenizer(template)
    return ChatFormat(tokenizer, [tokenizer.eos_token_id])


def turn(role: Any, content: str) -> ChatMessage:
    return ChatMessage(role=role, content=content)


def converted(text: str, form: ToolForm) -> str:
    said, *bodies = text.split(form.opening) if form.opening else [text]
    return in_our_form(said, bodies, form, ["add"])


def ours(name: str, given: dict[str, Any], **more: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': given, **more}, ensure_ascii=False)}\n</tool_call>"


def test_the_form_is_learned_from_the_template(tiny: Any) -> None:
    forms = {
        BARE: ToolForm(""),
        MARKED: ToolForm("[TOOL_CALLS]"),
        XML: None,
        FORGETFUL: None,
        PLAIN: None,
        tiny.CHATML: None,
        None: None,
    }
    for template, form in forms.items():
        tokenizer = tiny.make_tokenizer(template)
        assert learned(tokenizer) == form
        assert speaks_ours(tokenizer) == (template == tiny.CHATML)


@pytest.mark.parametrize("template", [BARE, MARKED])
def test_an_agent_calls_a_tool_in_its_familys_form(tiny: Any, template: str) -> None:
    chat = chat_of(tiny, template)
    asked = [turn("system", "be brief"), turn("user", "question")]
    first = chat.prompt(asked, [TOOL])
    assert chat.tokenizer.decode(first) == (
        f"<|im_start|>system\n{json.dumps(TOOL)}\nbe brief<|im_end|>\n<|im_start|>user\nquestion<|im_end|>\n"
        "<|im_start|>assistant\n"
    ), "schemas are where the template puts them, and nothing is said of ours"
    tokens = [*chat._encode(CALLS[template]), next(iter(chat.ends))]
    reply = chat.read(first, tokens, (), [TOOL]).text
    assert reply == ours("add", {"a": 1})
    assert chat.read(first, tokens).text == CALLS[template], "no tools, no calls"
    previous = PreviousTurn(messages=2, prompt_token_ids=first, token_ids=tokens)
    second = chat.prompt([*asked, turn("assistant", reply), turn("tool", "2")], [TOOL], previous)
    assert second[: len(first) + len(tokens)] == first + tokens
    shown = {
        BARE: '\n<|im_start|>ipython\n"2"<|im_end|>\n<|im_start|>assistant\n',
        MARKED: '\n<|im_start|>tool\n[TOOL_RESULTS] {"content": "2", "call_id": "call00000"}<|im_end|>\n'
        "<|im_start|>assistant\n",
    }
    assert chat.tokenizer.decode(second[len(first) + len(tokens) :]) == shown[template]
    anew = chat.prompt([*asked, turn("assistant", reply), turn("tool", "2")], [TOOL])
    text = chat.tokenizer.decode(anew)
    assert CALLS[template].removesuffix("}]") in text, "without ids of what was generated, the template writes the call"
    assert text.endswith(shown[template])


def test_a_call_keeps_its_own_id(tiny: Any) -> None:
    chat = chat_of(tiny, MARKED)
    asked = [turn("user", "question")]
    first = chat.prompt(asked, [TOOL])
    said = (
        'so [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "abcdefghi"}, {"name": "add", "arguments": {}}]'
    )
    tokens = [*chat._encode(said), next(iter(chat.ends))]
    reply = chat.read(first, tokens, (), [TOOL]).text
    assert reply == "so\n" + ours("add", {"a": 1}, id="abcdefghi") + "\n" + ours("add", {})
    turns = [*asked, turn("assistant", reply), turn("tool", "2"), turn("tool", "0")]
    previous = PreviousTurn(messages=1, prompt_token_ids=first, token_ids=tokens)
    second = chat.prompt(turns, [TOOL], previous)
    assert second[: len(first) + len(tokens)] == first + tokens
    text = chat.tokenizer.decode(second[len(first) + len(tokens) :])
    assert '{"content": "2", "call_id": "abcdefghi"}' in text
    assert '{"content": "0", "call_id": "call00001"}' in text


def test_a_mark_that_is_a_special_token_is_seen_wherever_it_stands(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer(MARKED)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[TOOL_CALLS]"]})
    mark = tokenizer.convert_tokens_to_ids("[TOOL_CALLS]")
    assert learned(tokenizer) == ToolForm("[TOOL_CALLS]", mark)
    chat = ChatFormat(tokenizer, [tokenizer.eos_token_id])
    asked = [turn("system", "be brief"), turn("user", "question")]
    first = chat.prompt(asked, [TOOL])
    tokens = [*chat._encode('I add. [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]'), tokenizer.eos_token_id]
    assert mark in tokens
    reply = chat.read(first, tokens, (), [TOOL]).text
    assert reply == "I add.\n" + ours("add", {"a": 1})
    assert chat.read(first, tokens, ("add",), [TOOL]).text == "I "
    previous = PreviousTurn(messages=2, prompt_token_ids=first, token_ids=tokens)
    second = chat.prompt([*asked, turn("assistant", reply), turn("tool", "2")], [TOOL], previous)
    assert second[: len(first) + len(tokens)] == first + tokens


def test_a_conversation_keeps_to_one_form(tiny: Any) -> None:
    """A turn that the template would refuse was generated, so it is extended; once more would mix forms."""
    chat, end = chat_of(tiny, BARE), tiny.make_tokenizer(BARE).eos_token_id
    turns = [turn("user", "q")]
    first = chat.prompt(turns, [TOOL])
    two = [*chat._encode(f"{CALLS[BARE]}; {CALLS[BARE]}"), end]
    turns += [turn("assistant", chat.read(first, two, (), [TOOL]).text), turn("tool", "1"), turn("tool", "2")]
    second = chat.prompt(turns, [TOOL], PreviousTurn(messages=1, prompt_token_ids=first, token_ids=two))
    assert second[: len(first) + len(two)] == first + two
    one = [*chat._encode(CALLS[BARE]), end]
    previous = PreviousTurn(messages=4, prompt_token_ids=second, token_ids=one)
    third = chat.prompt([*turns, turn("assistant", ours("add", {"a": 1})), turn("tool", "3")], [TOOL], previous)
    text = chat.tokenizer.decode(third)
    assert text.startswith("<|im_start|>system\n# Tools")
    assert "ipython" not in text


def test_a_tool_may_be_called_without_arguments() -> None:
    for form, text in ((ToolForm(""), '{"name": "add"}'), (ToolForm("[C]"), '[C] [{"name": "add"}]')):
        assert converted(text, form) == ours("add", {})


def test_halves_of_surrogate_pairs_reach_no_tokenizer(tiny: Any) -> None:
    half = '{"name": "add", "parameters": {"a": "\\ud83d"}}'
    assert converted(half, ToolForm("")) == ours("add", {"a": "?"})
    past = [turn("user", "q"), turn("assistant", f"<tool_call>{half}</tool_call>"), turn("tool", "1")]
    assert chat_of(tiny, BARE).prompt(past, [TOOL])


def test_what_a_template_refuses_is_said_in_plain_text(tiny: Any) -> None:
    chat = chat_of(tiny, BARE)
    two = ours("add", {"a": 1}) + ours("add", {"a": 2})
    text = chat.tokenizer.decode(chat.prompt([turn("user", "q"), turn("assistant", two), turn("tool", "1")], [TOOL]))
    assert text.startswith("<|im_start|>system\n# Tools")
    assert "<tool_response>\n1\n</tool_response>" in text


@given(arguments, st.text(string.ascii_letters, min_size=1, max_size=8))
def test_calls_come_back_as_they_were_made(given_arguments: dict[str, Any], name: str) -> None:
    [call] = native_messages([turn("assistant", ours(name, given_arguments))])[0]["tool_calls"]
    assert call["function"] == {"name": name, "arguments": given_arguments}
    native = json.dumps({"name": name, "parameters": given_arguments}, indent=1, ensure_ascii=False)
    for form, text in ((ToolForm(""), native), (ToolForm("[C]"), f"[C] [{native}, {native}]")):
        calls = parse_tool_calls(converted(text, form))
        assert [(each.name, each.arguments) for each in calls] == [(name, given_arguments)] * len(calls)
        assert len(calls) == 1 + (form.opening != "")


@pytest.mark.parametrize(
    "text",
    ["", "plain", '{"answer": 4}', '{"name": "x"}', 'the call {"name": "x", "parameters": {}}', '{"name": "x", "param'],
)
def test_a_reply_that_is_no_call_stays_as_it_is(text: str) -> None:
    assert converted(text, ToolForm("")) == converted(text, ToolForm("[C]")) == text


@pytest.mark.parametrize("body", ["", "{oops", '[{"arguments": {}}]', '{"name": "x", "arguments": 3}'])
def test_a_call_that_went_wrong_reaches_the_agent_as_such(body: str) -> None:
    [call] = parse_tool_calls(converted(f"I call [C] {body}", ToolForm("[C]")))
    assert call.problem


def test_nesting_of_any_depth_is_read_or_left() -> None:
    for depth in [*range(1, 2000), 100_000]:
        text = '{"name": "x", "parameters": {"a": ' + "[" * depth + "]" * depth + "}}"
        assert converted(text, ToolForm("")).startswith("<tool_call>" if depth < 100 else ("<tool_call>", text))


@pytest.mark.thorough
def test_hostile_text_costs_what_its_length_costs() -> None:
    call = '<tool_call>{"name": "x", "arguments": {}}</tool_call>'
    texts = {
        "openings": lambda n: call + "<tool_call>" * n,
        "calls": lambda n: call * n,
        "objects": lambda n: '{"name": "x", "parameters": {}}' * n,
        "braces": lambda n: "{" * n,
        "marks": lambda n: "[C] {" * n,
    }
    for name, text in texts.items():

        def work(size: int, text: Any = text) -> Any:
            hostile = text(size)
            return lambda: (
                native_messages([turn("assistant", hostile), turn("tool", "1")]),
                converted(hostile, ToolForm("")),
                converted(hostile, ToolForm("[C]")),
            )

        check_linear(name, work, 3000)


@given(st.text() | st.text('{}[]"namerguts:, <>/_col', max_size=60))
def test_no_text_raises(text: str) -> None:
    for form in (ToolForm(""), ToolForm("[")):
        converted(text, form)
    native_messages([turn("tool", text), turn("assistant", text), turn("tool", text)])
