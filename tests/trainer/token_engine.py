"""An engine for tests whose tokens are bytes: it has ids and log-probabilities, and says what it is told to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from workflow.completion import Completion, CompletionRequest, Usage

Reply = Callable[[CompletionRequest], str]


class TokenEngine:
    """`reply` is a text, or a function of the request that returns one or raises. Counts how many asked at once."""

    name = "tokens"

    def __init__(self, reply: str | Reply, *, version: int = 0, pause_s: float = 0.0, digest: str = "") -> None:
        self._reply, self._version, self._pause_s, self.digest = reply, version, pause_s, digest
        self.requests: list[CompletionRequest] = []
        self.now = self.most = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self._pause_s)
            text = self._reply if isinstance(self._reply, str) else self._reply(request)
        finally:
            self.now -= 1
        prompt = self._prompt(request)
        ids = list(text.encode())
        return Completion(
            text=text,
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=[-0.5] * len(ids) if request.sampling.logprobs else None,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
            weights_version=self._version,
        )

    def _prompt(self, request: CompletionRequest) -> list[int]:
        messages = request.messages or []
        previous = request.previous
        if previous is None:
            return [byte for message in messages for byte in f"{message['role']}: {message['content']}\n".encode()]
        after = messages[previous.messages + 1 :]
        new = [byte for message in after for byte in f"\n{message['role']}: {message['content']}\n".encode()]
        return [*previous.prompt_token_ids, *previous.token_ids, *new]

    async def close(self) -> None: ...
