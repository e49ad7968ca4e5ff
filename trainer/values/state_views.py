"""States as the tokens that a model of values reads: one way for training and for scoring.

Each reply ends with the separator token, at which V is read. Read is what the agent said: its text, without a thought.
Where a reply's engine has the model's own tokenizer and its ids say just that text, they are taken as they are, without
those that end a turn; else the text is written anew. So a state reads the same by ids and by text. What is too long
loses what is oldest, and never a token of the newest reply. Not here: trees (`trainer.values.tree_rows`) and models.
"""

from __future__ import annotations

import functools
import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from engine.chat import ChatFormat, ends_of
from engine.pretrained import probe_ids
from search.paths import AgentStep
from search.scoring import ScoredState
from trainer.samples import Ids, Sample
from workflow.completion import ChatMessage, Completion
from workflow.failures import Failure

View = Literal["local", "transcript", "outcome", "steps"]
"""`local`: the acting agent's prompt as its engine rendered it, and its reply. `transcript`: the question and all
replies so far, each under its agent's name. `outcome`: the question and the final answer. `steps`: the replies as steps
of one solution in the model's own chat form, as published models of steps read them."""
VIEWS: tuple[View, ...] = get_args(View)
_FORMAT = 3
"""Goes up with any change of what is written below."""


class Unreadable(ValueError):
    """A state that has no value, and why in a word or two."""


@dataclass(frozen=True, slots=True)
class StateTokens:
    """What is read of a state; the last token is the separator."""

    token_ids: Ids
    action: int
    """Where the newest reply begins. What is before it, siblings share."""

    def sample(self, target: float = 0.0, weight: float = 1.0) -> Sample:
        """For `trainer.update`: chosen are the newest reply and the separator."""
        size = len(self.token_ids)
        return Sample(
            policy="",
            token_ids=self.token_ids,
            loss_mask=array("b", bytes(self.action) + b"\1" * (size - self.action)),
            behaviour_logprobs=array("f", bytes(4 * size)),  # nobody sampled these
            advantage=target,
            weight=weight,
        )


class StateView:
    """How states are written for one model. `tokenizer` knows the `separator`; `max_tokens` is the most that is read,
    None for any number."""

    def __init__(self, tokenizer: Any, separator: str, view: View, max_tokens: int | None = None) -> None:
        self.view: View = view
        self.separator = separator
        known = tokenizer.convert_tokens_to_ids(separator) if separator else None
        if known is None or (known == tokenizer.unk_token_id and separator != tokenizer.unk_token):
            raise ValueError(
                f"the tokenizer has no token {separator!r}, at which V is read. Fix: add it, or name another"
            )
        self.separator_id: int = known
        self.max_tokens = max_tokens
        self._tokenizer = tokenizer
        self._size = len(tokenizer)
        empty = tokenizer("")["input_ids"]
        self._begin: list[int] = empty[:1] if empty[:1] == [tokenizer.bos_token_id] else []

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of all that tokens follow from besides the state: the view, the separator, the tokenizer and, where it is
        used, its chat template."""
        template = self._tokenizer.chat_template if self.view in ("local", "steps") else None
        made = [_FORMAT, self.view, self.separator, self.separator_id, template, probe_ids(self._tokenizer)]
        return hashlib.blake2b(json.dumps(made).encode(), digest_size=16).hexdigest()

    def tokens(self, state: ScoredState) -> StateTokens:
        """Raises `Unreadable` for a state whose newest reply is a failure or does not fit; ValueError where the
        tokenizer's chat template is needed, and refuses."""
        if self.view == "outcome":
            return self._cut(self._question(state), [(self._encode("\n\nAnswer:\n"), self._encode(state.answer or ""))])
        if not state.turns:
            raise ValueError("a state without replies has no value. Fix: score states after an action")
        newest = state.turns[-1]
        if isinstance(newest.reply, Failure):
            raise Unreadable("failed")
        if self.view == "local":
            return self._cut(*self._local(newest, newest.reply))
        if self.view == "steps":
            head = self._chat.prompt([ChatMessage(role="user", content=state.question)], [])
            return self._cut(head, [([], self._encode(_text(step))) for step in state.turns])
        return self._cut(
            self._question(state),
            [(self._encode(f"\n\n{step.agent}:\n"), self._said(step)) for step in state.turns],
        )

    def _question(self, state: ScoredState) -> list[int]:
        return [*self._begin, *self._encode(f"Question:\n{state.question}")]

    def _local(self, step: AgentStep, reply: Completion) -> tuple[list[int], list[tuple[list[int], list[int]]]]:
        owned = self._owned(step, reply)
        prompt = owned[0] if owned else self._chat.prompt(step.messages, step.tools)
        return prompt, [([], owned[1] if owned else self._encode(reply.text))]

    def _said(self, step: AgentStep) -> list[int]:
        owned = None if isinstance(step.reply, Failure) else self._owned(step, step.reply)
        return owned[1] if owned else self._encode(_text(step))

    def _owned(self, step: AgentStep, reply: Completion) -> tuple[list[int], list[int]] | None:
        """Prompt and reply as the engine's ids, where these are of this tokenizer: they say here all that was asked, in
        its order, and exactly what was replied. A thought before it, or a tool call in the model's own form, is more
        than that. What ends the turn is left out: a text has none, and one that was cut off has none either."""
        prompt, said = reply.prompt_token_ids, reply.token_ids
        if not prompt or said is None or not all(0 <= each < self._size for each in (*prompt, *said)):
            return None
        while said and said[-1] in self._special:
            said = said[:-1]
        decoded, at = self._tokenizer.decode(prompt, clean_up_tokenization_spaces=False), 0
        asked = [_written(message["content"]).strip() for message in step.messages]
        for text in asked:
            at = decoded.find(text, at)
            if at < 0:
                return None
            at += len(text)
        text = _written(reply.text)
        whole = self._tokenizer.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return (prompt, said) if (any(asked) or text) and text == whole else None

    @functools.cached_property
    def _special(self) -> frozenset[int]:
        return frozenset(number for number, token in self._tokenizer.added_tokens_decoder.items() if token.special)

    def _cut(self, head: Sequence[int], turns: Sequence[tuple[list[int], list[int]]]) -> StateTokens:
        """The head and the turns, each a name and a reply, within the limit: the oldest turns go first, then what the
        head begins with."""
        *older, (name, reply) = turns
        room = (self.max_tokens or 1 << 31) - len(name) - len(reply) - 1
        if room < (0 if name else 1):  # something comes before what is chosen
            raise Unreadable("too long")
        before = [[*who, *said, self.separator_id] for who, said in older]
        while before and len(head) + sum(map(len, before)) > room:
            del before[0]
        room -= sum(map(len, before))
        kept = [*head[max(0, len(head) - room) :], *(each for turn in before for each in turn), *name]
        return StateTokens(array("i", [*kept, *reply, self.separator_id]), len(kept))

    def _encode(self, text: str) -> list[int]:
        """No special token comes of what somebody wrote: a reply that spells the separator is read on."""
        return self._tokenizer(_written(text), add_special_tokens=False, split_special_tokens=True)["input_ids"]

    @functools.cached_property
    def _chat(self) -> ChatFormat:
        return ChatFormat(self._tokenizer, ends_of(self._tokenizer, None))


def _written(text: str) -> str:
    """No tokenizer takes halves of surrogate pairs."""
    return text.encode(errors="replace").decode()


def _text(step: AgentStep) -> str:
    return f"[{step.reply.kind}]" if isinstance(step.reply, Failure) else step.reply.text
