"""What an OpenAI-compatible server's answer means: a `Completion` that can be believed, a `Fault`, or an `Overflow`.

Pure functions over status, headers and body; sending and retrying is `engine.openai`'s part.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from engine.chat import Reply, split_reasoning
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


class _Function(BaseModel):
    name: str
    arguments: str = ""


class _NativeCall(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
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
    said = _said(choice, finish)
    return Completion(
        text=said.text,
        reasoning=said.reasoning,
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


def _said(choice: _Choice, finish: FinishReason) -> Reply:
    """The reply's text without its reasoning: what the server took out of it, else a thought in its text.

    A text of None is believed only of a reply that was cut short or is a thought and nothing else (a reasoning model
    that used up `max_tokens` before its answer has said nothing), never of another that claims to have ended by itself.
    """
    message = choice.message
    if message is None:
        if choice.text is None:
            raise _malformed("the choice has neither a message nor a text")
        return _without_thought(choice.text)
    apart = (message.reasoning_content, message.reasoning)
    reasoning = next((each.strip() for each in apart if isinstance(each, str) and each.strip()), None)
    reply = Reply(message.content or "", reasoning) if reasoning else _without_thought(message.content or "")
    if message.tool_calls:
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
        return Reply(text_with_calls(reply.text, calls), reply.reasoning)
    if message.content is None and message.refusal is not None:
        return Reply(message.refusal, reasoning)
    if message.content is None and finish == "stop" and reasoning is None:
        raise _malformed("the message has no content (null)")
    return reply


def _without_thought(text: str) -> Reply:
    """`split_reasoning`, where only the text tells whether the prompt has begun the thought: then it is but closed."""
    before, closed, _ = text.partition("</think>")
    return split_reasoning(text, begun=bool(closed) and "<think>" not in before)


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
