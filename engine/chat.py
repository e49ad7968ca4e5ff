"""A model's chat template, applied once and on our side: conversations to token ids, generated ids to replies.

Tokens are truth (docs/architecture.md, decision 6): the prompt of an agent's next turn is the previous prompt and the
tokens generated after it, unchanged, with only the new turns put behind them. Where a template rewrites what was
generated, such as one that drops earlier reasoning, the conversation is rendered anew: a new sample begins. This module
loads no tokenizer, draws no tokens and does not parse tool calls (`workflow.tools` does).
"""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engine.chat_templates import render
from engine.prompt import plain_messages
from engine.tool_form import in_our_form, learned, native_messages, speaks_ours
from workflow.completion import ChatMessage, PreviousTurn

_OPEN, _CLOSE = "<think>", "</think>"
_TAIL = 16
"""Tokens at the end of a prompt that are looked at for an opened thought."""


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    """What the agent said, without its reasoning."""
    reasoning: str | None
    """Content of its `<think>` block; None where there is none."""


class ChatFormat:
    """The chat form of one model. `tokenizer` is a Hugging Face tokenizer with a chat template.

    `ends` are the ids that end a turn. `thinking` is passed to the template as `enable_thinking`: families that know it
    (Qwen3 and its kin) leave out or begin a thought accordingly, others ignore it.
    """

    def __init__(self, tokenizer: Any, ends: Collection[int], *, thinking: bool = False) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)
        self.thinking = thinking
        self._speaks_ours = speaks_ours(tokenizer)
        self._form = None if self._speaks_ours else learned(tokenizer)

    def prompt(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]], previous: PreviousTurn | None = None
    ) -> list[int]:
        """Prompt token ids: the exact extension of the previous turn where there is one and the template allows it.

        Raises ValueError where the tokenizer has no chat template, and `TemplateFailed` for whatever the template does.
        """
        if not self.tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template. Fix: use a chat model, or ask with token ids")
        if previous is not None:
            extended = self._extension(messages, tools, previous)
            if extended is not None:
                return extended
        return self._encode(self._render(messages, tools, self.thinking))

    def read(
        self, prompt: list[int], tokens: list[int], stop: Sequence[str] = (), tools: Sequence[dict[str, Any]] = ()
    ) -> Reply:
        """What generated tokens say before the first stop string, given the prompt that they continue (some templates
        begin the thought there). Calls of those `tools` come in our form, whatever the family's is."""
        tokens = tokens[:-1] if tokens and tokens[-1] in self.ends else tokens
        called: list[list[int]] = []
        if tools and self._form is not None and self._form.mark is not None:
            tokens, *called = _split(tokens, self._form.mark)
        text = self.decode(tokens)
        reply = split_reasoning(text, begun=self.decode(prompt[-_TAIL:]).rstrip().endswith(_OPEN))
        places = [place for each in stop if (place := reply.text.find(each)) >= 0]
        said = reply.text[: min(places)] if places else reply.text
        if tools and self._form is not None and not (places and called):
            bodies = [self.decode(each) for each in called]
            if self._form.opening and self._form.mark is None:
                said, *bodies = said.split(self._form.opening)
            said = in_our_form(said, bodies, self._form, [tool["function"]["name"] for tool in tools])
        return Reply(said, reply.reasoning)

    def write(self, prompt: list[int], text: str) -> list[int]:
        """A reply as a model would generate it after `prompt`: the tokens of `text`, then the one that ends a turn.

        `text` may begin with a thought in `<think>` tags; `read` gives both back. Raises ValueError where the prompt
        settles that there is no thought, or begins one that `text` lacks, where `text` would end the turn earlier, and
        where the template ends turns with none of `ends`.
        """
        before, thinks = self.decode(prompt[-_TAIL:]), text.lstrip().startswith(_OPEN)
        if before.rstrip().endswith(_OPEN):
            if not thinks:
                raise ValueError(f"the prompt begins a thought, and the reply has none. Fix: begin it with {_OPEN}")
            text = text.lstrip().removeprefix(_OPEN).removeprefix(before.rpartition(_OPEN)[2])
        elif thinks and before.rstrip().endswith(_CLOSE):
            raise ValueError("the reply has a thought, and the prompt rules it out. Fix: thinking=True, or no thought")
        tokens = self._encode(text)
        if not self.ends.isdisjoint(tokens):
            early = next(token for token in tokens if token in self.ends)
            raise ValueError(f"the reply holds {self.tokenizer.decode([early])!r}, which ends a turn. Fix: take it out")
        return [*tokens, self._end]

    @functools.cached_property
    def _end(self) -> int:
        """The id that the template writes behind a reply."""
        mark = f"reply-{secrets.token_hex(8)}"
        turns = [ChatMessage(role="user", content="question"), ChatMessage(role="assistant", content=mark)]
        text = render(self.tokenizer, turns)
        end = next((token for token in self._encode(text.rpartition(mark)[2]) if token in self.ends), None)
        if end is None:
            raise ValueError(
                f"the chat template ends a reply with none of the tokens that end a turn ({sorted(self.ends)}). Fix: "
                "add the one that it writes to eos_token_id in generation_config.json"
            )
        return end

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _render(
        self,
        messages: list[ChatMessage],
        tools: list[dict[str, Any]],
        thinking: bool,
        said: dict[int, ChatMessage] | None = None,
    ) -> str:
        """Text of a prompt; the turns in `said` stand, as they are, in the places of those that they are keyed by. What
        a template refuses in its own form is said in plain text, but not with `said`."""
        said = said or {}

        def rendered(turns: Sequence[Any], tools: list[dict[str, Any]]) -> str:
            text = render(self.tokenizer, turns, tools, add_generation_prompt=True, enable_thinking=thinking)
            return text.encode(errors="replace").decode()  # no tokenizer takes halves of surrogate pairs

        if self._form is not None:
            native = [said.get(at, turn) for at, turn in enumerate(native_messages(messages))]
            try:
                return rendered(native, tools)
            except Exception:  # some templates refuse two calls in a turn, or a result without one
                if said:
                    raise
        messages = [said.get(at, turn) for at, turn in enumerate(messages)]
        return rendered(messages, tools) if self._speaks_ours else rendered(plain_messages(messages, tools), [])

    def _extension(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]], previous: PreviousTurn
    ) -> list[int] | None:
        """The previous turn's ids and the new turns behind them; None if the template would write something else."""
        before = messages[: previous.messages]
        ended = previous.token_ids[-1:] and previous.token_ids[-1] in self.ends
        generated = self.decode(previous.token_ids[:-1] if ended else previous.token_ids)

        def whole(reply: str) -> str:
            said = {previous.messages: ChatMessage(role="assistant", content=reply)}
            return self._render(messages, tools, self.thinking, said)

        mark = f"reply-{secrets.token_hex(8)}"
        try:
            parts = whole(mark).split(mark)
        except Exception:
            if self._form is None:
                raise
            return None  # two forms in one conversation would be none
        if len(parts) != 2:
            return None
        suffix = parts[1]
        # Without thinking some templates put an empty thought into the prompt, and leave it out of past turns.
        prefixes = {self._render(before, tools, thinking) for thinking in (self.thinking, True)}
        replies = {generated, generated.strip()}
        if whole(generated) not in {prefix + reply + suffix for prefix in prefixes for reply in replies}:
            return None
        if ended:
            end = self.tokenizer.decode(previous.token_ids[-1:], skip_special_tokens=False)
            if not suffix.startswith(end):
                return None
            suffix = suffix[len(end) :]
        return [*previous.prompt_token_ids, *previous.token_ids, *self._encode(suffix)]


def _split(tokens: list[int], mark: int) -> list[list[int]]:
    """What is between the marks."""
    places = [-1, *(at for at, token in enumerate(tokens) if token == mark), len(tokens)]
    return [tokens[start + 1 : end] for start, end in itertools.pairwise(places)]


def ends_of(tokenizer: Any, eos_token_id: int | list[int] | None) -> frozenset[int]:
    """Ids that end a turn: the tokenizer's, and the model's from its generation configuration."""
    ends = [*(eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]), tokenizer.eos_token_id]
    return frozenset(token for token in ends if token is not None)


def split_reasoning(text: str, *, begun: bool = False) -> Reply:
    """Take a leading `<think>` block off a reply; `begun` says that the prompt has opened it already.

    A thought that is never closed leaves no reply: the model was cut off before it said anything.
    """
    body = text.lstrip()
    if body.startswith(_OPEN):
        body = body[len(_OPEN) :]
    elif not begun:
        return Reply(text, None)
    reasoning, closed, reply = body.partition(_CLOSE)
    return Reply(reply.lstrip() if closed else "", reasoning.strip())
