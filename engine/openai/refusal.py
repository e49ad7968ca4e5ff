"""What it means that an OpenAI-compatible server refuses or fails: a `Fault`, or an `Overflow` of the context.

Pure functions over status, headers and body. Not here: replies with a good status (`engine.openai.reply`), and sending
and retrying (`engine.openai.client`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from workflow.completion import CompletionRequest
from workflow.failures import LimitExceeded

LONGEST_RETRY_AFTER_S = 120.0
"""A server that asks for a longer pause fails the call at once, with that pause in the message."""

_FIXES = {
    400: "check the model name, the context length and the sampling parameters",
    401: "set OPENAI_API_KEY (or api_key=) to a key that this endpoint accepts",
    402: "the account behind this key has no credit left",
    403: "this key may not use this model; use another key or model",
    404: "check the model name, and that the base URL ends in the API's root (mostly /v1)",
    413: "the prompt is too large for this endpoint",
    422: "the endpoint refuses a parameter; check sampling and extra_body",
    429: "wait, ask less at once (in Python: concurrency=, max_attempts=), or get a higher rate limit",
}

# How servers say it: the context, the tokens of the prompt, and that those of the reply are part of the sum.
_CONTEXT = re.compile(r"(?:context length (?:is |of |\()|max_model_len=(?:[a-z_]{1,30}=)?)(\d{1,9})\b")
_PROMPT = re.compile(
    r"(?:(?:prompt|request) (?:contains|has) |resulted in |[Ii]nput \()(at least )?(\d{1,9}) (?:input )?tokens"
    r"|\b(\d{1,9}) (?:tokens )?(?:in the messages|in your prompt|from the input)"
)
_OUTPUT = re.compile(r"requested|completion|max_(?:new_)?tokens")


class Fault(Exception):
    """One failed attempt."""

    def __init__(
        self,
        reason: str,
        fix: str,
        *,
        status: int | None = None,
        retry: bool = True,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{reason}. Fix: {fix}")
        self.status = status
        self.retry = retry
        self.retry_after_s = retry_after_s


class Overflow(Exception):
    """A refusal because prompt and `max_tokens` together pass the context of `limit` tokens.

    The prompt has `prompt` tokens where the server counted them (`exact`), and at least so many elsewhere.
    """

    def __init__(self, limit: int, prompt: int, *, exact: bool) -> None:
        super().__init__(f"a prompt of {prompt} tokens or more and `max_tokens` pass the context of {limit}")
        self.limit = limit
        self.prompt = prompt
        self.exact = exact

    def room(self, request: CompletionRequest) -> int:
        """Completion tokens to ask for after this refusal of `request`; 0 where the prompt alone fills the context."""
        asked = request.sampling.max_tokens
        left = self.limit - self._prompt_of(request)
        if left < 1 or (left < asked and (self.exact or request.token_ids)):
            return max(left, 0)
        # All that is known: fewer than were asked for. Half of that fits mostly, and the half of the half if not.
        return (min(left, asked - 1) + 1) // 2

    def failure(self, request: CompletionRequest) -> LimitExceeded | Fault:
        """What it comes to without room: a limit, or the server's fault where the prompt fits by what it says."""
        prompt = self._prompt_of(request)
        if 0 < prompt < self.limit:
            asked = request.sampling.max_tokens
            reason = f"a prompt of {prompt} tokens and max_tokens={asked} are refused for a context of {self.limit}"
            return Fault(reason, "take the limit of tokens out of extra_body, or see the server's log", retry=False)
        return LimitExceeded("context_tokens", self.limit, max(self.limit + 1, prompt))

    def _prompt_of(self, request: CompletionRequest) -> int:
        return len(request.token_ids) if request.token_ids else self.prompt


def status_fault(status: int, code: str | None, body: str, headers: Mapping[str, str]) -> Fault:
    """The fault that a status of 400 or more stands for; `code` is OpenAI's own error code, where there is one."""
    reason = f"status {status}: {' '.join(body.split())[:300] or 'no body'}"
    if 300 <= status < 400:
        reason = f"status {status}: the server sends the request on to {headers.get('location', 'nowhere')[:200]!r}"
        return Fault(reason, "name that address as base URL, if you trust it", status=status, retry=False)
    if code == "insufficient_quota":
        return Fault(reason, _FIXES[402], status=status, retry=False)
    retry = status in (408, 409, 429) or status >= 500
    pause = _retry_after_s(headers) if retry else None
    if pause is not None and pause > LONGEST_RETRY_AFTER_S:
        reason += f" (the server asks to wait {pause:g} s, which is more than {LONGEST_RETRY_AFTER_S:g} s)"
        retry = False
    fix = _FIXES.get(status, "see the server's log" if status >= 500 else "see the message")
    return Fault(reason, fix, status=status, retry=retry, retry_after_s=pause)


def context_overflow(status: int, code: str | None, body: str) -> Overflow | None:
    """What an error says that is about the model's context, else None. One that does not speak of the reply's tokens
    is about the prompt alone."""
    context = _CONTEXT.search(body)
    if status not in (400, 413, 422) or (context is None and code != "context_length_exceeded"):
        return None
    limit = int(context[1]) if context else 0
    prompt = _PROMPT.search(body)
    if prompt is not None:
        return Overflow(limit, int(prompt[2] or prompt[3]), exact=not prompt[1])
    if limit and _OUTPUT.search(body):
        return Overflow(limit, 0, exact=False)
    return Overflow(limit, limit + 1, exact=True)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `Retry-After` (a number or an HTTP date) or `retry-after-ms`; None without either."""
    for header, seconds in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(header)
        if not value:
            continue
        try:
            wait_s = float(value) * seconds
        except ValueError:
            try:
                wait_s = parsedate_to_datetime(value).timestamp() - time.time()
            except ValueError:
                continue
        if wait_s == wait_s:  # not NaN
            return max(0.0, wait_s)
    return None
