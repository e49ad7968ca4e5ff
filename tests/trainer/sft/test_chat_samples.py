"""Conversations as tokens: exactly the replies are learned, exactly as an engine would have asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest

from engine.chat import ChatFormat
from trainer.samples import Sample
from trainer.sft.chat_rows import ChatRow
from trainer.sft.chat_samples import samples_of, samples_of_rows
from workflow.completion import ChatMessage

pytest.importorskip("transformers")

from benchmarks.tiny_models import CHATML, make_tokenizer

FORGETFUL = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] if m.role == 'assistant' "
    "else m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""Begins a thought in the prompt and drops it from past turns, as some reasoning models' templates do."""
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'


def chat_format(template: str, *, thinking: bool = False) -> ChatFormat:
    tokenizer = make_tokenizer(template)
    return ChatFormat(tokenizer, [tokenizer.eos_token_id], thinking=thinking)


def row(*turns: tuple[Any, str], tools: Sequence[dict[str, Any]] = (), place: str = "") -> ChatRow:
    messages = [ChatMessage(role=role, content=content) for role, content in turns]
    return ChatRow(messages=messages, tools=list(tools), place=place)


def parts(sample: Sample, chat: ChatFormat) -> list[tuple[int, str]]:
    """Runs of equal mask, each with its text."""
    pairs = zip(sample.loss_mask, sample.token_ids, strict=True)
    return [
        (mask, chat.tokenizer.decode([token for _, token in run])) for mask, run in groupby(pairs, key=lambda p: p[0])
    ]


def test_a_conversation_with_a_tool_is_one_sample_with_its_replies_masked_in() -> None:
    chat = chat_format(CHATML)
    turns = [("user", "1 + 1?"), ("assistant", CALL), ("tool", "2"), ("assistant", "It is 2."), ("user", "thanks")]
    [sample] = samples_of(row(*turns, tools=[ADD]), chat)
    schema = str(ADD).replace("'", '"')
    assert parts(sample, chat) == [
        (
            0,
            f"<|im_start|>system\n{schema}\n"
            'Answer with <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n<think></think>",
        ),
        (1, f"{CALL}<|im_end|>"),
        (0, "\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n<think></think>"),
        (1, "It is 2.<|im_end|>"),
    ]
    assert len(sample.behaviour_logprobs) == len(sample.token_ids)


def test_where_past_thoughts_are_dropped_each_reply_is_a_sample() -> None:
    chat = chat_format(FORGETFUL, thinking=True)
    first, second = "<think>\nwhy\n</think>\n\nsaid", "<think>\nso\n</think>\n\ndone"
    samples = samples_of(row(("user", "a"), ("assistant", first), ("user", "b"), ("assistant", second)), chat)
    assert [parts(sample, chat) for sample in samples] == [
        [
            (0, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n"),
            (1, "why\n</think>\n\nsaid<|im_end|>"),
        ],
        [
            (
                0,
                "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nsaid<|im_end|>\n"
                "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n<think>\n",
            ),
            (1, "so\n</think>\n\ndone<|im_end|>"),
        ],
    ]


def test_rows_that_are_too_long_are_left_out_whole_and_named() -> None:
    chat = chat_format(CHATML)
    short, long = row(("user", "a"), ("assistant", "b"), place="short"), row(("user", "a"), ("assistant", "b" * 99))
    length = len(samples_of(short, chat)[0].token_ids)
    long = long.model_copy(update={"place": "f, line 2"})
    found = samples_of_rows([short, long, short], chat, max_tokens=length)
    assert found.too_long == ["f, line 2"]
    assert [[len(sample.token_ids) for sample in samples] for samples in found.rows] == [[length]] * 2
    assert len(samples_of_rows([short, long], chat, max_tokens=length - 1).rows) == 0
    assert len(samples_of_rows([short, long], chat).rows) == 2


def test_a_row_that_the_template_refuses_is_named() -> None:
    strict = "{{ raise_exception('no system turn') if messages[0].role == 'system' }}" + CHATML
    rows = [row(("system", "s"), ("user", "a"), ("assistant", "b"), place="f, line 7")]
    with pytest.raises(ValueError, match="f, line 7: no system turn"):
        samples_of_rows(rows, chat_format(strict))
    rows = [row(("user", "a"), ("assistant", "<think>x</think>b"), place="f, line 8")]
    with pytest.raises(ValueError, match=r"f, line 8: the reply has a thought.*Fix: "):
        samples_of_rows(rows, chat_format(CHATML))
