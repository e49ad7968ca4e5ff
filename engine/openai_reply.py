"""What an OpenAI-compatible server's answer means: a `Completion` that can be believed, or a `Fault`.

Pure functions over status, headers and body; sending and retrying is `engine.openai`'s part.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from engine.prompt import text_with_calls
from workflow.completion import Completion, CompletionRequest, FinishReason, Usage
from workflow.failures import LimitExceeded

LONGEST_RETRY_AFTER_S = 120.0
"""A server that asks for a longer pause fails the call at once, with that pause in the message."""

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
}
_FIXES = {
    400: "check the model name, the context length and the sampling parameters",
    401: "set OPENAI_API_KEY (or api_key=) to a key that this endpoint accepts",
    402: "the account behind this key has no credit left",
    403: "this key may not use this model; use another key or model",
    404: "check the model name, and that the base URL ends in the API's root (mostly /v1)",
    413: "the prompt is too large for this endpoint",
    422: "the endpoint refuses a parameter; check sampling and extra_body",
    429: "lower `concurrency`, raise `max_attempts`, or get a higher rate limit",
}


_CONTEXT = re.compile(r"maximum context length (?:is |of |\()(\d{1,9})\b")
_NUMBER = re.compile(r"\b\d{1,9}(?= (?:\w+ )?tokens)")


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


class _Function(BaseModel):
    name: str
    arguments: str = ""


class _NativeCall(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_NativeCall] | None = None


class _TokenLogprob(BaseModel):
    logprob: float


class _Logprobs(BaseModel):
    content: list[_TokenLogprob] | None = None
    token_logprobs: list[float] | None = None


class _Choice(BaseModel):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: Any = None


class _Reply(BaseModel):
    """The parts of a chat or text completion that are used; servers may send more."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None


def read_reply(body: str, request: CompletionRequest) -> Completion:
    """Completion in the body of a reply with status 200; without model name and cost where the server gives none.

    Raises `Fault` for a body that cannot be believed.
    """
    try:
        reply = _Reply.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = f"{first['msg']} at {place}" if place else first["msg"]
        raise _malformed(f"{problem}; the body begins with {body[:120]!r}") from error
    if reply.error is not None:
        raise Fault(f"status 200 with an error inside: {str(reply.error)[:300]}", "see the message", status=200)
    if not reply.choices:
        raise _malformed("it has no choices")
    if reply.usage is None:
        raise _malformed("it has no usage, so token limits cannot be kept")
    choice = reply.choices[0]
    finish = _FINISH.get(choice.finish_reason or "stop", "abort")
    used = reply.usage
    return Completion(
        text=_text(choice, finish),
        finish_reason=finish,
        token_ids=choice.token_ids,
        logprobs=_logprobs(choice) if request.sampling.logprobs else None,
        prompt_token_ids=request.token_ids or choice.prompt_token_ids or reply.prompt_token_ids,
        usage=Usage(
            prompt_tokens=used.prompt_tokens,
            completion_tokens=used.completion_tokens,
            prefix_tokens=_prefix_tokens(used.prompt_tokens_details),
        ),
        model=reply.model or "",
    )


def status_fault(status: int, code: str | None, body: str, headers: Mapping[str, str]) -> Fault:
    """The fault that a status of 400 or more stands for; `code` is OpenAI's own error code, where there is one."""
    reason = f"status {status}: {' '.join(body.split())[:300] or 'no body'}"
    if code == "insufficient_quota":
        return Fault(reason, _FIXES[402], status=status, retry=False)
    retry = status in (408, 409, 429) or status >= 500
    pause = _retry_after_s(headers) if retry else None
    if pause is not None and pause > LONGEST_RETRY_AFTER_S:
        reason += f" (the server asks to wait {pause:g} s, which is more than {LONGEST_RETRY_AFTER_S:g} s)"
        retry = False
    fix = _FIXES.get(status, "see the server's log" if status >= 500 else "see the message")
    return Fault(reason, fix, status=status, retry=retry, retry_after_s=pause)


def context_overflow(status: int, code: str | None, body: str) -> LimitExceeded | None:
    """The limit that an error stands for when prompt and `max_tokens` do not fit the model's context; else None."""
    told = _CONTEXT.search(body)
    if status not in (400, 413, 422) or (told is None and code != "context_length_exceeded"):
        return None
    limit = int(told[1]) if told else 0
    asked = [int(number) for number in _NUMBER.findall(body[told.end() :] if told else body)]
    return LimitExceeded("context_tokens", limit, max([limit + 1, *asked]))


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


def _text(choice: _Choice, finish: FinishReason) -> str:
    """The reply's text. None is believed only of a reply that was cut short (a reasoning model that used up
    `max_tokens` before its answer has said nothing), never of one that claims to have ended by itself."""
    message = choice.message
    if message is None:
        if choice.text is None:
            raise _malformed("the choice has neither a message nor a text")
        return choice.text
    if message.tool_calls:
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
        return text_with_calls(message.content or "", calls)
    if message.content is not None:
        return message.content
    if message.refusal is not None:
        return message.refusal
    if finish == "stop":
        raise _malformed("the message has no content (null)")
    return ""


def _prefix_tokens(details: Any) -> int | None:
    """Prompt tokens that the server took from its own cache. Never a reason to refuse a reply: few servers say it."""
    count = details.get("cached_tokens") if isinstance(details, dict) else None
    return count if type(count) is int and count >= 0 else None


def _logprobs(choice: _Choice) -> list[float]:
    given = choice.logprobs or _Logprobs()
    values = given.token_logprobs
    if values is None and given.content is not None:
        values = [token.logprob for token in given.content]
    if values is None:
        raise Fault("the server sent no log-probabilities", "use a server that gives them, or ask without", retry=False)
    if choice.token_ids is not None and len(choice.token_ids) != len(values):
        raise _malformed(f"{len(choice.token_ids)} token ids came with {len(values)} log-probabilities")
    return values


def _malformed(problem: str) -> Fault:
    return Fault(
        f"malformed reply (status 200): {problem}",
        "see whether the base URL leads to an OpenAI-compatible API, and the server's log",
        status=200,
    )
