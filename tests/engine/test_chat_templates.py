"""Chat templates that mean harm, and that what is rendered is what transformers renders. Skipped without it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import chat_templates
from engine.chat_templates import TemplateFailed, render
from engine.vllm import ServedEngine
from workflow.completion import ChatMessage, CompletionRequest
from workflow.failures import EngineFailed

TURNS = [ChatMessage(role="user", content="hi")]
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def tiny() -> Any:
    pytest.importorskip("transformers")
    from benchmarks import tiny_models

    return tiny_models


def told(tiny: Any, template: str, turns: Any = TURNS) -> str:
    with pytest.raises(TemplateFailed) as caught:
        render(tiny.make_tokenizer(template), turns)
    assert len(str(caught.value)) < 2100
    return str(caught.value)


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ (''|attr('__class__')).mro() }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ cycler.__init__.__globals__.os.getcwd() }}",
    "{{ raise_exception.__globals__.jinja2 }}",
    "{{ messages.append(1) }}",
    "{{ namespace.__init__.__globals__.x }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{% include '/etc/passwd' %}",
    "{% import '/etc/passwd' as it %}",
]


@pytest.mark.parametrize("template", ESCAPES)
def test_the_sandbox_of_transformers_holds(tiny: Any, template: str) -> None:
    said = told(tiny, template)
    assert "SecurityError" in said or "UndefinedError" in said or "no loader" in said


LEAKS = [
    "{{ ('{0.__cla' ~ 'ss__}').format(messages) }}",
    "{% set f = ('{0.__globals__' ~ '}').format %}{{ f(raise_exception) }}",
    "{{ self.__init__ }}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{{ lipsum.__globals__ }}",
]


@pytest.mark.parametrize("template", LEAKS)
def test_what_is_not_to_be_seen_is_undefined(tiny: Any, template: str) -> None:
    try:
        text = render(tiny.make_tokenizer(template), TURNS)
    except TemplateFailed as error:
        text = str(error)
    assert "<class" not in text
    assert "__builtins__" not in text


def test_a_template_sees_no_environment(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    chat_templates._CHILD.end()
    assert render(tiny.make_tokenizer("fine"), TURNS) == "fine"
    process = chat_templates._CHILD._process
    assert process is not None
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"secret-key" not in environment
    assert b"PATH=" in environment


LOOPS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "{{ 10 ** (10 ** 9) }}",
]


@pytest.mark.parametrize("template", LOOPS)
def test_a_template_that_does_not_end_is_ended(tiny: Any, template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_templates, "TIMEOUT_S", 0.5)
    assert "ended after 0.5 s" in told(tiny, template)
    monkeypatch.undo()
    assert render(tiny.make_tokenizer("fine"), TURNS) == "fine", "the next one gets a new process"


BOMBS = [
    "{% set a = 10 ** 10 %}{{ 'a' * a }}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{{ '%*d' % (10 ** 10, 1) }}",
    "{{ messages[0].content.center(10 ** 10) }}",
    "{{ range(10 ** 10)|list }}",
    "{{ 'a' * (10 ** 8) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
]


@pytest.mark.parametrize("template", BOMBS)
def test_a_template_that_makes_gigabytes_fails_alone(tiny: Any, template: str) -> None:
    said = told(tiny, template)
    assert any(word in said for word in ("MemoryError", "limit is 16,777,216", "Overflow", "Recursion", "died"))


def test_an_event_loop_goes_on_while_a_template_hangs(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = "{% if messages|length == 1 and messages[0].content == 'hang' %}" + LOOPS[0] + "{% endif %}"
    tiny.make_tokenizer(loops + tiny.CHATML).save_pretrained(tmp_path)

    async def run() -> float:
        engine = ServedEngine(str(tmp_path), "http://127.0.0.1:1/v1", max_attempts=1)
        await engine._loaded()
        monkeypatch.setattr(chat_templates, "TIMEOUT_S", 1.0)
        asking = asyncio.create_task(
            engine.complete(CompletionRequest(messages=[ChatMessage(role="user", content="hang")]))
        )
        longest, last = 0.0, time.monotonic()
        while not asking.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        with pytest.raises(EngineFailed, match="ended after 1 s"):
            await asking
        await engine.close()
        return longest

    assert asyncio.run(run()) < 0.7


words = st.text(st.characters(codec=None, categories=None), max_size=30)
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content|trim }}{{ eos_token }}{% endfor %}",
    "{% for t in tools or [] %}{{ t|tojson(indent=1) }}{% endfor %}{{ messages|tojson }}{{ enable_thinking }}",
    "{%- for m in messages %}{% if m.tool_calls is defined %}{{ m.tool_calls[0].function.name }}{% endif %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% if loop.last %}{% break %}{% endif %}{% endfor %}",
]


@settings(max_examples=40)
@given(
    st.sampled_from(TEMPLATES),
    st.lists(st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "tool"]), words),
             min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_what_is_rendered_is_what_transformers_renders(
    tiny: Any, template: str, turns: list[Any], tools: bool, thinking: bool
) -> None:
    for each in (template, tiny.CHATML):
        tokenizer = tiny.make_tokenizer(each)
        given_tools = [TOOL] if tools else None
        meant = tokenizer.apply_chat_template(
            turns, tools=given_tools, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
        got = render(tokenizer, turns, given_tools, add_generation_prompt=True, enable_thinking=thinking)
        assert got == meant


def test_a_template_for_tools_is_taken_where_there_are_tools(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer({"default": "plain", "tool_use": "tools"})
    assert render(tokenizer, TURNS) == "plain"
    assert render(tokenizer, TURNS, [TOOL]) == "tools"


def test_many_threads_get_their_own_texts(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer("{{ messages[0].content }}")
    wrong: list[str] = []

    def ask(number: int) -> None:
        for turn in range(20):
            content = f"{number}/{turn}"
            if render(tokenizer, [ChatMessage(role="user", content=content)]) != content:
                wrong.append(content)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_child_that_was_killed_is_replaced(tiny: Any) -> None:
    assert render(tiny.make_tokenizer("fine"), TURNS) == "fine"
    kill_the_child()
    assert render(tiny.make_tokenizer("fine, too"), TURNS) == "fine, too"


def kill_the_child() -> None:
    process = chat_templates._CHILD._process
    assert process is not None
    process.kill()
    process.wait()


def test_one_text_is_rendered_once_and_another_is_another(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer("{{ messages[0].content }}{{ enable_thinking }}")

    def asked(content: str, thinking: bool = True) -> str:
        return render(tokenizer, [ChatMessage(role="user", content=content)], enable_thinking=thinking)

    assert [asked("a"), asked("a", False), asked("b" * 200_000)] == ["aTrue", "aFalse", "b" * 200_000 + "True"]
    kill_the_child()
    dead = chat_templates._CHILD._process
    assert [asked("a"), asked("a", False)] == ["aTrue", "aFalse"]
    assert chat_templates._CHILD._process is dead, "nobody was asked"
    assert asked("b" * 200_000) == "b" * 200_000 + "True"
    assert chat_templates._CHILD._process is not dead, "long ones are not kept"


def test_what_a_template_makes_much_of_or_of_the_clock_is_not_kept(tiny: Any) -> None:
    kept = chat_templates._CHILD._kept
    before = len(kept)
    for number in range(3):
        assert len(render(tiny.make_tokenizer("{{ 'a' * 1000000 }}" + str(number)), TURNS)) == 1_000_001
        assert render(tiny.make_tokenizer("{{ strftime_now('%Y') }}" + str(number)), TURNS)[4:] == str(number)
    assert len(kept) == before
    for number in range(chat_templates.KEPT_TEXTS + 9):
        render(tiny.make_tokenizer(str(number)), TURNS)
    assert len(kept) == chat_templates.KEPT_TEXTS


def test_what_fails_is_tried_again(tiny: Any) -> None:
    for _ in range(2):
        with pytest.raises(TemplateFailed, match="no roles"):
            render(tiny.make_tokenizer("{{ raise_exception('no roles') }}"), TURNS)
    chat_templates._CHILD.end()
    with pytest.raises(TemplateFailed, match="no roles"):
        render(tiny.make_tokenizer("{{ raise_exception('no roles') }}"), TURNS)
    assert chat_templates._CHILD._process is not None


def test_a_fork_does_not_share_the_child(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer("{{ messages[0].content }}")
    render(tokenizer, TURNS)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(chat_templates._CHILD._process is None).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"true"
    os.close(reader)
    os.close(writer)
