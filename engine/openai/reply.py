"""What an OpenAI-compatible server's reply with status 200 says: a `Completion` that can be believed, or a `Fault`.

Pure functions over its body. Not here: other statuses (`engine.openai.refusal`), and sending and retrying
(`engine.openai.client`).
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json

from engine.chat import Reply, split_reasoning
from engine.openai.refusal import Fault
from engine.plausible import impossible, is_count, strange_id, strange_logprob
from engine.prompt import text_with_calls
from workflow.completion import Completion, CompletionRequest, FinishReason, Usage

MAX_CALLS = 1000
MAX_PARTS = 1000
BYTES_PER_TOKEN = 4
"""For an estimate where a server counts no tokens."""
_SHORT = reprlib.Repr()
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_PARTS = {
    "text": "text",
    "output_text": "text",
    "thinking": "thought",
    "reasoning": "thought",
    "refusal": "refusal",
}

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
}


class _Function(BaseModel):
    name: str
    arguments: str = ""


class _NativeCall(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: Any = None
    """Text, or a list of parts."""
    reasoning: Any = None
    reasoning_content: Any = None
    refusal: str | None = None
    tool_calls: list[_NativeCall] | None = Field(default=None, max_length=MAX_CALLS)


class _Choice(BaseModel):
    """The parts of a choice that are used; servers may send more."""

    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None
    token_ids: Any = None
    prompt_token_ids: Any = None


def read_reply(body: str, request: CompletionRequest) -> Completion:
    """Completion in the body of a reply with status 200; without model name and cost where the server gives none.

    Raises `Fault` for a body that cannot be believed.
    """
    if len(body) > most_characters(request):
        reason = f"the reply has {len(body):,} characters, which no {request.sampling.max_tokens:,} tokens have"
        raise Fault(reason, "see what the server sends, or raise `max_tokens`", status=200, retry=False)
    reply = _object(body)
    error = reply.get("error")
    if error is not None:
        raise Fault(f"status 200 with an error inside: {_shown(error)}", "see the message", status=200)
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _malformed("it has no choices")
    try:
        choice = _Choice.model_validate(choices[0])
    except ValidationError as wrong:
        first = wrong.errors()[0]
        place = ".".join(str(part) for part in ("choices", 0, *first["loc"]))
        raise _malformed(f"{first['msg']} at {place}; the body begins with {body[:120]!r}") from wrong
    finish = _FINISH.get(choice.finish_reason or "stop", "abort")
    said = _said(choice, finish)
    token_ids = _ids(choice.token_ids, "token_ids")
    prompt_ids = request.token_ids or _ids(choice.prompt_token_ids, "prompt_token_ids")
    model = reply.get("model")
    completion = Completion(
        text=said.text,
        reasoning=said.reasoning,
        finish_reason=finish,
        token_ids=token_ids,
        logprobs=_logprobs(choice, token_ids) if request.sampling.logprobs else None,
        prompt_token_ids=prompt_ids or _ids(reply.get("prompt_token_ids"), "prompt_token_ids"),
        usage=_usage(reply.get("usage"), request, said, token_ids),
        model=model if isinstance(model, str) else "",
    )
    wrong = impossible(completion)
    if wrong:
        raise _malformed(wrong)
    return completion


def most_characters(request: CompletionRequest) -> int:
    """How long the body of a reply to `request` can be. What is read costs time in which nothing else runs."""
    prompt = 16 * len(request.token_ids or ()) + sum(8 * len(turn["content"]) for turn in request.messages or ())
    each = 512 if request.sampling.logprobs or request.token_ids else 96
    return (256 << 10) + prompt + each * request.sampling.max_tokens


def _object(body: str) -> dict[str, Any]:
    """The reply as JSON, whether or not a byte order mark begins it. Halves of surrogate pairs become `?`."""
    body = body.removeprefix("\ufeff")
    try:
        reply = from_json(body)
    except ValueError as error:
        try:
            whole = json.dumps(json.loads(body), ensure_ascii=False) if _HALF.search(body) else ""
            reply = from_json(whole.encode(errors="replace"))
        except (ValueError, RecursionError):
            raise _malformed(f"Invalid JSON: {error}; the body begins with {body[:120]!r}") from error
    if not isinstance(reply, dict):
        raise _malformed(f"it is no JSON object; the body begins with {body[:120]!r}")
    return reply


def _shown(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message[:300] if isinstance(message, str) else _SHORT.repr(error)[:300]


def _usage(given: Any, request: CompletionRequest, said: Reply, token_ids: list[int] | None) -> Usage:
    """What the server counted; where it did not, or says what cannot be, an estimate by the length of the texts."""
    counts = given if isinstance(given, dict) else {}
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if not is_count(prompt):
        turns = request.messages or []
        prompt = len(request.token_ids or ()) or sum(_estimate(turn["content"]) + 4 for turn in turns)
        prompt += _estimate(json.dumps(request.tools)) if request.tools else 0
    if not is_count(completion):
        completion = _estimate(said.text) + _estimate(said.reasoning or "") if token_ids is None else len(token_ids)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        prefix_tokens=_prefix_tokens(counts.get("prompt_tokens_details")),
    )


def _estimate(text: str) -> int:
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _ids(given: Any, name: str) -> list[int] | None:
    if given is None:
        return None
    if not isinstance(given, list):
        raise _malformed(f"{name} is no list")
    if strange := strange_id(given):
        raise _malformed(f"{name} holds {strange}")
    return given


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
    content, thought, refusal = _content(message.content)
    apart = (message.reasoning_content, message.reasoning, thought)
    reasoning = next((each.strip() for each in apart if isinstance(each, str) and each.strip()), None)
    reply = Reply(content or "", reasoning) if reasoning else _without_thought(content or "")
    if message.tool_calls:
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
        return Reply(text_with_calls(reply.text, calls), reply.reasoning)
    refusal = message.refusal if message.refusal is not None else refusal
    if content is None and refusal is not None:
        return Reply(refusal, reasoning)
    if content is None and finish == "stop" and reasoning is None:
        raise _malformed("the message has no content (null)")
    return reply


def _content(given: Any) -> tuple[str | None, str | None, str | None]:
    """Text, thought and refusal of a message's content: a text, or a list of parts of these kinds."""
    if given is None or isinstance(given, str):
        return given, None, None
    if not isinstance(given, list) or len(given) > MAX_PARTS or not all(isinstance(part, dict) for part in given):
        raise _malformed("the content is neither a text nor a list of parts")
    found: dict[str, list[str]] = {kind: [] for kind in _PARTS.values()}
    for part in given:
        kind = _PARTS.get(str(part.get("type"))[:20])
        if kind is None:
            raise _malformed(f"a part of the content has the type {str(part.get('type'))[:40]!r}")
        own = next((part[name] for name in ("text", "thinking", "reasoning", "refusal") if name in part), None)
        if isinstance(own, list):  # a thought may be a list of texts itself
            own = "".join(each["text"] for each in own if isinstance(each, dict) and isinstance(each.get("text"), str))
        if not isinstance(own, str):
            raise _malformed(f"a part of the content, of the type {part.get('type')!r}, has no text")
        found[kind].append(own)
    said, thought, refusal = ("".join(texts) if texts else None for texts in found.values())
    return said, thought, refusal


def _without_thought(text: str) -> Reply:
    """`split_reasoning`, where only the text tells whether the prompt has begun the thought: then it is but closed."""
    before, closed, _ = text.partition("</think>")
    return split_reasoning(text, begun=bool(closed) and "<think>" not in before)


def _prefix_tokens(details: Any) -> int | None:
    """Prompt tokens that the server took from its own cache. Never a reason to refuse a reply: few servers say it."""
    count = details.get("cached_tokens") if isinstance(details, dict) else None
    return count if is_count(count) else None


def _logprobs(choice: _Choice, token_ids: list[int] | None) -> list[float]:
    given = choice.logprobs or {}
    values: Any = given.get("token_logprobs")
    content = given.get("content")
    if values is None and isinstance(content, list):
        values = [token.get("logprob") if isinstance(token, dict) else None for token in content]
    if values is None:
        raise Fault("the server sent no log-probabilities", "use a server that gives them, or ask without", retry=False)
    if not isinstance(values, list) or strange_logprob(values):
        raise _malformed(
            f"the log-probabilities hold {strange_logprob(values) if isinstance(values, list) else 'no list'}"
        )
    if token_ids is not None and len(token_ids) != len(values):
        raise _malformed(f"{len(token_ids)} token ids came with {len(values)} log-probabilities")
    return values


def _malformed(problem: str) -> Fault:
    return Fault(
        f"malformed reply (status 200): {problem}",
        "see whether the base URL leads to an OpenAI-compatible API, and the server's log",
        status=200,
    )
