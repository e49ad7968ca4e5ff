"""What no completion can say, whichever engine, server or file it comes from: counts below zero, numbers that are none,
texts that are no Unicode.

Budgets are kept and policies are trained on these numbers, so they are looked at before anything is done with them. Not
here: whether what they say is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from workflow.completion import Completion

MOST_TOKENS = 1 << 28
"""No context holds as many, so no count of tokens is larger."""
_MOST_ID = 1 << 31
_ROUNDING = 0.01
"""How far above 0 a log-probability may come out."""


def impossible(completion: Completion) -> str:
    """What in it cannot be, with its value; empty if nothing is."""
    for name, text in (("text", completion.text), ("reasoning", completion.reasoning or "")):
        if not text.isascii() and text != text.encode(errors="replace").decode():
            return f"{name} holds half of a surrogate pair"
    usage = completion.usage
    counts = (usage.prompt_tokens, usage.completion_tokens, usage.prefix_tokens)
    for name, count in zip(("prompt_tokens", "completion_tokens", "prefix_tokens"), counts, strict=True):
        if count is not None and not is_count(count):
            return f"{name} is {_short(count)}"
    cost = usage.cost_usd
    if cost is not None and not (math.isfinite(cost) and cost >= 0):
        return f"cost_usd is {cost}"
    if completion.token_ids is completion.prompt_token_ids is completion.logprobs is None:
        return ""
    for name, ids in (("token_ids", completion.token_ids), ("prompt_token_ids", completion.prompt_token_ids)):
        strange = strange_id(ids or ())
        if strange:
            return f"{name} holds {strange}"
    values = completion.logprobs or ()
    strange = strange_logprob(values)
    if strange:
        return f"logprobs holds {strange}"
    if (
        completion.logprobs is not None
        and completion.token_ids is not None
        and len(values) != len(completion.token_ids)
    ):
        return f"{len(completion.token_ids)} token ids came with {len(values)} log-probabilities"
    if completion.token_ids is not None and not completion.token_ids and (completion.text or completion.reasoning):
        return f"no token ids came with a text of {len(completion.text or completion.reasoning or ''):,} characters"
    return ""


def is_count(value: object) -> TypeGuard[int]:
    """Whether it can be a number of tokens."""
    return type(value) is int and 0 <= value <= MOST_TOKENS


def strange_id(ids: Sequence[object]) -> str:
    """The first that is no token id; empty if all are."""
    return next((_short(each) for each in ids if type(each) is not int or not 0 <= each < _MOST_ID), "")


def strange_logprob(values: Sequence[object]) -> str:
    """The first that is no log-probability; empty if all are. NaN is none."""
    return next((_short(each) for each in values if not _is_logprob(each)), "")


def _is_logprob(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value <= _ROUNDING


def _short(value: object) -> str:
    return (
        f"a number of {value.bit_length()} bits"
        if isinstance(value, int) and abs(value) > 1 << 64
        else repr(value)[:40]
    )
