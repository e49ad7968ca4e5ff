"""An engine that owns its tokens, for tests: prompt ids are characters, chosen ids lie above them and never repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from workflow.completion import ChatMessage, Completion, CompletionRequest, Usage

CHOSEN = 0x110000
"""The first id that is no character: chosen ids begin here."""

Reply = Callable[[CompletionRequest], str]


def rendered(messages: Iterable[ChatMessage]) -> list[int]:
    return [ord(letter) for message in messages for letter in f"<{message['role']}>{message['content']}\n"]


def logprob_of(token: int) -> float:
    """Each chosen token has its own, so that a shift shows."""
    return -(token - CHOSEN + 1) / 1000


class NumberedEngine:
    """Gives token ids as an engine of our own does: one id per character of the reply, and one that ends the turn.

    With `extends` the prompt of a later turn is the exact extension of the turn before; without, as where a template
    drops what was generated, the conversation is rendered anew. Replies to concurrent requests come latest first.
    """

    name = "numbered"

    def __init__(self, reply: Reply, *, extends: bool = True) -> None:
        self.reply, self.extends = reply, extends
        self.next = CHOSEN
        self.waiting = 0
        self.version = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.waiting += 1
        for _ in range(max(0, 20 - self.waiting)):
            await asyncio.sleep(0)
        self.waiting -= 1
        assert request.messages is not None
        previous = request.previous if self.extends else None
        if previous is None:
            prompt = rendered(request.messages)
        else:
            new = rendered(request.messages[previous.messages + 1 :])
            prompt = [*previous.prompt_token_ids, *previous.token_ids, *new]
        text = self.reply(request)
        chosen = list(range(self.next, self.next + len(text) + 1))
        self.next += len(chosen)
        self.version += 1
        return Completion(
            text=text,
            token_ids=chosen,
            logprobs=[logprob_of(token) for token in chosen],
            prompt_token_ids=prompt,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(chosen)),
            weights_version=self.version,
        )

    async def close(self) -> None:
        return None
