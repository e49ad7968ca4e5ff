"""Chat templates on our side: exact extension over turns, thoughts, tools. Skipped without transformers."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chat import ChatFormat, Reply, ends_of, split_reasoning
from workflow.completion import ChatMessage, PreviousTurn

BODY = "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ CONTENT }}<|im_end|>\n{% endfor %}"
ASK = "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = BODY.replace("CONTENT", "m.content") + ASK
FORGETFUL = (
    BODY.replace("CONTENT", "m.content.split('</think>')[-1] if m.role == 'assistant' else m.content")
    + "{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""Opens a thought in the prompt and drops it from past turns, as some reasoning models' templates do."""
TRIMMING = BODY.replace("CONTENT", "m.content.strip()") + ASK
UPPER = BODY.replace("CONTENT", "m.content.upper() if m.role == 'assistant' else m.content") + ASK
LAST_ONLY = "{%- for m in messages[-1:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + ASK

words = st.text(string.ascii_letters + string.digits + " .\\{}<>/\n", min_size=1, max_size=40)


@pytest.fixture(scope="module")
def tiny() -> Any:
    pytest.importorskip("transformers")
    from benchmarks import tiny_models

    return tiny_models


def chat_format(tiny: Any, template: str, *, thinking: bool = False) -> ChatFormat:
    tokenizer = tiny.make_tokenizer(template)
    return ChatFormat(tokenizer, [tokenizer.eos_token_id], thinking=thinking)


def turn(role: Any, content: str) -> ChatMessage:
    return ChatMessage(role=role, content=content)


def two_turns(
    chat: ChatFormat, generated: str, tools: list[dict[str, Any]] | None = None, *, ended: bool = True
) -> tuple[list[int], list[int], str]:
    """Ids of the first prompt with what was generated, ids of the second prompt, and the second prompt's text."""
    asked = [turn("system", "be brief"), turn("user", "question")]
    first = chat.prompt(asked, tools or [])
    tokens = chat._encode(generated) + ([next(iter(chat.ends))] if ended else [])
    reply = chat.read(first, tokens).text
    previous = PreviousTurn(messages=2, prompt_token_ids=first, token_ids=tokens)
    second = chat.prompt([*asked, turn("assistant", reply), turn("tool", "42")], tools or [], previous)
    return first + tokens, second, chat.tokenizer.decode(second)


@given(words)
def test_the_next_prompt_extends_exactly_what_was_generated(tiny: Any, generated: str) -> None:
    for ended in (True, False):
        history, second, text = two_turns(chat_format(tiny, PLAIN), generated, ended=ended)
        assert second[: len(history)] == history
        rest = "<|im_end|>\n<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        assert text.endswith(generated + rest), "what is added is what the template writes between the turns"


@given(words)
def test_an_empty_thought_in_the_prompt_does_not_stand_in_the_way(tiny: Any, generated: str) -> None:
    chat = chat_format(tiny, tiny.CHATML)
    history, second, text = two_turns(chat, generated)
    assert "assistant\n<think></think>" in text
    assert second[: len(history)] == history


def test_tools_are_part_of_every_prompt_in_the_templates_own_form(tiny: Any) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    history, second, text = two_turns(chat_format(tiny, tiny.CHATML), "call", [tool])
    assert second[: len(history)] == history
    assert text.startswith('<|im_start|>system\n{"type": "function"')
    assert "<|im_start|>tool\n42<|im_end|>" in text
    *_, plain = two_turns(chat_format(tiny, PLAIN), "call", [tool])
    assert plain.startswith("<|im_start|>system\nbe brief\n\n# Tools")


def test_space_that_a_template_trims_is_no_rewriting(tiny: Any) -> None:
    history, second, _ = two_turns(chat_format(tiny, TRIMMING), "  said \n")
    assert second[: len(history)] == history


@pytest.mark.parametrize(
    ("template", "generated"), [(FORGETFUL, "thought</think>said"), (UPPER, "said"), (LAST_ONLY, "said")]
)
def test_a_template_that_rewrites_past_turns_starts_a_new_sample(tiny: Any, template: str, generated: str) -> None:
    chat = chat_format(tiny, template, thinking=True)
    history, second, text = two_turns(chat, generated)
    assert second[: len(history)] != history
    assert text == chat.tokenizer.apply_chat_template(
        [
            turn("system", "be brief"),
            turn("user", "question"),
            turn("assistant", "said"),
            turn("user", "<tool_response>\n42\n</tool_response>"),
        ],
        add_generation_prompt=True,
        tokenize=False,
    )


def test_another_end_token_than_the_templates_starts_a_new_sample(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer(PLAIN)
    chat = ChatFormat(tokenizer, [tokenizer.pad_token_id])
    history, second, _ = two_turns(chat, "said")
    assert second[: len(history)] != history


def test_a_thought_begun_by_the_prompt_is_taken_off_the_reply(tiny: Any) -> None:
    chat = chat_format(tiny, FORGETFUL, thinking=True)
    prompt = chat.prompt([turn("user", "question")], [])
    tokens = [*chat._encode("one two</think>\n\nsaid"), next(iter(chat.ends))]
    assert chat.read(prompt, tokens) == Reply("said", "one two")
    assert chat.read(prompt, chat._encode("cut off in tho")) == Reply("", "cut off in tho")


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("said", Reply("said", None)),
        ("<think>why</think>said", Reply("said", "why")),
        ("\n<think>\n\n</think>\n\nsaid\n", Reply("said\n", "")),
        ("<think>never ends", Reply("", "never ends")),
        ("I <think>not</think>", Reply("I <think>not</think>", None)),
        ("<think>a</think>b</think>c", Reply("b</think>c", "a")),
        ("", Reply("", None)),
    ],
)
def test_reasoning(text: str, reply: Reply) -> None:
    assert split_reasoning(text) == reply


def test_without_a_template_the_error_says_what_to_do(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer(None)
    with pytest.raises(ValueError, match=r"no chat template\. Fix"):
        ChatFormat(tokenizer, []).prompt([turn("user", "question")], [])


# Replies that are given, not generated


@given(words)
def test_what_is_written_is_what_would_be_read(tiny: Any, reply: str) -> None:
    for template, thinking in ((PLAIN, False), (tiny.CHATML, False), (tiny.CHATML, True)):
        chat = chat_format(tiny, template, thinking=thinking)
        prompt = chat.prompt([turn("user", "question")], [])
        tokens = chat.write(prompt, reply)
        assert tokens[-1] == chat.tokenizer.eos_token_id
        assert chat.read(prompt, tokens) == Reply(reply, None)
        assert chat.tokenizer.decode(prompt + tokens).endswith(f"{reply}<|im_end|>")


def test_a_written_thought_stands_where_the_template_puts_it(tiny: Any) -> None:
    for template in (FORGETFUL, PLAIN):
        chat = chat_format(tiny, template, thinking=True)
        prompt = chat.prompt([turn("user", "question")], [])
        tokens = chat.write(prompt, "<think>\nwhy\n</think>\n\nsaid")
        assert chat.tokenizer.decode(prompt + tokens).endswith("assistant\n<think>\nwhy\n</think>\n\nsaid<|im_end|>")
        assert chat.read(prompt, tokens) == Reply("said", "why")


def test_a_reply_that_does_not_fit_its_prompt_is_refused(tiny: Any) -> None:
    opened, closed = chat_format(tiny, FORGETFUL, thinking=True), chat_format(tiny, tiny.CHATML)
    for chat, text, said in [
        (opened, "said", "the reply has none"),
        (closed, "<think>why</think>said", "the prompt rules it out"),
        (closed, "one<|im_end|>two", r"holds '<\|im_end\|>', which ends a turn"),
    ]:
        with pytest.raises(ValueError, match=said):
            chat.write(chat.prompt([turn("user", "question")], []), text)


def test_the_end_that_the_template_writes_is_taken(tiny: Any) -> None:
    tokenizer = tiny.make_tokenizer(PLAIN.replace("<|im_end|>", "{{ '<|endoftext|>' if 1 }}"))
    ends = ends_of(tokenizer, [tokenizer.pad_token_id])
    assert ends == {tokenizer.pad_token_id, tokenizer.eos_token_id}
    chat = ChatFormat(tokenizer, ends)
    assert chat.write([], "said")[-1] == tokenizer.pad_token_id
    with pytest.raises(ValueError, match=r"ends a reply with none of .*Fix: add"):
        ChatFormat(tokenizer, ends_of(tokenizer, None)).write([], "said")
