"""Completions from any endpoint that speaks OpenAI's HTTP interface, through the `openai` library.

It holds a concurrency cap and bounded retries, counts tokens and cost, and checks every reply before believing
it (`engine.openai.bounded_http` bounds what a server may send). Tools and tool results travel as text (see
`engine.prompt`); native tool calls are turned into that text. It streams only to show a reply while it is written, and
does not tokenize; `engine.openai.cache` can keep its replies.

The retry loop is our own: the library's retries do not cover replies with status 200 that carry an error or no
choice (gateways report overload that way), and its timeout bounds the silence between two bytes, not an attempt.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.openai.refusal import Fault, Overflow, context_overflow, status_fault
from engine.openai.reply import read_reply
from engine.prompt import plain_messages
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

if TYPE_CHECKING:
    from openai import AsyncOpenAI

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 8.0
OPENAI_URL = "https://api.openai.com/v1"
MAX_REFUSALS = 40
"""For want of room, in one attempt: halving `max_tokens` finds any room in as many."""


class OpenAIEngine:
    """An OpenAI-compatible endpoint: OpenAI itself, vLLM, SGLang, llama.cpp, Ollama and many gateways.

    `timeout_s` bounds each attempt, to the last byte. Redirections are not followed. `prices` are US dollars per
    million (prompt, completion) tokens. `extra_body` is merged into every request: `{"return_token_ids": True}` makes a
    vLLM server send token ids, and `{"chat_template_kwargs": {"enable_thinking": False}}` turns off thinking there.
    Token-id prompts go to the `completions` endpoint, which vLLM serves; `tools` then have to be in the prompt already.

    Servers report log-probabilities of the model's own distribution, unless started otherwise (for vLLM,
    `--logprobs-mode processed_logprobs`, which `processed_logprobs=True` states here). Asking for
    log-probabilities under a temperature, top_p or top_k that changes the distribution is refused otherwise.

    A top_k of 0 is sent as -1 (off) where log-probabilities or token ids are asked for, except to OpenAI. Elsewhere
    it stays unsaid, since many servers refuse it, and vLLM then takes the top_k of the model's generation_config.json:
    start it with `--generation-config vllm`, or give `extra_body={"top_k": -1}`.

    A thought goes into `reasoning`, whether the server takes it out of the text or leaves it there in `<think>` tags.
    One that the chat template opens and `max_tokens` cuts off looks like text, unless vLLM has `--reasoning-parser`.

    Tokens that a server does not count, or counts as what cannot be, are estimated by the length of the texts.

    A reply ends where the context does, as with local engines: where a server refuses `max_tokens` because prompt and
    reply do not fit together, it is asked for what fits, or for ever less where it does not say how long the prompt is.

    Raises `EngineFailed` for a missing key or a bad URL; `complete` does after `max_attempts`, and `LimitExceeded`
    (`context_tokens`) for a prompt that fills the context alone.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 600.0,
        max_attempts: int = 5,
        concurrency: int = 64,
        prices: tuple[float, float] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        processed_logprobs: bool = False,
    ) -> None:
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self._server = _without_password(base_url) if base_url else "api.openai.com"
        self.name = f"openai:{model}@{self._server}" if base_url else f"openai:{model}"
        self.model = model
        self.base_url = base_url
        self.timeout_s = timeout_s
        self.max_attempts = max_attempts
        self.concurrency = concurrency
        self.prices = prices
        self.extra_body = dict(extra_body or {})
        self.processed_logprobs = processed_logprobs
        self.watch: Callable[[str, str], None] | None = None
        """Where set, gets the key of a chat request and each piece of its reply as it comes; after a failed attempt the
        reply begins anew."""
        if max_attempts < 1 or concurrency < 1 or timeout_s <= 0:
            raise ValueError(
                "max_attempts and concurrency must be at least 1 and timeout_s above 0, got "
                f"max_attempts={max_attempts}, concurrency={concurrency}, timeout_s={timeout_s:g}"
            )
        if base_url and not base_url.startswith(("http://", "https://")):
            raise EngineFailed(
                self.name, f"base URL {self._server!r} has no scheme. Fix: write http://{self._server}", attempts=0
            )
        key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and not base_url:
            raise EngineFailed(
                self.name,
                "no API key. Fix: set OPENAI_API_KEY (or api_key=), or name a server of your own: "
                f"openai:{model}@http://localhost:8000/v1",
                attempts=0,
            )
        self._is_openai = base_url is None or "//api.openai.com" in base_url
        self._key = key or "none"  # the library insists on one; servers of one's own mostly do not
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: AsyncOpenAI | None = None
        self._slots = asyncio.Semaphore(concurrency)
        self._closed = False

    async def complete(self, request: CompletionRequest) -> Completion:
        self._check_logprobs(request.sampling)
        client = self._connect()
        async with self._slots:
            for attempt in range(1, self.max_attempts + 1):
                try:
                    completion = read_reply(await self._fitting(client, request), request)
                    return self._with_cost(completion)
                except Fault as fault:
                    wait_s = self._delay(fault, attempt)
                    if wait_s is None:
                        raise EngineFailed(self.name, str(fault), attempt, fault.status) from fault
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    def sent(self, request: CompletionRequest) -> dict[str, Any]:
        """All that a reply depends on, as plain values: the address and the whole body. Not the key to the account,
        and nothing about waiting and retrying. Raises `EngineFailed` for what is never sent."""
        self._check_logprobs(request.sampling)
        route, body = self._body(request)
        extra = body.pop("extra_body")
        url = f"{(self.base_url or OPENAI_URL).rstrip('/')}/{route}"
        return {"url": url, "body": body | extra, "processed_logprobs": self.processed_logprobs}

    def _check_logprobs(self, sampling: Sampling) -> None:
        own = sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0
        if sampling.logprobs and not own and not self.processed_logprobs:
            raise EngineFailed(
                self.name,
                "log-probabilities were asked for under a changed distribution "
                f"(temperature={sampling.temperature:g}, top_p={sampling.top_p:g}, top_k={sampling.top_k}), but "
                "servers report the model's own. Fix: sample with temperature=1, top_p=1, top_k=0, or start the "
                "server so that it reports processed log-probabilities and say processed_logprobs=True",
                attempts=0,
            )

    def _connect(self) -> AsyncOpenAI:
        """The client of the running event loop: its connections cannot outlive the loop that opened them."""
        if self._closed:
            raise EngineFailed(self.name, "the engine is closed. Fix: make a new one", attempts=0)
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            from openai import AsyncOpenAI

            from engine.openai.bounded_http import BoundedClient

            self._loop = loop
            self._slots = asyncio.Semaphore(self.concurrency)
            self._client = AsyncOpenAI(
                api_key=self._key,
                base_url=self.base_url,
                timeout=self.timeout_s,
                max_retries=0,
                http_client=BoundedClient(),
            )
        return self._client

    def _delay(self, fault: Fault, attempt: int) -> float | None:
        """Seconds to wait before the next attempt, None if there is none; jittered so that callers spread out."""
        if not fault.retry or attempt == self.max_attempts:
            return None
        wait_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        return max(wait_s, (fault.retry_after_s or 0.0) * random.uniform(1.0, 1.1))

    async def _fitting(self, client: AsyncOpenAI, request: CompletionRequest) -> str:
        """Body of one reply, with `max_tokens` lowered until prompt and reply fit the context. Raises `Fault`, and
        `LimitExceeded` where the prompt leaves no room."""
        try:
            async with asyncio.timeout(self.timeout_s):
                for _ in range(MAX_REFUSALS):
                    try:
                        return await self._attempt(client, request)
                    except Overflow as overflow:
                        room = overflow.room(request)
                        if room < 1:
                            raise overflow.failure(request) from overflow
                        request = replace(request, sampling=replace(request.sampling, max_tokens=room))
        except TimeoutError as error:
            raise self._late() from error
        raise Fault(
            f"refused {MAX_REFUSALS} times, as too long for the context, whatever was asked for",
            "see what the server takes its context to be, or lower `max_tokens`",
            retry=False,
        )

    def _late(self) -> Fault:
        return Fault(
            f"no reply from {self._server} within timeout_s={self.timeout_s:g}",
            "raise `timeout_s`, lower `max_tokens` or `concurrency`, or see whether the server is stuck",
        )

    async def _attempt(self, client: AsyncOpenAI, request: CompletionRequest) -> str:
        """Body of one reply with a good status. Past the context raises `Overflow`, everything else `Fault`."""
        import openai

        try:
            route, body = self._body(request)
            if self.watch is not None and route == "chat/completions" and not request.sampling.logprobs:
                from engine.openai.streaming import streamed

                return await streamed(client.chat.completions, body, functools.partial(self.watch, request.key))
            endpoint = client.completions if route == "completions" else client.chat.completions
            raw = await endpoint.with_raw_response.create(**body)
            return raw.http_response.text
        except openai.APITimeoutError as error:
            raise self._late() from error
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, Fault):
                raise error.__cause__ from None
            cause = f"{type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ else str(error)
            raise Fault(
                f"connection to {self._server} failed or broke off ({cause})",
                "see whether the server runs and the URL is right",
            ) from error
        except openai.APIStatusError as error:
            overflow = context_overflow(error.status_code, error.code, error.response.text)
            if overflow is not None:
                raise overflow from error
            raise status_fault(error.status_code, error.code, error.response.text, error.response.headers) from error
        except (openai.OpenAIError, TypeError, ValueError) as error:
            reason = f"the request cannot be sent: {type(error).__name__}: {error}"
            raise Fault(reason, "see that messages and tools are plain JSON in valid Unicode", retry=False) from error

    def _body(self, request: CompletionRequest) -> tuple[str, dict[str, Any]]:
        """Where a request goes, below the base URL, and what the library is given to send."""
        if request.messages is not None:
            return "chat/completions", self._chat_body(request)
        return "completions", self._ids_body(request)

    def _chat_body(self, request: CompletionRequest) -> dict[str, Any]:
        sampling = request.sampling
        # OpenAI's newer models refuse `max_tokens`; many other servers know only that.
        limit = "max_completion_tokens" if self._is_openai else "max_tokens"
        body: dict[str, Any] = {
            "messages": plain_messages(request.messages or [], request.tools),
            limit: sampling.max_tokens,
        }
        if sampling.logprobs:
            body["logprobs"] = True
        return body | self._common_body(request)

    def _ids_body(self, request: CompletionRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"prompt": request.token_ids, "max_tokens": request.sampling.max_tokens}
        if request.sampling.logprobs:
            body["logprobs"] = 1
        return body | self._common_body(request)

    def _common_body(self, request: CompletionRequest) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {"model": self.model, "temperature": sampling.temperature}
        # Said even where it is off: vLLM takes what is not from the model's generation_config.json. OpenAI's own
        # default is 1, and its reasoning models refuse the parameter.
        if sampling.top_p < 1 or not self._is_openai:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        extra = dict(self.extra_body)
        wants_tokens = sampling.logprobs or request.token_ids is not None or extra.get("return_token_ids")
        if sampling.top_k:
            extra["top_k"] = sampling.top_k
        elif wants_tokens and not self._is_openai:
            extra.setdefault("top_k", -1)
        return body | {"extra_body": extra}

    def _with_cost(self, completion: Completion) -> Completion:
        usage = completion.usage
        if self.prices is not None:
            per_prompt, per_completion = self.prices
            cost = (usage.prompt_tokens * per_prompt + usage.completion_tokens * per_completion) / 1e6
            usage = replace(usage, cost_usd=cost)
        return replace(completion, usage=usage, model=completion.model or self.model)


def _without_password(url: str) -> str:
    """For names and messages, which go into traces."""
    before, scheme, rest = url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{before}{scheme}{host.rpartition('@')[2]}{slash}{path}"
